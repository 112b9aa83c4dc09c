"""A process that does what strangers' files ask for: in bounded memory, and ended when it takes too long."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import InputError

STARTING = 30  # seconds until the process must be ready, on a busy machine
ANSWER = 1 << 26  # bytes of an answer; a chat has four million characters, each of up to 12 bytes in JSON


class Limits(NamedTuple):
    """What a process may take."""

    memory: int  # bytes
    seconds: int


class Worker:
    """The process, while there is one. One request at a time; after a failure the next one gets a fresh process.

    `script`: a file beside this one, run by itself with `modules` and nothing else to import.
    """

    def __init__(self, script: str, modules: Sequence[str], limits: Callable[[], Limits]) -> None:
        self._script, self._modules, self._limits = script, modules, limits
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None
        self._owner = 0  # a fork has the other process's pipes, and must not use them

    def ask(self, request: str) -> dict[str, Any]:
        """The answer to a request in JSON."""
        with self._lock:
            if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
                self._end()
                self._process = self._start()
            process, self._process = self._process, None  # whatever interrupts this, half an answer is never read
            seconds = self._limits().seconds
            answer = _exchange(process, request, seconds)
            if answer is None:
                self._end()
                return {"error": f"it took more than {seconds} seconds, or more memory than there is"}
            self._process = process
            return answer

    def _start(self) -> subprocess.Popen[bytes]:
        spec = [importlib.util.find_spec(name) for name in self._modules]
        places = {str(Path(one.origin).parents[1]) for one in spec if one is not None and one.origin}
        most = self._limits()
        limits = [json.dumps(sorted(places)), str(most.memory), str(most.seconds)]
        kept = {name: os.environ[name] for name in ("TZ", "SYSTEMROOT") if name in os.environ}  # nothing to spy on
        # Isolated: neither the environment nor the folder it is started in decide what it imports.
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name(self._script)), *limits]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=kept
            )
        except OSError as error:
            raise InputError(f"the process for {self._script} does not start: {error}") from None
        self._owner = os.getpid()
        self._end = weakref.finalize(self, _end, process, self._owner)
        if _exchange(process, "", STARTING) is None:
            self._end()
            tried = f"{sys.executable} -c 'import {self._modules[0]}'"
            raise InputError(f"the process for {self._script} does not start; try: {tried}")
        return process


def _exchange(process: subprocess.Popen[bytes], request: str, seconds: float) -> dict[str, Any] | None:
    """Send a request, if any, and wait for a line; None if the process ends before, by itself or by force."""
    assert process.stdin is not None
    assert process.stdout is not None
    late = threading.Event()

    def stop() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        if request:
            process.stdin.write(request.encode() + b"\n")
            process.stdin.flush()
        answer = json.loads(process.stdout.readline(ANSWER))
    except (OSError, ValueError):
        return None
    finally:
        timer.cancel()
        timer.join()
    return None if late.is_set() or not isinstance(answer, dict) else answer


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if owner == os.getpid():
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
