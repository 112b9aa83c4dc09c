"""What is compiled can be tested only where there is a compiler; everything else is tested without."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from heed.kernels import build, prebuilt
from heed.kernels import compiler as cxx
from heed.kernels.abi import declare, hand_over_threads

# Portable: what other processors run, compiled for this one. Variants are compiled as for a wheel, without OpenMP.
KINDS = {"portable": ("-fopenmp",)} | {variant.name: variant.flags for variant in prebuilt.fitting()}
if len(KINDS) == 1:
    KINDS["native"] = ("-march=native", "-fopenmp")
OWN = "own"  # the library that heed itself opens: with HEED_TEST_KINDS=own it alone, as `make sanitize` has it
if os.environ.get("HEED_TEST_KINDS") == OWN:
    KINDS = {OWN: ()}


@pytest.fixture(scope="package")
def compiler() -> str:
    try:
        return cxx.found()
    except cxx.Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture(scope="package", params=KINDS)
def compiled_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, compiler: str) -> Path:
    """The kernels as each kind of processor has them, named by it."""
    if request.param == OWN:
        return build.built()
    place = tmp_path_factory.mktemp("kernels") / f"{request.param}.so"
    said = cxx.compile_to(place, compiler, (*KINDS[request.param], "-O1", *cxx.more_flags()))
    assert not said
    return place


@pytest.fixture(scope="package")
def compiled(compiled_file: Path) -> ctypes.CDLL:
    return hand_over_threads(declare(ctypes.CDLL(str(compiled_file))))
