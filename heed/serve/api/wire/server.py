"""The HTTP server around the application: uvicorn, with what it lacks.

Connections that send no request, or one header per minute, are closed. SIGTERM or Ctrl-C drains: nothing new is taken,
what was begun is finished; a second one ends at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ....core.errors import InputError
from .sending import ABORT

CONNECTIONS = 4096  # at the same time; further ones are told to come again
HEADERS = 1 << 15  # bytes of a request's head
HEAD, IDLE = 10, 30  # seconds in which a head must be there, and for which a connection is kept between requests


class Patient(H11Protocol):
    """A connection that is closed if the head of a request does not arrive in time, however slowly it comes."""

    head: float = HEAD
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its parent has it
        super().connection_made(transport)
        self.app_state = {**self.app_state, ABORT: transport.abort}
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._asked():
            self._stop_waiting()
        elif self._waiting is None and not self.transport.is_closing():
            self._wait()  # the first bytes of the next request

    def _asked(self) -> bool:
        cycle: Any = self.cycle  # None before the first request, whatever its annotation says
        return cycle is not None and not cycle.response_complete

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.head, self._late)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _late(self) -> None:
        self._waiting = None
        if not self._asked():
            self.transport.close()


class Server(uvicorn.Server):
    """Ends by signals in two steps, and then returns: an end that was asked for is no failure."""

    def __init__(self, config: uvicorn.Config, draining: Callable[[], None]) -> None:
        super().__init__(config)
        self._draining = draining

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
            return
        self.should_exit = True
        self._draining()


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there, or an error that says why not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host.strip("[]"), port))
        found.listen(1024)
    except (OSError, OverflowError) as error:
        found.close()
        why = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"cannot listen at {host}, port {port}: {why}; name another with --host or --port") from None
    return found


def run(app: Any, place: socket.socket, draining: Callable[[], None], patience: float) -> None:
    """Serve until a signal ends it; running requests have so many seconds then."""
    _many_files()
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
    server_of(app, draining, patience=patience).run(sockets=[place])


def server_of(app: Any, draining: Callable[[], None], *, head: float = HEAD, patience: float | None = None) -> Server:
    """A server that is not running yet."""

    class Connection(Patient):
        """With these seconds."""

    Connection.head = head
    config = uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,  # our own log tells; uvicorn's would hold what strangers send
        server_header=False,
        h11_max_incomplete_event_size=HEADERS,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=None if patience is None else math.ceil(patience),
        proxy_headers=False,
    )
    return Server(config, draining)


def _many_files() -> None:
    """As many open files as the system allows: each connection is one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    with suppress(OSError, ValueError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
