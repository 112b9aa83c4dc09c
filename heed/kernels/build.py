"""Compiling the kernels: once per machine, into the user's cache.

The name of a compiled library is a digest of all that it depends on: sources, compiler, flags, processor. Two processes
that build at once each write a file of their own, and the last one to finish puts the same thing in its place.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

from .abi import declare

SOURCES = Path(__file__).with_name("source")
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-ffp-contract=off", "-w")
NATIVE = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler knows
THREADS = (("-fopenmp",), ())
SECONDS = 300  # a compiler that takes longer hangs


class Unavailable(Exception):
    """Why there are no kernels."""


_OFF = ContextVar("_OFF", default=False)


@contextmanager
def written_out() -> Iterator[None]:
    """Within, everything is computed by the forms that are written out in torch: to compare with."""
    before = _OFF.set(True)
    try:
        yield
    finally:
        _OFF.reset(before)


def only_written_out() -> bool:
    """Whether this is within `written_out()`."""
    return _OFF.get()


def library() -> ctypes.CDLL | None:
    """The compiled kernels, built if need be; None, with one line about it, if there are none."""
    return None if _OFF.get() else _loaded()


@cache
def _loaded() -> ctypes.CDLL | None:
    if os.environ.get("HEED_KERNELS", "").lower() in ("off", "0", "no"):
        return None
    try:
        return declare(ctypes.CDLL(str(built())))
    except (Unavailable, OSError, AttributeError) as why:
        print(
            f"heed: no kernels are used ({why}); torch computes the same, more slowly. HEED_KERNELS=off hides this",
            file=sys.stderr,
        )
        return None


def built() -> Path:
    """The library for this machine, compiled unless it was before."""
    compiler = _compiler()
    place = cache_folder() / f"heed-{_digest(compiler)}.so"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if sys.stderr.isatty():
            print("heed: kernels are compiled for this machine, once; that takes some seconds", file=sys.stderr)
        _compile(compiler, place)
    return place


def cache_folder() -> Path:
    """HEED_CACHE, or the user's cache."""
    named = os.environ.get("HEED_CACHE")
    base = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heed"
    return base / "kernels"


def _compiler() -> str:
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise Unavailable("there is no C++ compiler; install g++ or clang, or name one in CXX")


def _digest(compiler: str) -> str:
    version = _run([compiler, "--version"]).stdout
    sources = b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir()) if path.suffix in (".h", ".cpp"))
    told = "\0".join((version, *FLAGS, platform.machine(), sys.platform, _processor()))
    return hashlib.sha256(sources + told.encode()).hexdigest()[:24]


def _processor() -> str:
    """What tells processors apart: their flags, where the system names them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.split("\t")[0].strip() in named}))


def _compile(compiler: str, place: Path) -> None:
    sources = [str(path) for path in sorted(SOURCES.glob("*.cpp"))]
    said = ""
    for native in NATIVE:
        for threads in THREADS:
            with tempfile.TemporaryDirectory(dir=place.parent) as folder:
                made = Path(folder) / place.name
                done = _run([compiler, *FLAGS, *native, *threads, *sources, "-o", str(made)])
                if done.returncode == 0:
                    made.replace(place)  # at once or not at all
                    return
                said = said or done.stderr
    lines = [line for line in said.splitlines() if "error" in line] or said.splitlines() or ["no reason was given"]
    raise Unavailable(f"{compiler} could not build them: {lines[0]}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as why:
        raise Unavailable(f"{command[0]} does not run: {why}") from why
