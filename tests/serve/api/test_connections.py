"""Clients that leave, do not read, send nothing or too slowly; and the end of a server."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.serve.api.serving import PATIENCE, Live, running, until
from tests.serve.api.solo import Solo

BODY = {"model": "chain", "prompt": " ", "temperature": 0, "max_tokens": 400, "ignore_eos": True}


def post(body: dict[str, Any]) -> bytes:
    raw = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(raw)}\r\n\r\n".encode() + raw


@pytest.mark.parametrize("stream", [True, False])
def test_who_leaves_ends_the_answer(live: Live, solo: Solo, stream: bool) -> None:
    solo.pause = 0.02
    with live.raw() as wire:
        wire.sendall(post({**BODY, "stream": stream, "n": 2}))
        until(lambda: solo.running == 2)
    until(lambda: len(solo.cancelled) == 2)
    until(lambda: solo.running == 0)
    until(lambda: any(line.get("status") in {499, 200} for line in live.lines()))


def test_who_leaves_before_the_first_event_ends_the_answer(live: Live, solo: Solo) -> None:
    solo.pause = 0.2
    with live.raw() as wire:
        wire.sendall(post({**BODY, "stream": True}))
        until(lambda: solo.asked)
    until(lambda: solo.cancelled)


def test_who_does_not_read_is_left(solo: Solo) -> None:
    with running(solo, reading=0.3) as live, live.raw() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        top = {"logprobs": 20, "n": 8, "prompt": [" "] * 16, "stream": True}
        wire.sendall(post({**BODY, **top}))  # some megabytes, more than the system holds for a connection
        until(lambda: any(line.get("status") == 499 for line in live.lines()))
        until(lambda: solo.running == 0)
        assert live.ask("/health")[0] == 200
        until(lambda: not live.server.server_state.connections)  # what lay ready for it is not kept


def test_heads_that_do_not_come_are_not_waited_for(solo: Solo) -> None:
    with running(solo, head=0.5) as live, live.raw() as silent, live.raw() as slow:
        begin = time.monotonic()
        slow.sendall(b"GET /health HTTP/1.1\r\n")
        slow.settimeout(0.1)
        ended = False
        while not ended:
            assert time.monotonic() - begin < PATIENCE, "one header after the other keeps a connection open"
            try:
                slow.sendall(b"X-A: b\r\n")
                ended = slow.recv(1) == b""
            except TimeoutError:
                continue
            except OSError:
                ended = True
        assert silent.recv(1) == b""
        assert live.ask("/health")[0] == 200


def test_a_body_that_does_not_come_is_not_waited_for(solo: Solo) -> None:
    with running(solo, arriving=0.3) as live, live.raw() as wire:
        wire.sendall(post(BODY)[:-5])
        assert wire.recv(100).startswith(b"HTTP/1.1 408")


def test_a_connection_serves_many_requests(solo: Solo) -> None:
    with running(solo, head=0.5) as live, live.raw() as wire:
        for _ in range(3):
            wire.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while b'"ok"}' not in answer:
                answer += wire.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200")
            time.sleep(0.4)


def test_idle_connections_do_not_hinder_others(live: Live) -> None:
    with ExitStack() as open_:
        for _ in range(400):
            open_.enter_context(live.raw())
        assert live.ask("/health")[0] == 200
        status, found, _ = live.ask("/v1/completions", {**BODY, "max_tokens": 2})
        assert (status, found["usage"]["completion_tokens"]) == (200, 2)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000,
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET http://evil.example/v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    ],
)
def test_what_is_no_request_is_no_harm(live: Live, raw: bytes) -> None:
    with live.raw() as wire:
        wire.sendall(raw)
        wire.shutdown(socket.SHUT_WR)
        answer = wire.recv(4096)
        assert not answer or re.match(rb"HTTP/1.1 4\d\d", answer), answer
    assert live.ask("/health")[0] == 200


# --- the end ---


@contextmanager
def served(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`heed serve` in a process of its own, and its port."""
    command = [sys.executable, "-m", "heed", "serve", str(folder), "--port", "0", "--threads", "1", *words]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
    assert child.stderr is not None
    try:
        told = ""
        for line in child.stderr:
            told += line
            if found := re.search(r"serving at http://127\.0\.0\.1:(\d+)", line):
                yield child, int(found[1])
                break
        else:
            raise AssertionError(told)
    finally:
        child.kill()
        child.wait(PATIENCE)
        child.stderr.close()


def test_a_signal_drains_and_a_second_one_ends(folder: Path) -> None:
    with served(folder, "--quiet") as (child, port), socket.create_connection(("127.0.0.1", port)) as wire:
        wire.settimeout(PATIENCE)
        wire.sendall(post({**BODY, "stream": True}))
        text = wire.recv(1024).decode()
        child.send_signal(signal.SIGTERM)
        while piece := wire.recv(65536):
            text += piece.decode()
        assert "[DONE]" in text, "what was begun is finished"
        assert child.wait(PATIENCE) == 0


def test_a_second_signal_ends_at_once(folder: Path) -> None:
    with served(folder) as (child, port), socket.create_connection(("127.0.0.1", port)) as wire:
        wire.sendall(post({**BODY, "prompt": [" "] * 100, "stream": True}))
        wire.recv(1024)
        begin = time.monotonic()
        child.send_signal(signal.SIGINT)
        time.sleep(0.3)
        child.send_signal(signal.SIGTERM)
        child.wait(PATIENCE)
        assert time.monotonic() - begin < 20
