"""A wheel's kernels: one that fits the processor is taken, none that does not, none whose sources were edited."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from heed.core.errors import InputError
from heed.kernels import build, described, linear, prebuilt
from heed.kernels.abi import OpenMp, Weights
from heed.kernels.build import Loaded
from heed.kernels.compiler import Unavailable
from heed.kernels.prebuilt import VARIANTS, Variant
from heed.verify import proofs

BEST, MIDDLE, LEAST = VARIANTS


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds a file for every variant, of these sources."""
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path)
    for variant in VARIANTS:
        variant.place.write_bytes(b"no library at all")
    return tmp_path


def _processor(monkeypatch: pytest.MonkeyPatch, *flags: str) -> None:
    monkeypatch.setattr(prebuilt, "processor_flags", lambda: frozenset(flags))


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ((*BEST.needs, "sse2"), BEST),
        ((*MIDDLE.needs, *LEAST.needs), MIDDLE),
        (tuple(LEAST.needs), LEAST),
        (tuple(BEST.needs - {"avx512dq"} | LEAST.needs), LEAST),
        (tuple(LEAST.needs - {"fma"}), None),
        ((), None),
    ],
)
def test_the_best_that_every_core_can_run(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], wanted: Variant | None
) -> None:
    _processor(monkeypatch, *flags)
    monkeypatch.delenv("HEED_KERNELS", raising=False)
    assert prebuilt.held() == wanted
    assert build._chosen() == wanted


def test_what_only_some_cores_can_do_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "cpuinfo"
    told.write_text("processor\t: 0\nflags\t\t: avx2 fma f16c\n\nprocessor\t: 1\nflags\t\t: avx2 fma\n")
    monkeypatch.setattr(prebuilt, "CPUINFO", told)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert prebuilt.processor_flags() == {"avx2", "fma"}
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert not prebuilt.processor_flags()
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(prebuilt, "CPUINFO", tmp_path / "none")
    assert not prebuilt.processor_flags()


def test_edited_sources_or_flags_are_compiled(
    wheel: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    _processor(monkeypatch, *LEAST.needs)
    assert prebuilt.held() == LEAST
    with monkeypatch.context() as changed:
        changed.setattr(prebuilt, "FLAGS", (*prebuilt.FLAGS, "-DOTHER"))
        assert prebuilt.held() is None
    edited = tmp_path_factory.mktemp("edited") / "source"
    shutil.copytree(prebuilt.SOURCES, edited)
    monkeypatch.setattr(prebuilt, "SOURCES", edited)
    assert prebuilt.held() == LEAST
    (edited / "vector.h").write_text((edited / "vector.h").read_text() + "// mine\n")
    assert prebuilt.held() is None


def test_a_variant_by_name(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _processor(monkeypatch, *MIDDLE.needs, *LEAST.needs)
    monkeypatch.setenv("HEED_KERNELS", "AVX2")
    assert build._chosen() == LEAST
    monkeypatch.setenv("HEED_KERNELS", "avx512_vnni")
    with pytest.raises(Unavailable, match="this processor lacks avx512_vnni"):
        build._chosen()
    MIDDLE.place.unlink()
    monkeypatch.setenv("HEED_KERNELS", "avx512")
    with pytest.raises(Unavailable, match="no such library was brought along"):
        build._chosen()
    monkeypatch.setenv("HEED_KERNELS", "avx1024")
    with pytest.raises(InputError, match="HEED_KERNELS is 'avx1024'; needed is one of off, auto, compile, avx512_vnni"):
        build._chosen()
    for name in ("compile", "native"):
        monkeypatch.setenv("HEED_KERNELS", name)
        assert build._chosen() is None


def test_one_that_does_not_open_is_compiled(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As on a system that is older than it was compiled for. The compiler is a stand-in: what it was asked is seen."""
    _processor(monkeypatch, *LEAST.needs)
    monkeypatch.delenv("HEED_KERNELS", raising=False)
    monkeypatch.setenv("HEED_CACHE", str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setenv("CXX", "/bin/false")
    with pytest.raises(Unavailable, match="/bin/false could not build them"):
        build._opened()
    monkeypatch.setenv("HEED_KERNELS", "avx2")
    with pytest.raises(OSError, match="avx2"):
        build._opened()


def test_every_statement_holds_on_every_kind(
    compiled: ctypes.CDLL, compiled_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_loaded", cache(lambda: Loaded(compiled, compiled_file.stem)))
    found = [check() for check in proofs(["kernels"])]
    assert len(found) > 10
    assert [proof for proof in found if not proof.holds] == []
    assert described() == compiled_file.stem


def test_threads_are_those_of_torch(compiled: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform != "linux":
        pytest.skip("elsewhere the compiler's own threads are used")
    torch_cpu = ctypes.CDLL("libtorch_cpu.so", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    own = OpenMp.in_dll(compiled, "heed_openmp")
    assert own.parallel == ctypes.cast(torch_cpu.GOMP_parallel, ctypes.c_void_p).value
    monkeypatch.setattr(linear, "library", lambda: compiled)
    x, weight = torch.randn(3, 64), torch.randn(700, 64)
    alone = linear.product(Weights.FLOAT32, x, weight, None, None, 700)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(linear.product(Weights.FLOAT32, x, weight, None, None, 700), alone)


ONCE = """
import sys
from pathlib import Path
from heed.kernels import build, described, library, prebuilt
prebuilt.FOLDER = Path(sys.argv[1])
print(described(), "|", library() is not None, "|", described())
"""


@pytest.mark.skipif(not prebuilt.fitting(), reason="there is no variant for this processor")
def test_a_process_without_a_compiler_runs_prebuilt_kernels(
    compiled_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prebuilt, "FOLDER", tmp_path)
    variant = next((variant for variant in VARIANTS if variant.name == compiled_file.stem), None)
    if variant is not None:
        shutil.copy(compiled_file, variant.place)
    given = {**os.environ, "HEED_CACHE": str(tmp_path / "cache"), "PATH": "/nowhere", "CXX": "", "HEED_KERNELS": ""}
    done = subprocess.run(
        [sys.executable, "-c", ONCE, str(tmp_path)], env=given, capture_output=True, text=True, check=False
    )
    words = "none: there is no C++ compiler; install g++ or clang, or name one in CXX"
    if variant is not None:
        words = f"prebuilt for {variant.words}"
    assert done.stdout == f"{words} | {variant is not None} | {words}\n", done.stderr
    assert not (tmp_path / "cache").exists()
