"""The chat page: one file with its script and style in it, which a browser may run nothing beside."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from starlette.responses import Response

from .exchange import Exchange
from .wire.refusal import Refusal


@cache
def _file() -> tuple[bytes, str]:
    """The page, and what a browser may do with it: run what has these digests, ask this server, nothing else."""
    text = Path(__file__).with_name("page.html").read_text(encoding="utf-8")

    def digest(tag: str) -> str:
        inside = text.split(f"<{tag}>", 1)[1].split(f"</{tag}>", 1)[0]
        return base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()

    rules = [
        "default-src 'none'",
        f"script-src 'sha256-{digest('script')}'",
        f"style-src 'sha256-{digest('style')}'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return text.encode(), "; ".join(rules)


async def home(exchange: Exchange[None]) -> Response:
    """The page, for browsers."""
    if exchange.request.headers.get("accept", "*/*").startswith("application/json"):
        raise Refusal(406, "this is a page for people; /openapi.json describes the server to machines")
    text, rules = _file()
    headers = {"content-security-policy": rules, "referrer-policy": "no-referrer", "x-frame-options": "DENY"}
    return Response(text, headers=headers, media_type="text/html")
