"""What is compiled can be tested only where there is a compiler; everything else is tested without."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from heed.kernels import build, prebuilt
from heed.kernels.abi import declare, hand_over_threads

# Portable: what other processors run, compiled for this one. Variants are compiled as for a wheel, without OpenMP.
KINDS = {"portable": ("-fopenmp",)} | {variant.name: variant.flags for variant in prebuilt.fitting()}
if len(KINDS) == 1:
    KINDS["native"] = ("-march=native", "-fopenmp")


@pytest.fixture(scope="package")
def compiler() -> str:
    try:
        return build._compiler()
    except build.Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture(scope="package", params=KINDS)
def compiled_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, compiler: str) -> Path:
    """The kernels as each kind of processor has them, named by it."""
    place = tmp_path_factory.mktemp("kernels") / f"{request.param}.so"
    said = build.compile_to(place, compiler, (*KINDS[request.param], "-O1"))
    assert not said
    return place


@pytest.fixture(scope="package")
def compiled(compiled_file: Path) -> ctypes.CDLL:
    return hand_over_threads(declare(ctypes.CDLL(str(compiled_file))))
