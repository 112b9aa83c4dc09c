"""One process that tries cases within limits of memory and time, and a record of where it wrote.

It is forked from a parent that has imported all of heed, so that a case costs milliseconds. The parent reads one line
when a case begins and one when it ends: if the second does not come, the case took the process along.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, BinaryIO

from .case import Case, write
from .targets import Target

MEMORY = 3 << 29  # bytes that a case may take beside what the process has
SECONDS = 10  # of work
FILE = 1 << 28  # bytes of a file that it may write
CANARY = b"years of work\n"
PANICS = (b"panicked at", b"Fatal Python error", b"terminate called", b"stack overflow", b"Sanitizer", b"double free")
NO_MEMORY = ("allocate memory", "Unable to allocate", "bad_alloc")  # as torch, numpy and C++ say it
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "os.rename": 2,
    "os.remove": 1,
    "os.rmdir": 1,
    "os.mkdir": 1,
    "os.link": 2,
    "os.symlink": 2,
    "os.truncate": 1,
}


class Watch:
    """Notes what Python writes outside of the folders that a case was given; libraries are caught by the canary."""

    def __init__(self, *allowed: Path) -> None:
        self.allowed = tuple(f"{os.path.realpath(place)}{os.sep}" for place in allowed)
        self.found: list[str] = []
        self.on = False
        sys.addaudithook(self._heard)

    def _heard(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, _, flags = given
            if isinstance(flags, int) and flags & WRITES:
                self._judge(event, path)
        elif event in CHANGES:
            for path in given[: CHANGES[event]]:
                if event != "os.symlink" or path is not given[0]:
                    self._judge(event, path)
        elif event in {"os.system", "socket.connect", "pty.spawn"}:
            self.found.append(f"{event} {given!r}"[:200])

    def _judge(self, event: str, path: object) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        self.on = False
        try:
            name = os.fsdecode(path)
            place = os.path.join(os.path.realpath(os.path.dirname(name) or "."), os.path.basename(name))
        finally:
            self.on = True
        if not f"{place}{os.sep}".startswith(self.allowed) and place not in {"/dev/null", "/dev/tty"}:
            self.found.append(f"{event} {place}")


def limit(memory: int = MEMORY) -> None:
    """So much more memory than now; no core files, no large files."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + memory
    for kind, value in ((resource.RLIMIT_AS, most), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, FILE)):
        resource.setrlimit(kind, (value, value))


def spare(seconds: int = SECONDS) -> None:
    """So much work from now on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + seconds + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def attempts(target: Target, cases: Iterable[Case | int], room: Path, report: BinaryIO) -> None:
    """Try cases, or those of seeds, one after another; each outcome is a line of JSON. For a process of its own."""
    outside = room / "outside"
    os.environ.update(HOME=str(room / "home"), TMPDIR=str(room / "tmp"))
    tempfile.tempdir = str(room / "tmp")  # the parent may have asked before, and it remembers
    heard = os.open(room / "stderr", os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    os.dup2(heard, 2)
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    watch = Watch(room / "in", room / "out", room / "tmp", room / "home")
    limit()
    for number, ask in enumerate(cases):
        case = target.case(ask) if isinstance(ask, int) else ask
        for name in ("in", "out", "outside", "tmp", "home"):
            shutil.rmtree(room / name, ignore_errors=True)
            (room / name).mkdir()
        (outside / "canary").write_bytes(CANARY)
        write(case.files(target.materials[case.material]), room / "in")
        os.chdir(room / "out")
        _tell(report, {"begun": number})
        os.ftruncate(heard, 0)
        spare()
        watch.found.clear()
        watch.on = True
        begun = time.process_time()
        found = outcome(target, room, Random(case.seed or 0))
        seconds = time.process_time() - begun
        watch.on = False
        spilt = os.pread(heard, 1 << 16, 0)
        if any(words in spilt for words in PANICS):
            found = {"verdict": "panic", "text": spilt.decode("utf-8", "replace")[-2000:]}
        left = {path.name: path.read_bytes() for path in outside.iterdir() if path.is_file()}
        if left != {"canary": CANARY} or watch.found:
            found = {"verdict": "outside", "text": "\n".join([*sorted(left), *watch.found])[:2000]}
        _tell(report, {"ended": number, "seconds": seconds, **found})


def outcome(target: Target, room: Path, draw: Random) -> dict[str, str]:
    """What comes of the files in a room: a verdict, and its text."""
    from heed.core.errors import HeedError

    try:
        target.use(room / "in", room / "out", draw)
    except HeedError as error:
        return {"verdict": "refused", "text": str(error)[:300]}
    except BaseException as error:
        if target.anything:
            return {"verdict": "refused", "text": f"{type(error).__name__}: {error}"[:300]}
        text = traceback.format_exc()
        wants_memory = isinstance(error, MemoryError) or any(words in text for words in NO_MEMORY)
        return {"verdict": "memory" if wants_memory else "traceback", "text": _short(text)}
    return {"verdict": "loaded", "text": ""}


def _short(text: str) -> str:
    return text if len(text) < 6000 else text[:1000] + "\n ... \n" + text[-4000:]


def _tell(report: BinaryIO, data: dict[str, Any]) -> None:
    report.write(json.dumps(data).encode() + b"\n")
    report.flush()
