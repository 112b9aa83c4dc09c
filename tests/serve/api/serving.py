"""A server on this machine, in a thread, and a bare client for what well-behaved clients do not do."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from heed.serve.api.app import Application
from heed.serve.api.service import Service
from heed.serve.api.settings import HttpLimits
from heed.serve.api.wire.guard import Guard, Keys, _digest
from heed.serve.api.wire.log import Log
from heed.serve.api.wire.server import Server, listening, server_of

PATIENCE = 60.0  # seconds that a busy machine may take
KEY, OTHER = "sk-0123456789abcdef", "sk-fedcba9876543210"


@dataclass
class Live:
    """A server that runs."""

    port: int
    service: Service
    log: io.StringIO
    server: Server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, path: str, body: Any = None, *, headers: Mapping[str, str] | None = None, method: str | None = None
    ) -> tuple[int, Any, HTTPResponse]:
        """One request: its status, its JSON (or text), and the response."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            given = dict(headers or {})
            raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            if raw is not None:
                given.setdefault("Content-Type", "application/json")
            connection.request(method or ("GET" if raw is None else "POST"), path, raw, given)
            response = connection.getresponse()
            text = response.read().decode()
            json_ = (response.headers.get("content-type") or "").startswith("application/json")
            return response.status, json.loads(text) if json_ else text, response
        finally:
            connection.close()

    def raw(self) -> socket.socket:
        """A connection for whatever is no HTTP."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def lines(self) -> list[dict[str, Any]]:
        """The log."""
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


def until(what: Callable[[], object]) -> None:
    """Wait for it."""
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.01)


def events(text: str) -> list[dict[str, Any]]:
    """The events of a stream, which must end as streams end."""
    parts = [part for part in text.split("\n\n") if part and not part.startswith(":")]
    assert parts[-1] == "data: [DONE]", parts[-1:]
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-1]]


@contextmanager
def running(
    engine: Any,
    *,
    keys: tuple[str, ...] = (),
    head: float = 10,
    parents: Mapping[str, str] | None = None,
    **limits: Any,
) -> Iterator[Live]:
    """A server around an engine, on a port of its own, until the block ends."""
    log = io.StringIO()
    guard = Guard.of(Keys({_digest(key): key[-4:] for key in keys}), "127.0.0.1")
    service = Service(engine, guard, "0.0.0", HttpLimits(**limits), log=Log(log), parents=parents or {})
    with listening("127.0.0.1", 0) as place:
        server = server_of(Application(service), lambda: None, head=head)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
        thread.start()
        try:
            yield Live(place.getsockname()[1], service, log, server)
        finally:
            server.should_exit = server.force_exit = True
            thread.join(20)
            service.close()
            assert not thread.is_alive(), "the server does not end"
