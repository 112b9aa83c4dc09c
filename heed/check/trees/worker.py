"""The process that checks targets for another, which starts it (`pool.py`).

Each line of its input is a job, each line of its output an answer. It has imported torch and heed; every job runs in a
fork of it, so that nothing that a target does to its process meets the next, and a target that hangs or crashes is
ended alone. Where there are no forks it does one job and ends, and another is started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from time import monotonic
from typing import IO, Any, NoReturn

from ..foreign.contain.clock import Clock
from ..reports.survey import Result
from .job import Options, as_line, checked

FORKS = sys.platform != "win32"
GRACE = 5.0  # seconds beyond the time limit until a target that does not hear of it is ended


def main() -> None:
    answers = _private()
    if FORKS:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks; it ends this one
    for line in sys.stdin.buffer:
        job = json.loads(line)
        answer = _forked(job) if FORKS else done(job)
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()
        if not FORKS:
            return


def _private() -> IO[bytes]:
    """The stream of answers, which nothing that a target prints can reach."""
    own = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    return own


def done(job: dict[str, Any]) -> dict[str, Any]:
    """The answer to a job."""
    sys.path[:] = job["path"]  # what the process that asks can import, this can, too
    return as_line(checked(job["target"], job["target"], Options(**job["options"])))


def _forked(job: dict[str, Any]) -> dict[str, Any]:
    """The answer of a fork, or what became of it."""
    begun = monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(job, writing)
    os.close(writing)
    clock, limit = Clock(child), job["options"]["timeout"] + GRACE
    answer = _received(reading, clock, limit)
    late = clock.seconds > limit
    os.close(reading)
    with contextlib.suppress(ProcessLookupError):  # also what the target has started and left behind
        os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)  # before it had a group
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if answer is None:
        problem = _ended(code, job["options"]["timeout"], late=late)
        return as_line(Result(job["target"], problem=problem, seconds=monotonic() - begun))
    return answer


def _child(job: dict[str, Any], writing: int) -> NoReturn:
    """The job, and nothing of what the parent would do after it."""
    try:
        os.setsid()  # a group of its own, so that all of it can be ended
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(json.dumps(done(job)).encode())
    finally:
        os._exit(0)


def _received(reading: int, clock: Clock, limit: float) -> dict[str, Any] | None:
    """The answer of the child; None if it ends without one, takes too long, or nobody waits for it any more."""
    data = b""
    while (left := limit - clock.seconds) > 0:
        ready, _, _ = select.select([reading, 0], [], [], left)
        if reading not in ready:
            if ready:  # nothing is asked while a job is done: it is the end of the input
                return None
            continue
        piece = os.read(reading, 1 << 16)
        if not piece:
            break
        data += piece
    try:
        found: dict[str, Any] = json.loads(data)
    except ValueError:
        return None
    return found


def _ended(code: int, seconds: float, *, late: bool) -> str:
    if late:
        return f"the target was not done after {seconds:g} s and did not stop; give it more time with --timeout"
    if code < 0:
        return f"the target's process was ended by {signal.Signals(-code).name}: its code, or a library of it, crashed"
    return "the target's process ended in the middle of the check: its code leaves the process"
