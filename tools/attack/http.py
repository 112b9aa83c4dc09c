"""Requests as a server gets them: a stranger's head and body, after which a good one must be answered as before."""

from __future__ import annotations

import asyncio
import json
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

PATIENCE = 300  # seconds by the clock: work has a limit of its own
AFTER = {"model": "chain", "prompt": "the", "max_tokens": 3, "temperature": 0}
HEAD = {"method": "POST", "path": "/v1/completions", "headers": {"host": "127.0.0.1"}}
KIND = ("content-type", "application/json")
WHOLE = {200, *range(400, 500), 503}  # a refusal is an answer; 500 is a failure of the server


def request(folder: Path, out: Path, draw: Random) -> None:
    """One request to a server of these models, then a good one, which must be answered as it was before."""
    import heed
    from heed.serve import Engine, Limits
    from heed.serve.api.app import Application
    from heed.serve.api.service import Service
    from heed.serve.api.settings import HttpLimits
    from heed.serve.api.wire.guard import Guard, Keys
    from heed.serve.api.wire.log import Log

    models: dict[str, Any] = {name: heed.load(folder / name) for name in ("chain", "words")}
    head, body = _head(folder / "head.json"), _bytes(folder / "body.json")
    with Engine(models, Limits(memory=1 << 26, rows=4)) as engine:
        guard = Guard.of(Keys({}), "127.0.0.1")
        service = Service(engine, guard, "0.0.0", HttpLimits(body=1 << 20, answering=60), log=Log(StringIO()))
        try:
            before, status, after = asyncio.run(_three(Application(service), head, body, draw))
        finally:
            service.close()
            for pool in (service._templates, service._texts):
                pool.shutdown()
    assert status in WHOLE, f"status {status}"
    assert before == after, "another request changed the answer to this one"


async def _three(app: Any, head: dict[str, Any], body: bytes, draw: Random) -> tuple[str, int, str]:
    good = json.dumps(AFTER).encode()
    own = {**HEAD, "headers": dict([*HEAD["headers"].items(), KIND])}  # type: ignore[attr-defined]
    _, before = await _answered(app, own, good, Random(0))
    status, _ = await _answered(app, head, body, draw)
    _, after = await _answered(app, own, good, Random(0))
    return _text(before), status, _text(after)


def _text(data: bytes) -> str:
    return str(json.loads(data)["choices"][0]["text"])


async def _answered(app: Any, head: dict[str, Any], body: bytes, draw: Random) -> tuple[int, bytes]:
    """The status and the bytes that an ASGI server would send. Bodies come in pieces; some clients leave early."""
    cuts = sorted(draw.randrange(len(body) + 1) for _ in range(draw.choice((0, 0, 1, 3))))
    pieces = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    leaves = draw.random() < 0.1
    statuses, sent, done = list[int](), list[bytes](), asyncio.Event()

    async def receive() -> dict[str, Any]:
        if pieces:
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}
        if not leaves:
            await done.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])
        else:
            sent.append(message["body"])

    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in head["headers"].items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "query_string": b"",
        "method": head["method"],
        "path": head["path"],
        "raw_path": head["path"].encode("utf-8", "replace"),
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
        "state": {},
    }
    async with asyncio.timeout(PATIENCE):
        await app(scope, receive, send)
    done.set()
    if leaves and not statuses:
        return 499, b""  # nobody is there to be told
    assert len(statuses) == 1, f"{len(statuses)} responses"
    return statuses[0], b"".join(sent)


def _head(path: Path) -> dict[str, Any]:
    """What h11 lets through of a head: texts of latin-1 without line breaks."""
    try:
        given = json.loads(_bytes(path))
    except (ValueError, RecursionError):
        given = None
    given = given if isinstance(given, dict) else {}
    headers = given.get("headers")
    told = headers.items() if isinstance(headers, dict) else [*HEAD["headers"].items(), KIND]  # type: ignore[attr-defined]
    kept = {name: value for name, value in told if isinstance(value, str) and _plain(name) and _plain(value)}
    lines = {key: given[key] for key in ("method", "path") if isinstance(given.get(key), str) and given[key]}
    return {**HEAD, **lines, "headers": kept}


def _plain(text: str) -> bool:
    return all(" " <= letter <= "\xff" and letter != "\x7f" for letter in text) and len(text) < 1 << 15


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
