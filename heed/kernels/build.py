"""Which kernels are used: those that a wheel brought, if they fit this processor, else those compiled on this machine.

What is compiled here (`compiler.py`) is compiled once, into the user's cache (`library_cache.py`).

HEED_KERNELS chooses: `off`, `compile` (here, for this very processor), or a variant of `prebuilt.py` by its name.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..core.errors import InputError
from . import compiler, library_cache, prebuilt
from .abi import declare, hand_over_threads
from .compiler import Unavailable
from .prebuilt import VARIANTS

OFF, AUTO, COMPILE = "off", "auto", "compile"
ALIASES = {"": AUTO, "on": AUTO, "0": OFF, "no": OFF, "native": COMPILE}


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
    wanted = ALIASES.get(given, given)
    known = (OFF, AUTO, COMPILE, *(variant.name for variant in VARIANTS))
    if wanted not in known:
        raise InputError(f"HEED_KERNELS is {given!r}; needed is one of {', '.join(known)}")
    return wanted


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
    return Loaded(_open(built()), f"compiled here by {compiler.found()}")


def _open(place: Path) -> ctypes.CDLL:
    if compiler.no_library(place.read_bytes()):
        raise OSError(f"{place} is no library, or a part of one")
    return hand_over_threads(declare(ctypes.CDLL(str(place))))


def _planned() -> str:
    if asked() == OFF:
        return "none: HEED_KERNELS=off"
    variant = _chosen()
    return f"compiled at first use by {compiler.found()}" if variant is None else _brought(variant)


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
    cxx = compiler.found()
    key = compiler.digest(cxx)
    known = library_cache.find(key)
    if known is not None:
        return known
    library_cache.must_have_a_place()
    if sys.stderr.isatty():
        print("heed: kernels are compiled for this machine, once; that takes some seconds", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "heed.so"
        compiler.compile_here(cxx, made)
        return library_cache.put(key, made.read_bytes())
