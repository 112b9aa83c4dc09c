"""Responses: JSON, and streams of events, which end with the client that reads them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .refusal import Refusal

T = TypeVar("T")

PATIENCE = 30.0  # seconds that a client may take to read what lies ready for it
ABORT = "abort"  # in the state of a connection: what ends it, whatever is still to be sent
DONE = "data: [DONE]\n\n"
WAITING = ": waiting\n\n"  # a comment, which clients pass over


class Gone(Exception):
    """The client has left."""


def told(body: BaseModel, status: int = 200) -> Response:
    """A typed body as JSON."""
    return Response(body.model_dump_json(), status, media_type="application/json")


def event(body: BaseModel) -> str:
    """A typed body as an event of a stream."""
    return f"data: {body.model_dump_json()}\n\n"


async def while_there(request: Request, work: Awaitable[T]) -> T:
    """The result of the work, which is given up if the client goes away first."""
    doing = asyncio.ensure_future(work)
    await _first(doing, request.receive)
    return doing.result()


class Events(Response):
    """A stream of events (SSE). A client that leaves, or does not read for too long, ends it, and what makes it.

    `done`: what its end is told by.
    """

    media_type = "text/event-stream"

    def __init__(self, source: AsyncGenerator[str, None], patience: float = PATIENCE, *, done: str = DONE) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._source, self._patience, self._done = source, patience, done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        doing = asyncio.ensure_future(self._sent(send))
        await _first(doing, receive)
        try:
            doing.result()
        except TimeoutError:
            abort = scope.get("state", {}).get(ABORT)
            if abort is not None:
                abort()  # what lies ready for it would be kept until it reads
            raise Gone from None

    async def _sent(self, send: Send) -> None:
        async with aclosing(self._source):
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for piece in self._source:
                await self._one(send, piece, more=True)
            await self._one(send, self._done, more=False)

    async def _one(self, send: Send, piece: str, *, more: bool) -> None:
        message = {"type": "http.response.body", "body": piece.encode(), "more_body": more}
        async with asyncio.timeout(self._patience):
            await send(message)


async def _first(doing: asyncio.Future[Any], receive: Receive) -> None:
    """Wait until it is done, which ends when the client leaves first."""
    leaving = asyncio.ensure_future(_left(receive))
    tasks: list[asyncio.Future[Any]] = [doing, leaving]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise Gone
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


def refused(refusal: Refusal) -> Response:
    """A refusal as a response."""
    return plain(refusal.data(), refusal.status, refusal.headers)


def plain(data: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Plain data as JSON."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False).encode(errors="replace")  # half a surrogate is ?
    return Response(text, status, headers, media_type="application/json")
