"""The page: one file with its script and style in it, built from studio/web; and what a browser may do with it."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_name("page.html")
RECORDED = '<script type="text/plain" id="recorded"></script>'  # where a static page keeps what a server would say


@cache
def page() -> tuple[bytes, str]:
    """The page and its content security policy: it runs what has these digests, and asks this server alone."""
    text = FILE.read_text(encoding="utf-8")

    def digest(tag: str) -> str:
        inside = text.rsplit(f"<{tag}>", 1)[1].split(f"</{tag}>", 1)[0]
        return base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()

    rules = [
        "default-src 'none'",
        f"script-src 'sha256-{digest('script')}'",
        f"style-src 'sha256-{digest('style')}'",
        "connect-src 'self'",
        "img-src 'self' data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
    return text.encode(), "; ".join(rules)


def static(answers: dict[str, bytes]) -> str:
    """The page as one file for the disk; inside is what a server would answer: paths, and answers in base64."""
    told = {path: base64.b64encode(answer).decode() for path, answer in answers.items()}
    raw = base64.b64encode(zlib.compress(json.dumps(told, separators=(",", ":")).encode(), 9)).decode()
    text = FILE.read_text(encoding="utf-8")
    assert text.count(RECORDED) == 1, "the page has no place for what is recorded; build it again: make web"
    return text.replace(RECORDED, RECORDED.replace("></", f">{raw}</"))
