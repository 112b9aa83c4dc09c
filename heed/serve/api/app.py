"""The application: a table of routes, and what every request goes through. A path that is not in it is denied."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from ...core.config import Config
from ...core.errors import HeedError
from ..answer import RequestFailed
from .exchange import Exchange
from .page import home
from .routes import other
from .routes.chat import chat
from .routes.completions import complete
from .routes.embeddings import embed
from .routes.hearing import transcribe
from .routes.judging import classify, rerank
from .routes.responding import respond
from .service import Service
from .shapes.conversation import ChatRequest, TokenizeRequest
from .shapes.hearing import Transcription, TranscriptionRequest
from .shapes.judging import Classes, ClassifyRequest, Ranking, RerankRequest
from .shapes.requests import CompletionRequest, DetokenizeRequest, EmbeddingRequest, without_neutral
from .shapes.responding import Answered, ResponsesRequest
from .shapes.responses import (
    ChatCompletion,
    Completion,
    DetokenizeResponse,
    EmbeddingList,
    ModelCard,
    ModelList,
    Status,
    TokenizeResponse,
)
from .wire.body import read_json
from .wire.form import read_form
from .wire.refusal import Refusal, refusal_of, typed
from .wire.sending import Gone, refused

Answering: TypeAlias = Callable[[Exchange[Any]], Awaitable[Response]]

LEFT = 499  # told to the log when the client has gone, as nginx does
HEADERS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
MODEL = "/v1/models/"  # what follows is the name of a model, which may have slashes in it


@dataclass(frozen=True)
class Route:
    """A path, what is asked there, and what is given."""

    method: str
    path: str
    answer: Answering
    summary: str
    gives: type[BaseModel] | str  # or a media type
    asks: type[Config] | None = None
    open: bool = False  # without a key
    form: bool = False  # it is asked by a form, which may hold a file, not by JSON


ROUTES = (
    Route("GET", "/", home, "A page to chat in.", "text/html"),
    Route("GET", "/health", other.health, "Whether the engine lives.", Status, open=True),
    Route("GET", "/ready", other.ready, "Whether requests are taken.", Status),
    Route("GET", "/metrics", other.metrics, "Counters for Prometheus.", "text/plain"),
    Route("GET", "/openapi.json", other.openapi, "This description.", "application/json"),
    Route("GET", "/v1/models", other.models, "The models that are served.", ModelList),
    Route("GET", "/v1/models/{model}", other.model, "One of them.", ModelCard),
    Route("POST", "/v1/completions", complete, "Continue a text, or score it.", Completion, CompletionRequest),
    Route("POST", "/v1/chat/completions", chat, "Continue a conversation.", ChatCompletion, ChatRequest),
    Route("POST", "/v1/responses", respond, "Continue a conversation, told in items.", Answered, ResponsesRequest),
    Route("POST", "/v1/embeddings", embed, "What an encoder makes of texts.", EmbeddingList, EmbeddingRequest),
    Route("POST", "/v1/rerank", rerank, "Order documents by their relevance.", Ranking, RerankRequest),
    Route("POST", "/v1/classify", classify, "The classes of texts.", Classes, ClassifyRequest),
    Route(
        "POST",
        "/v1/audio/transcriptions",
        transcribe,
        "What is said in a sound.",
        Transcription,
        TranscriptionRequest,
        form=True,
    ),
    Route("POST", "/tokenize", other.tokenize, "The ids of a text.", TokenizeResponse, TokenizeRequest),
    Route("POST", "/detokenize", other.detokenize, "The text of ids.", DetokenizeResponse, DetokenizeRequest),
)


class Application:
    """Serves the routes (ASGI)."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._routes = {(route.method, route.path): route for route in ROUTES}
        self._paths = {route.path for route in ROUTES}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # neither websockets nor a lifespan
        self.service.metrics.open.inc()
        try:
            await _Passage(self, Request(scope, receive), send).go()
        finally:
            self.service.metrics.open.dec()

    def route(self, request: Request) -> Route:
        """The route of a request; decided by the path alone, letter by letter."""
        method, path = request.method, request.scope["path"]
        if path.startswith(MODEL) and len(path) > len(MODEL):
            request.scope["path_params"] = {"model": path[len(MODEL) :]}
            path = f"{MODEL}{{model}}"
        found = self._routes.get((method, path))
        if found is None and path in self._paths:
            allowed = ", ".join(sorted(one for one, known in self._routes if known == path))
            raise Refusal(405, f"{method[:20]} is not what this path is for: {allowed}", headers={"allow": allowed})
        if found is None:
            raise Refusal(404, "there is no such path; /openapi.json lists those there are", code="not_found")
        return found


class _Passage:
    """One request through the application, with what is told of it afterwards."""

    def __init__(self, app: Application, request: Request, send: Send) -> None:
        self._app, self._service, self._request, self._send = app, app.service, request, send
        self._id, self._begun = secrets.token_hex(8), time.perf_counter()
        self._status, self._path = 0, "-"
        self._exchange: Exchange[Any] | None = None

    async def go(self) -> None:
        """Answer it, whatever happens."""
        try:
            await self._respond(await self._answered())
        except Gone:
            self._status = LEFT
        except Exception as error:  # half a response was sent: nothing can be said any more
            self._service.log.failure(self._id, error)
            if not self._status:
                await self._respond(refused(Refusal(500, f"the server failed (request {self._id})", code="internal")))
        finally:
            self._ended()

    async def _answered(self) -> Response:
        try:
            return await self._handled()
        except (Gone, ExceptionGroup):
            raise
        except HeedError as error:
            self._note(error)
            return refused(refusal_of(error))
        except Exception as error:
            self._service.log.failure(self._id, error)
            return refused(Refusal(500, f"the server failed (request {self._id})", code="internal"))

    async def _handled(self) -> Response:
        guard, request = self._service.guard, self._request
        open_ = self._app._routes.get((request.method, request.scope["path"]))
        owner = guard.admit(request, open=open_ is not None and open_.open)  # before anything else is told
        route = self._app.route(request)
        self._path = route.path
        asked = None
        if route.asks is not None:
            bounds = self._service.bounds
            if route.form:
                data = await read_form(request, bounds.sound, bounds.arriving)
            else:
                data = await read_json(request, bounds.body, bounds.arriving)
            asked = typed(route.asks, without_neutral(data, route.asks.model_fields))
        self._exchange = Exchange(self._service, request, owner, asked)
        return await route.answer(self._exchange)

    def _note(self, error: HeedError | None) -> None:
        """A request that failed by no fault of its own is something that an operator wants to know."""
        if isinstance(error, RequestFailed):
            self._service.log.failure(self._id, error.__cause__ or error)

    async def _respond(self, response: Response) -> None:
        for name, value in {**HEADERS, "x-request-id": self._id}.items():
            response.headers.setdefault(name, value)
        await response(self._request.scope, self._request.receive, self._noted)

    async def _noted(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
        await self._send(message)

    def _ended(self) -> None:
        facts: dict[str, Any] = {}
        if self._exchange is not None:
            self._exchange.ended()
            self._note(self._exchange.failure)
            facts = {"owner": self._exchange.owner, **self._exchange.facts}
        self._service.metrics.requests.labels(self._path, str(self._status)).inc()
        seconds = round(time.perf_counter() - self._begun, 4)
        self._service.log.request(
            method=self._request.method, path=self._path, status=self._status, id=self._id, seconds=seconds, **facts
        )
