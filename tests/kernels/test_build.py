"""Kernels are built once, safely; without them everything goes on, and one line says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heed.kernels import build, prebuilt

pytestmark = pytest.mark.usefixtures("compiler")

ONCE = """
import torch
from heed.kernels import library
from heed.parts.layers.quantised import Int8Linear
torch.manual_seed(0)
layer = Int8Linear(torch.nn.Linear(8, 3))
print(library() is not None, layer(torch.ones(1, 8)).tolist())
"""


def _process(cache: Path | None, **more: str) -> subprocess.Popen[str]:
    """With a cache of its own, which is empty, or with the one that is there."""
    given = {**os.environ, **({} if cache is None else {"HEED_CACHE": str(cache)}), **more}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", ONCE], env=given, text=True, **pipes)  # type: ignore[call-overload]


def test_two_processes_build_at_once(tmp_path: Path) -> None:
    both = [_process(tmp_path) for _ in range(2)]
    said = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert said[0][0] == said[1][0]
    assert said[0][0].startswith("True")
    assert [path.suffix for path in (tmp_path / "kernels").iterdir()] == [".so"]  # one library, nothing left over


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"CXX": "", "PATH": "/nowhere"}, "there is no C++ compiler; install g++ or clang, or name one in CXX"),
        ({"CXX": "/bin/false"}, "/bin/false could not build them"),
        ({"HEED_KERNELS": "off"}, ""),
    ],
)
def test_without_kernels_torch_computes_the_same(tmp_path: Path, given: dict[str, str], line: str) -> None:
    plain, made = _process(tmp_path, **given).communicate(), _process(None).communicate()
    assert made[0].startswith("True"), made
    assert plain[0] == made[0].replace("True", "False")
    assert (line in plain[1]) if line else not plain[1]
    assert plain[1].count("heed:") == bool(line)


def test_the_name_tells_all_that_it_depends_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = build._compiler()
    before = build._digest(compiler)
    assert build._digest(compiler) == before
    monkeypatch.setattr(prebuilt, "FLAGS", (*prebuilt.FLAGS, "-DOTHER"))
    flags = build._digest(compiler)
    monkeypatch.setattr(build, "_processor", lambda: "another one")
    processor = build._digest(compiler)
    changed = tmp_path / "source"
    changed.mkdir()
    for path in prebuilt.SOURCES.iterdir():
        (changed / path.name).write_bytes(path.read_bytes() + b"\n")
    monkeypatch.setattr(prebuilt, "SOURCES", changed)
    assert len({before, flags, processor, build._digest(compiler)}) == 4


def test_a_broken_source_names_its_first_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.cpp").write_text("int main( {")
    monkeypatch.setattr(prebuilt, "SOURCES", tmp_path)
    with pytest.raises(build.Unavailable, match=r"could not build them: .*error"):
        build._compile(build._compiler(), tmp_path / "made.so")
    assert [path.name for path in tmp_path.iterdir()] == ["broken.cpp"]
