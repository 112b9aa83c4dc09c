"""The studio over HTTP, for pages on this machine that know its token: a table of paths, each answered off the loop.

Before anything is told: the Host must name this machine, the Origin must be our own, and the path must begin with the
token. Nothing that is sent names a file: models and runs are chosen from those that were opened.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..core.errors import HeedError
from ..serve.api.wire.body import read_json
from ..serve.api.wire.guard import Guard, Keys
from ..serve.api.wire.log import Log
from ..serve.api.wire.refusal import Refusal, refusal_of, typed
from ..serve.api.wire.sending import Events, Gone, plain, refused
from . import curves
from .mechanisms import Drawn, drawn, kinds
from .page import page
from .scenes import Given
from .studio import Forgotten, Studio

T = TypeVar("T")
Answering: TypeAlias = Callable[["Application", Request], Awaitable[Response]]

BODY, ARRIVING = 1 << 25, 60.0  # bytes of a request (an image in base64), and seconds in which they arrive
HEADERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",  # the token is in the address
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
}


class Application:
    """Serves a studio (ASGI)."""

    def __init__(self, studio: Studio, token: str, log: Log | None = None) -> None:
        self.studio, self._token, self._log = studio, token, log or Log(quiet=True)
        self._guard = Guard.of(Keys({}), "127.0.0.1")
        self._worker = ThreadPoolExecutor(1, "studio")  # torch's modes and seeds are those of a process or a thread

    async def work(self, what: Callable[..., T], *given: Any) -> T:
        """The result of what a model is asked: one after the other, off the loop that answers."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, what, *given)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        try:
            response = await self._answered(request)
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            await response(scope, receive, send)
        except Gone:
            return

    async def _answered(self, request: Request) -> Response:
        try:
            self._guard.admit(request, open=True)
            return await self._route(request)(self, request)
        except Gone:
            raise
        except Forgotten as error:
            return refused(Refusal(410, str(error), code="forgotten"))
        except HeedError as error:
            return refused(refusal_of(error))
        except Exception as error:
            self._log.failure("studio", error)
            return refused(Refusal(500, f"the studio failed: {type(error).__name__}", code="internal"))

    def _route(self, request: Request) -> Answering:
        first, _, rest = request.scope["path"].lstrip("/").partition("/")
        if not hmac.compare_digest(first.encode(), self._token.encode()):
            raise Refusal(404, "there is nothing here; open the address that `heed studio` printed", code="not_found")
        found = ROUTES.get((request.method, rest))
        if found is None:
            raise Refusal(404, "there is no such path in the studio", code="not_found")
        return found


async def _page(app: Application, request: Request) -> Response:
    text, rules = page()
    return Response(text, headers={"content-security-policy": rules}, media_type="text/html")


async def _opened(app: Application, request: Request) -> Response:
    """What there is to look at."""
    return plain({"models": list(app.studio.sources), "runs": list(app.studio.runs)})


async def _model(app: Application, request: Request) -> Response:
    name = _word(request, "model")
    return plain(await app.work(app.studio.told, name))


async def _read(app: Application, request: Request) -> Response:
    data = await read_json(request, BODY, ARRIVING)
    name = data.pop("model", None)
    if not isinstance(name, str):
        raise Refusal(400, "model is missing: name one of those that are open", "model")
    return plain(await app.work(app.studio.read, name, typed(Given, data)))


async def _thumbnails(app: Application, request: Request) -> Response:
    found = await app.work(app.studio.thumbnails, _word(request, "id"), _word(request, "part"))
    return _bytes(found)


async def _map(app: Application, request: Request) -> Response:
    return _bytes(await app.work(app.studio.map, _word(request, "id"), *_at(request)))


async def _tile(app: Application, request: Request) -> Response:
    at = _word(request, "id"), _at(request), _number(request, "row"), _number(request, "column")
    return _bytes(await app.work(app.studio.tile, *at))


async def _exact(app: Application, request: Request) -> Response:
    at = _word(request, "id"), _at(request), _number(request, "row"), _number(request, "column")
    return plain(await app.work(app.studio.exact, *at))


