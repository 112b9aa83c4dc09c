"""Crash chains: a work is struck again and again, at random moments, and goes on each time; nothing may be lost.

Strokes: SIGKILL after a random time or at a random file operation; a disk that is full from a random file operation
on, or for files of more than so many bytes, or really (a small tmpfs, where the system lets one be mounted); Ctrl-C
twice. After each, what must be there is looked at; in the end the result is compared with that of the work undisturbed.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

from .cell import CHANGES, WRITES, spare
from .works import SHARES, WORKS, Work

CHAIN = 8  # strokes until a work may end in peace
WORK = 60  # seconds of CPU time for a work that needs half of one
PATIENCE = 900.0  # seconds until a work that does nothing is given up: a busy machine lets it wait
STROKES = ("kill", "kill at a write", "full at a write", "full by size", "full disk", "Ctrl-C twice")
KILLS = STROKES[:2]
DONE, REFUSED, STOPPED = 0, 2, 130  # exit codes, as the command line has them


@dataclass
class Tally:
    """Strokes by work and kind; what was found wrong."""

    counts: Counter[str] = field(default_factory=Counter)  # "train/kill"
    chains: int = 0  # that ended with the same bytes
    problems: list[str] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        return {"strokes": dict(self.counts), "chains": self.chains, "problems": self.problems}

    def add(self, other: dict[str, Any]) -> None:
        self.counts.update(other["strokes"])
        self.chains += other["chains"]
        self.problems += other["problems"]

    @property
    def kills(self) -> int:
        return sum(count for name, count in self.counts.items() if name.partition("/")[2] in KILLS)


@dataclass(frozen=True)
class Undisturbed:
    """A work that was left alone."""

    place: Path
    seconds: float
    events: int  # file operations
    largest: int  # bytes of a file
    size: int  # bytes of all


class Strike:
    """In the process that works: counts its file operations and, at one of them, does what a stroke does."""

    def __init__(self, place: Path, at: int = -1, act: Callable[[str], None] = lambda event: None) -> None:
        self.root, self.at, self.act, self.seen = str(place), at, act, 0
        sys.addaudithook(self._heard)

    def _heard(self, event: str, given: tuple[Any, ...]) -> None:
        if event == "open":
            if not (isinstance(given[2], int) and given[2] & WRITES):
                return
        elif event not in CHANGES:
            return
        if isinstance(given[0], str | os.PathLike) and os.fspath(given[0]).startswith(self.root):
            self.seen += 1
            if 0 <= self.at < self.seen:
                self.act(event)


def _kill(event: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _full(event: str) -> None:
    if event in {"open", "os.mkdir"}:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# --- processes ---


def _forked(work: Callable[[], None], told: Path) -> int:
    """A process that does it; its exit code says how that went: DONE, REFUSED, STOPPED by Ctrl-C, or 1."""
    # A fork must not meet Ctrl-C in its parent's code.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid
    from heed.core.errors import HeedError

    code = STOPPED  # also if the second Ctrl-C comes while the first is dealt with, below
    try:
        spare(WORK)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        work()
        code = DONE
    except (HeedError, OSError) as error:
        code = REFUSED
        with suppress(OSError):
            told.write_text(str(error))
    except KeyboardInterrupt:
        pass
    except BaseException as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # else the second Ctrl-C would end the telling
        code = STOPPED if isinstance(error.__cause__, KeyboardInterrupt) else 1  # pydantic wraps it
        with suppress(OSError):
            told.write_text(traceback.format_exc())
    finally:
        os._exit(code)


def _ended(pid: int, deadline: float) -> int:
    """Its exit code, or minus the signal that ended it."""
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise RuntimeError(f"a work did not end within {PATIENCE:.0f} seconds")


def undisturbed(work: Work, place: Path) -> Undisturbed:
    """Do it once, in a process like those that are struck."""
    place.mkdir(parents=True)
    work.prepare(place)
    events, told, begun = place / ".events", place / ".told", time.monotonic()

    def counted() -> None:
        strike = Strike(place)
        work.go(place)
        events.write_text(str(strike.seen))

    code = _ended(_forked(counted, told), begun + PATIENCE)
    if code:
        raise RuntimeError(f"{work.name} fails undisturbed ({code}): {told.read_text() if told.exists() else ''}")
    seconds = time.monotonic() - begun
    count = int(events.read_text())
    events.unlink()
    sizes = [path.stat().st_size for path in place.rglob("*") if path.is_file()]
    return Undisturbed(place, seconds, count, max(sizes), sum(sizes))


# --- one chain ---


def chain(work: Work, whole: Undisturbed, place: Path, draw: Random, strokes: tuple[str, ...]) -> Tally:
    """Strike a work until it is done, or often enough; then let it end and compare."""
    tally, told = Tally(), place.with_name(f"{place.name}.told")
    mounted = "full disk" in strokes and draw.random() < 0.3
    if not mounted:
        strokes = tuple(stroke for stroke in strokes if stroke != "full disk")
    with _disk(place, mounted) as sized:
        work.prepare(place)
        for _ in range(CHAIN):
            stroke = draw.choice(strokes)
            code = _struck(work, whole, place, told, draw, stroke, sized)
            struck = _judge(tally, work, stroke, code, told)
            lost = _looked(lambda: work.lost(place, whole.place))
            if lost:
                tally.problems.append(f"{work.name}: lost after {stroke}: {lost}")
                return tally
            if not struck:
                break
        sized(None)
        code = _ended(_forked(lambda: work.go(place), told), time.monotonic() + PATIENCE)
        words = f"ends with {code}: {told.read_text() if told.exists() else ''}"
        wrong = words if code else _looked(lambda: work.differs(place, whole.place))
        if wrong:
            tally.problems.append(f"{work.name}: not the same in the end: {wrong}")
        else:
            tally.chains += 1
    return tally


def _struck(
    work: Work,
    whole: Undisturbed,
    place: Path,
    told: Path,
    draw: Random,
    stroke: str,
    sized: Callable[[int | None], None],
) -> int:
    """Go on with the work and strike it; its exit code."""
    at, moment = draw.randrange(max(1, whole.events)), draw.random() * whole.seconds

    def struck() -> None:
        if stroke in {"kill at a write", "full at a write"}:
            Strike(place, at, _kill if stroke.startswith("kill") else _full)
        elif stroke == "full by size":
            most = draw.randrange(whole.largest)
            resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        work.go(place)

    told.unlink(missing_ok=True)
    if stroke == "full disk":
        sized(draw.randrange(4096, whole.size))
    deadline = time.monotonic() + PATIENCE
    pid = _forked(struck, told)
    signals = {"kill": (signal.SIGKILL,), "Ctrl-C twice": (signal.SIGINT, signal.SIGINT)}.get(stroke, ())
    for number in signals:
        time.sleep(moment)
        with suppress(ProcessLookupError):
            os.kill(pid, number)
        moment = draw.random() * 0.1
    code = _ended(pid, deadline)
    if stroke == "full disk":
        sized(None)
    return code


ENDS = {  # how a work may end when it is struck; anything else is a fault, such as a refusal to go on after a kill
    **dict.fromkeys(KILLS, (DONE, -signal.SIGKILL)),
    **dict.fromkeys(STROKES[2:5], (DONE, REFUSED)),
    "Ctrl-C twice": (DONE, STOPPED, REFUSED),  # the last: torch and safetensors turn some of them into errors of theirs
}


def _judge(tally: Tally, work: Work, stroke: str, code: int, told: Path) -> bool:
    """Whether the work was interrupted."""
    if code not in ENDS[stroke]:
        words = told.read_text()[-1500:] if told.exists() else ""
        tally.problems.append(f"{work.name}: {stroke} ends with {code}: {words}")
    if code == DONE and stroke != "Ctrl-C twice":
        return False
    tally.counts[f"{work.name}/{stroke}"] += 1
    return True


def _looked(look: Callable[[], str]) -> str:
    try:
        return look()
    except Exception:
        return traceback.format_exc()[-1500:]


@contextmanager
def _disk(place: Path, mounted: bool) -> Iterator[Callable[[int | None], None]]:
    """The folder of a chain, on a disk of its own if asked; what it gives sets what is free there, None: plenty."""
    place.mkdir(parents=True)

    def sized(free: int | None) -> None:
        if mounted:
            _mount("-o", f"remount,size={shutil.disk_usage(place).used + (free or 1 << 30)}", str(place))

    if mounted:
        _mount("-t", "tmpfs", "-o", "size=1g", "none", str(place))
    try:
        yield sized
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)
        shutil.rmtree(place, ignore_errors=True)


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, capture_output=True)


def mountable(place: Path) -> bool:
    """Whether this process may mount disks of its own."""
    place.mkdir(parents=True, exist_ok=True)
    with suppress(OSError, subprocess.CalledProcessError):
        _mount("-t", "tmpfs", "-o", "size=1m", "none", str(place))
        subprocess.run(["umount", str(place)], check=True, capture_output=True)
        return True
    return False


# --- many chains ---


def crash(run: Path, place: Path, seed: int, kills: int, workers: int, tell: Callable[[str, float], None]) -> Tally:
    """Chains over all works until so many kills are done, with the other strokes among them."""
    strokes = (*KILLS * 3, *STROKES[2:4], *(["full disk"] if mountable(place / "disk") else []), STROKES[5])
    works = [kind(run) for kind in WORKS]
    wholes = {work.name: undisturbed(work, place / f"whole-{number}") for number, work in enumerate(works)}
    tally, pipes = Tally(), list[BinaryIO]()
    for number in range(workers):
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.close(reading)  # else it would be heard by itself, for ever
            for pipe in pipes:
                pipe.close()
            _driver(works, wholes, place / f"lane-{number}", Random(f"{seed}:{number}"), strokes, writing)
        os.close(writing)
        pipes.append(os.fdopen(reading, "rb"))
    try:
        while tally.kills < kills and not len(tally.problems) > 20:
            for pipe in pipes:
                line = pipe.readline()
                if not line:
                    raise RuntimeError("a process of the crash chains ended by itself; this is the tool's own fault")
                found = json.loads(line)
                tally.add(found)
                for problem in found["problems"]:  # at once: a long run may not come to its end
                    print(f"PROBLEM {problem}", file=sys.stderr)
            tell(f"{tally.kills:,} kills, {len(tally.problems)} problems", tally.kills / kills)
    finally:
        for pipe in pipes:
            pipe.close()  # the drivers end when nobody listens
        with suppress(ChildProcessError):
            while True:
                os.wait()
    return tally


def _driver(
    works: list[Work], wholes: dict[str, Undisturbed], place: Path, draw: Random, strokes: tuple[str, ...], pipe: int
) -> None:
    """Chain after chain, told line by line, until nobody listens."""
    code = 1
    try:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        number = 0
        while True:
            work = draw.choices(works, [SHARES[each.name] for each in works])[0]
            found = chain(work, wholes[work.name], place / f"chain-{number}", draw, strokes)
            os.write(pipe, json.dumps(found.plain()).encode() + b"\n")
            number += 1
    except BrokenPipeError:
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
