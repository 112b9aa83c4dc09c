"""What is compiled can be tested only where there is a compiler; everything else is tested without."""

from __future__ import annotations

import ctypes
import subprocess

import pytest
import torch

from heed.kernels import build
from heed.kernels.abi import declare

PLAIN = {"portable": (), "native": ("-march=native",)}  # portable: what other processors run, compiled for this one
if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
    PLAIN["avx2"] = ("-mavx2", "-mfma", "-mf16c")


@pytest.fixture(autouse=True, scope="package")
def _compiler() -> None:
    try:
        build._compiler()
    except build.Unavailable as why:
        pytest.skip(str(why))


@pytest.fixture(scope="package", params=PLAIN)
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The kernels as each kind of processor has them."""
    place = tmp_path_factory.mktemp("kernels") / f"{request.param}.so"
    sources = [str(path) for path in build.SOURCES.glob("*.cpp")]
    flags = [flag.replace("-O3", "-O1") for flag in build.FLAGS]
    subprocess.run(["c++", *flags, *PLAIN[request.param], "-fopenmp", *sources, "-o", str(place)], check=True)
    return declare(ctypes.CDLL(str(place)))
