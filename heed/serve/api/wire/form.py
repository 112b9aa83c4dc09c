"""The body of a request that brings a file (multipart/form-data), read within bounds: bytes, seconds, parts, heads."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from starlette.requests import ClientDisconnect, Request

from .body import read_bytes
from .refusal import Refusal

PARTS, HEAD, FIELD = 32, 2048, 4096  # of a form: parts, bytes of the head of one, bytes of a field that is no file
BOUNDARY = re.compile(r'boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
NAME = re.compile(rb'[;\s]name="([^"\r\n]{1,64})"', re.IGNORECASE)
FILE = re.compile(rb"[;\s]filename\*?=", re.IGNORECASE)


async def read_form(request: Request, most: int, seconds: float) -> dict[str, Any]:
    """The fields of a form: texts, lists of texts where a name ends in [], bytes of files. What a file is called is
    not looked at."""
    kind = request.headers.get("content-type", "")
    boundary = BOUNDARY.search(kind)
    if kind.partition(";")[0].strip().lower() != "multipart/form-data" or boundary is None:
        raise Refusal(415, f"the content type is {kind[:80]!r}; send multipart/form-data with a boundary")
    try:
        raw = await asyncio.wait_for(read_bytes(request, most), seconds)
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {seconds:g} seconds") from None
    except ClientDisconnect:
        raise Refusal(400, "the connection was closed before the body had arrived") from None
    return await asyncio.to_thread(fields, raw, (boundary[1] or boundary[2]).encode("latin-1", "replace"))


def fields(raw: bytes, boundary: bytes) -> dict[str, Any]:
    """The parts of a body between boundaries, each a head, an empty line and what it holds."""
    pieces = (b"\r\n" + raw).split(b"\r\n--" + boundary, PARTS + 2)
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        many = len(pieces) > PARTS + 2
        raise _wrong(f"more than {PARTS} fields" if many else "the last boundary is missing")
    found: dict[str, Any] = {}
    for piece in pieces[1:-1]:
        head, empty, held = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        name = NAME.search(head)
        if not empty or len(head) > HEAD or name is None:
            raise _wrong("a field has no name")
        _put(found, name[1].decode("utf-8", "replace"), held, file=FILE.search(head) is not None)
    return found


def _put(found: dict[str, Any], name: str, held: bytes, *, file: bool) -> None:
    if not file and len(held) > FIELD:
        raise Refusal(400, f"{name} has {len(held):,} bytes; a field that is no file has at most {FIELD:,}", name)
    try:
        value: Any = held if file else held.decode()
    except UnicodeDecodeError:
        raise Refusal(400, f"{name} is not UTF-8", name, code="invalid_form") from None
    if name.endswith("[]"):
        found.setdefault(name, []).append(value)
    elif name in found:
        raise Refusal(400, f"{name} is there twice", name, code="invalid_form")
    else:
        found[name] = value


def _wrong(what: str) -> Refusal:
    return Refusal(400, f"the body is not a valid form: {what}", code="invalid_form")
