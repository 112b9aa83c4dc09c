"""The body of a request, read within bounds: bytes, seconds, depth, numbers that are numbers."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from .refusal import Refusal

QUICK = 1 << 16  # bytes that are parsed at once; more of them on a thread, so that no other request waits


async def read_json(request: Request, most: int, seconds: float) -> dict[str, Any]:
    """The JSON object that a request brings."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # A page of another site can post a form or plain text without asking, JSON it cannot.
        raise Refusal(415, f"the content type is {kind[:80]!r}; send application/json")
    try:
        raw = await asyncio.wait_for(read_bytes(request, most), seconds)
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {seconds:g} seconds") from None
    except ClientDisconnect:
        raise Refusal(400, "the connection was closed before the body had arrived") from None
    return parsed(raw) if len(raw) <= QUICK else await asyncio.to_thread(parsed, raw)


async def read_bytes(request: Request, most: int) -> bytes:
    """All of a body, which may have `most` bytes."""
    told = request.headers.get("content-length", "0")
    if told.isdecimal() and int(told[:20]) > most:
        raise _too_large(most)
    raw = bytearray()
    async for piece in request.stream():
        raw += piece
        if len(raw) > most:
            raise _too_large(most)
    return bytes(raw)


def parsed(raw: bytes) -> dict[str, Any]:
    """An object. Nesting is bounded by the parser; NaN and Infinity are no JSON; null is the same as leaving out."""
    try:
        data = from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise Refusal(400, f"the body is not valid JSON: {error}", code="invalid_json") from None
    if not isinstance(data, dict):
        raise Refusal(400, f"the body is a JSON {type(data).__name__}; an object is needed", code="invalid_json")
    return {name: value for name, value in data.items() if value is not None}


def _too_large(most: int) -> Refusal:
    # The rest of the body is not read, so the connection cannot go on.
    return Refusal(
        413, f"the body has more than {most:,} bytes", code="body_too_large", headers={"connection": "close"}
    )