async def _table(app: Application, request: Request) -> Response:
    text = await app.work(app.studio.table, _word(request, "id"), *_at(request))
    headers = {"content-disposition": 'attachment; filename="map.csv"'}
    return Response(text, headers=headers, media_type="text/csv")


async def _alike(app: Application, request: Request) -> Response:
    at = _word(request, "id"), _word(request, "part"), _number(request, "layer"), _number(request, "head")
    return plain(await app.work(app.studio.alike, *at))


async def _influence(app: Application, request: Request) -> Response:
    exact = request.query_params.get("exact") == "1"
    at = _word(request, "id"), _word(request, "part"), _number(request, "layer")
    return _bytes(await app.work(lambda: app.studio.influence(*at, exact=exact)))


async def _steps(app: Application, request: Request) -> Response:
    at = _word(request, "id"), _word(request, "part"), _number(request, "layer")
    head, token = _number(request, "head"), _number(request, "token")
    return plain(await app.work(app.studio.steps, *at, head, token))


async def _about(app: Application, request: Request) -> Response:
    at = _word(request, "id"), _word(request, "part"), _number(request, "layer")
    return plain(await app.work(app.studio.about, *at))


async def _cost(app: Application, request: Request) -> Response:
    return plain(await app.work(app.studio.cost, _word(request, "model")))


async def _next(app: Application, request: Request) -> Response:
    return plain(await app.work(app.studio.next, _word(request, "id"), _number(request, "place")))


async def _kinds(app: Application, request: Request) -> Response:
    return plain(await asyncio.to_thread(kinds))


async def _drawn(app: Application, request: Request) -> Response:
    asked = typed(Drawn, await read_json(request, BODY, ARRIVING))
    return _json(await app.work(drawn, asked))


async def _runs(app: Application, request: Request) -> Response:
    return _json(await asyncio.to_thread(curves.told, dict(app.studio.runs)))


async def _news(app: Application, request: Request) -> Response:
    given = [part.rpartition(":") for part in request.query_params.get("seen", "").split(",") if ":" in part]
    seen = {name: int(count) for name, _, count in given if count.isdecimal() and len(count) < 10}
    return Events(curves.news(dict(app.studio.runs), seen))


ROUTES: dict[tuple[str, str], Answering] = {
    ("GET", ""): _page,
    ("GET", "api/opened"): _opened,
    ("GET", "api/model"): _model,
    ("POST", "api/read"): _read,
    ("GET", "api/thumbnails"): _thumbnails,
    ("GET", "api/map"): _map,
    ("GET", "api/tile"): _tile,
    ("GET", "api/exact"): _exact,
    ("GET", "api/table.csv"): _table,
    ("GET", "api/alike"): _alike,
    ("GET", "api/influence"): _influence,
    ("GET", "api/steps"): _steps,
    ("GET", "api/about"): _about,
    ("GET", "api/cost"): _cost,
    ("GET", "api/next"): _next,
    ("GET", "api/kinds"): _kinds,
    ("POST", "api/drawn"): _drawn,
    ("GET", "api/runs"): _runs,
    ("GET", "api/news"): _news,
}


def _at(request: Request) -> tuple[str, int, str]:
    """Which map: of a part, a layer and a head."""
    return _word(request, "part"), _number(request, "layer"), _word(request, "head")


def _word(request: Request, name: str) -> str:
    found = request.query_params.get(name)
    if found is None:
        raise Refusal(400, f"{name} is missing", name)
    return found


def _number(request: Request, name: str) -> int:
    word = _word(request, name)
    if not (word.isdecimal() and len(word) < 10):
        raise Refusal(400, f"{name} must be a whole number of 0 or more, not {word[:20]!r}", name)
    return int(word)


def _bytes(raw: bytes) -> Response:
    return Response(raw, media_type="application/octet-stream")


def _json(data: Any) -> Response:
    """JSON in which what is no number is null: a metric may be undefined."""
    return plain(json.loads(json.dumps(data), parse_constant=lambda _: None))
