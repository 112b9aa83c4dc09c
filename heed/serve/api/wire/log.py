"""One line of JSON per request and event, on the error stream. Prompts, answers, keys and queries are never in it."""

from __future__ import annotations

import json
import sys
import time
import traceback
from typing import Any, TextIO

CUT = 200  # characters of a text that strangers send


class Log:
    """Writes the lines. `quiet`: of requests that were answered nothing is told."""

    def __init__(self, out: TextIO | None = None, *, quiet: bool = False) -> None:
        self._out, self._quiet = out, quiet

    def event(self, what: str, **facts: Any) -> None:
        """Something that an operator wants to know."""
        told = {"time": _now(), "event": what, **facts}
        print(json.dumps(told, ensure_ascii=True), file=self._out or sys.stderr, flush=True)

    def request(self, *, method: str, path: str, status: int, **facts: Any) -> None:
        """A request that was answered; a path that is no route of the server is cut short."""
        if not self._quiet or status >= 500:
            self.event("request", method=method[:CUT], path=path[:CUT], status=status, **facts)

    def failure(self, request: str, error: BaseException) -> None:
        """Something that should not have happened: its kind and its places. Its message may hold what a user wrote."""
        places = [
            f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(error.__traceback__)
        ]
        self.event("failure", request=request, kind=type(error).__name__, places=places[-12:])


def _now() -> str:
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03}Z"
