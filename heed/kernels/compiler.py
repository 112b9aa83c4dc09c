"""A C++ compiler of this machine. It may hang, print without end or write nothing: then there are no kernels.

HEED_CXXFLAGS is what it is told beside heed's own flags, for those who look into kernels: `make sanitize` does.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..core.atomic import replacing
from . import prebuilt

NATIVE = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler knows
THREADS = (("-fopenmp",), ())
SECONDS = 300.0  # a compiler that takes longer hangs
KEPT, FLOOD = 1 << 20, 1 << 24  # bytes of what it prints that are read; that are let pass


class Unavailable(Exception):
    """Why there are no kernels."""


class Said(NamedTuple):
    """How a program ended, and what it printed."""

    code: int
    words: str


def found() -> str:
    """CXX, or the compiler of the system."""
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        place = shutil.which(name) if name else None
        if place:
            return place
    raise Unavailable("there is no C++ compiler; install g++ or clang, or name one in CXX")


def digest(compiler: str) -> str:
    """Of all that a library depends on: sources, compiler, flags, processor."""
    machine = (platform.machine(), sys.platform, _processor())
    told = "\0".join((run([compiler, "--version"]).words, *prebuilt.FLAGS, *more_flags(), *machine))
    return hashlib.sha256(prebuilt.sources() + told.encode()).hexdigest()[:24]


def more_flags() -> tuple[str, ...]:
    """HEED_CXXFLAGS."""
    try:
        return tuple(shlex.split(os.environ.get("HEED_CXXFLAGS", "")))
    except ValueError as why:
        raise Unavailable(f"HEED_CXXFLAGS cannot be read: {why}") from None


def _processor() -> str:
    """What tells processors apart: their flags, where the system names them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    named = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.split("\t")[0].strip() in named}))


def compile_here(compiler: str, place: Path) -> None:
    """For this very processor, with threads if the compiler has them."""
    first = ""
    for native in NATIVE:
        for threads in THREADS:
            said = compile_to(place, compiler, (*native, *threads, *more_flags()))
            if not said:
                return
            first = first or said
    lines = [line for line in first.splitlines() if "error" in line] or first.splitlines()
    raise Unavailable(f"{compiler} could not build them: {lines[0]}")


def compile_to(place: Path, compiler: str, flags: tuple[str, ...]) -> str:
    """Puts the library there, whole or not at all; else gives what the compiler said, or what is wrong with it."""
    paths = [str(path) for path in sorted(prebuilt.SOURCES.glob("*.cpp"))]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "heed.so"
        done = run([compiler, *prebuilt.FLAGS, *flags, *paths, "-o", str(made)])
        if done.code:
            return done.words.strip() or f"it ended with {done.code} and no reason"
        data = made.read_bytes() if made.is_file() else b""
    wrong = no_library(data)
    if not wrong:
        with replacing(place) as fresh:
            fresh.write_bytes(data)
    return wrong


def no_library(data: bytes) -> str:
    """What is wrong with these bytes as a library; nothing, if they are one. To open one that was cut would end Python.

    Linkers write the table of sections last: it is there, or the file was cut.
    """
    if not data:
        return "it wrote nothing"
    if data[:4] != b"\x7fELF":
        known = data[:4] in (b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe") or data[:2] == b"MZ"  # of macOS and Windows
        return "" if known else "it wrote something that is no library"
    if data[4:6] != b"\x02\x01":  # 64 bits, the lowest byte first
        return ""
    try:
        (table,), (size, count) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<HH", data, 0x3A)
    except struct.error:
        return "it wrote a part of a library"
    return "" if table + size * count <= len(data) else "it wrote a part of a library"


def run(command: list[str]) -> Said:
    """Run a program to its end; raises `Unavailable` if it does not run, hangs, or prints without end."""
    with tempfile.TemporaryFile() as printed:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
            )
        except (OSError, ValueError) as why:
            raise Unavailable(f"{command[0]} does not run: {why}") from why
        try:
            code = _ended(command[0], process, printed.fileno())
        finally:
            _kill(process)
        printed.seek(0)
        return Said(code, printed.read(KEPT).decode("utf-8", "replace"))


def _ended(name: str, process: subprocess.Popen[bytes], printed: int) -> int:
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            pass
        if time.monotonic() > deadline:
            raise Unavailable(f"{name} did not end within {SECONDS:g} seconds")
        if os.fstat(printed).st_size > FLOOD:
            raise Unavailable(f"{name} prints without end")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started."""
    if process.poll() is None:
        with suppress(OSError):
            process.kill() if sys.platform == "win32" else os.killpg(process.pid, signal.SIGKILL)
        process.wait()
