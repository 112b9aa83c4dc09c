"""Which kernels are used: those that a wheel brought, if they fit this processor, else those compiled on this machine.

What is compiled here is compiled once, into the user's cache. The name of a compiled library is a digest of all that it
depends on: sources, compiler, flags, processor. Two processes that build at once each write a file of their own, and
the last one to finish puts the same thing in its place.

HEED_KERNELS chooses: `off`, `compile` (here, for this very processor), or a variant of `prebuilt.py` by its name.
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
from typing import NamedTuple

from ..core.errors import InputError
from . import prebuilt
from .abi import declare, hand_over_threads
from .prebuilt import VARIANTS

NATIVE = (("-march=native",), ("-mcpu=native",), ())  # the first that the compiler knows
THREADS = (("-fopenmp",), ())
SECONDS = 300  # a compiler that takes longer hangs
OFF, AUTO, COMPILE = "off", "auto", "compile"
ALIASES = {"": AUTO, "on": AUTO, "0": OFF, "no": OFF, "native": COMPILE}


class Unavailable(Exception):
    """Why there are no kernels."""


class Loaded(NamedTuple):
    """The kernels and where they come from; or none, and why."""

    library: ctypes.CDLL | None
    words: str


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
    """The kernels, compiled if need be; None, with one line about it, if there are none."""
    return None if _OFF.get() else _loaded().library


def described() -> str:
    """Which kernels are in use, or why there are none; before their first use: which would be."""
    if _loaded.cache_info().currsize:
        return _loaded().words
    try:
        return _planned()
    except Unavailable as why:
        return f"none: {why}"


def why_none() -> str:
    """Why `library()` is None."""
    return "this is within written_out()" if _OFF.get() else described().removeprefix("none: ")


def asked() -> str:
    """What HEED_KERNELS asks for."""
    given = os.environ.get("HEED_KERNELS", "").lower()
    found = ALIASES.get(given, given)
    known = (OFF, AUTO, COMPILE, *(variant.name for variant in VARIANTS))
    if found not in known:
        raise InputError(f"HEED_KERNELS is {given!r}; needed is one of {', '.join(known)}")
    return found


@cache
def _loaded() -> Loaded:
    if asked() == OFF:
        return Loaded(None, "none: HEED_KERNELS=off")
    try:
        return _opened()
    except (Unavailable, OSError, AttributeError) as why:
        print(
            f"heed: no kernels are used ({why}); torch computes the same, more slowly. HEED_KERNELS=off hides this",
            file=sys.stderr,
        )
        return Loaded(None, f"none: {why}")


def _opened() -> Loaded:
    variant = _chosen()
    if variant is not None:
        try:
            return Loaded(_open(variant.place), _brought(variant))
        except OSError:  # an older system than it was compiled for
            if asked() != AUTO:
                raise
    return Loaded(_open(built()), f"compiled here by {_compiler()}")


def _open(place: Path) -> ctypes.CDLL:
    return hand_over_threads(declare(ctypes.CDLL(str(place))))


def _planned() -> str:
    if asked() == OFF:
        return "none: HEED_KERNELS=off"
    variant = _chosen()
    return f"compiled at first use by {_compiler()}" if variant is None else _brought(variant)


def _brought(variant: prebuilt.Variant) -> str:
    return f"prebuilt for {variant.words}"


def _chosen() -> prebuilt.Variant | None:
    """The variant to be taken of those that were brought along; None: compile here."""
    wanted = asked()
    if wanted == AUTO:
        return prebuilt.held()
    for variant in VARIANTS:
        if variant.name == wanted:
            missing = sorted(variant.needs - prebuilt.processor_flags())
            if missing:
                raise Unavailable(f"HEED_KERNELS={wanted}, and this processor lacks {', '.join(missing)}")
            if not variant.place.is_file():
                raise Unavailable(f"HEED_KERNELS={wanted}, and no such library was brought along with these sources")
            return variant
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
    told = "\0".join((version, *prebuilt.FLAGS, platform.machine(), sys.platform, _processor()))
    return hashlib.sha256(prebuilt.sources() + told.encode()).hexdigest()[:24]


def _processor() -> str:
    """What tells processors apart: their flags, where the system names them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    named = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.split("\t")[0].strip() in named}))


def _compile(compiler: str, place: Path) -> None:
    """For this very processor, with threads if the compiler has them."""
    said = ""
    for native in NATIVE:
        for threads in THREADS:
            said = said or compile_to(place, compiler, (*native, *threads))
            if place.exists():
                return
    lines = [line for line in said.splitlines() if "error" in line] or said.splitlines() or ["no reason was given"]
    raise Unavailable(f"{compiler} could not build them: {lines[0]}")


def compile_to(place: Path, compiler: str, flags: tuple[str, ...]) -> str:
    """Puts the library there, at once or not at all; else gives what the compiler said."""
    paths = [str(path) for path in sorted(prebuilt.SOURCES.glob("*.cpp"))]
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        made = Path(folder) / place.name
        done = _run([compiler, *prebuilt.FLAGS, *flags, *paths, "-o", str(made)])
        if done.returncode:
            return done.stderr or "no reason was given"
        made.replace(place)
    return ""


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as why:
        raise Unavailable(f"{command[0]} does not run: {why}") from why
