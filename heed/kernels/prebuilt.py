"""Kernels that a wheel brings: compiled elsewhere for several processors, of which one that fits this one is taken.

A library is named by what it was compiled for and by a digest of its sources and flags, so that one whose sources were
edited is not found. None is opened that uses an instruction which any core of this machine lacks.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).with_name("source")
FOLDER = Path(__file__).with_name("prebuilt")
CPUINFO = Path("/proc/cpuinfo")
FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fno-math-errno", "-ffp-contract=off", "-w")


@dataclass(frozen=True)
class Variant:
    """A kind of processor: how a compiler is told of its instructions, and how /proc/cpuinfo names them."""

    name: str
    words: str
    flags: tuple[str, ...]
    needs: frozenset[str]

    @property
    def place(self) -> Path:
        """Where a wheel holds its library."""
        told = "\0".join((*FLAGS, *self.flags)).encode()
        return FOLDER / f"heed-{self.name}-{hashlib.sha256(sources() + told).hexdigest()[:24]}.so"


_AVX2 = ("avx2", "fma", "f16c")
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl", "fma", "f16c")


def _variant(name: str, words: str, needs: tuple[str, ...]) -> Variant:
    return Variant(name, words, tuple(f"-m{flag.replace('_', '')}" for flag in needs), frozenset(needs))


VARIANTS = (  # the quickest first
    _variant("avx512_vnni", "AVX-512 with VNNI", (*_AVX512, "avx512_vnni")),
    _variant("avx512", "AVX-512", _AVX512),
    _variant("avx2", "AVX2", _AVX2),
)


def sources() -> bytes:
    """All that is compiled."""
    paths = sorted(path for path in SOURCES.glob("*") if path.suffix in (".h", ".cpp"))
    return b"".join(path.read_bytes() for path in paths)


def fitting() -> list[Variant]:
    """The variants that every core of this machine can run."""
    flags = processor_flags()
    return [variant for variant in VARIANTS if variant.needs <= flags]


def processor_flags() -> frozenset[str]:
    """What every core can do, as Linux names it; nothing where that is not known.

    Linux leaves out what the system has not switched on, so a flag means that the instructions can be used.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return frozenset()
    try:
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    cores = [frozenset(line.partition(":")[2].split()) for line in lines if line.startswith("flags")]
    return frozenset.intersection(*cores) if cores else frozenset()


def held() -> Variant | None:
    """The best variant for this machine that was brought along; None if there is none."""
    return next((variant for variant in fitting() if variant.place.is_file()), None)
