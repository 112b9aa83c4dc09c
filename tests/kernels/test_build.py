"""Kernels are built once, safely; without them everything goes on, and one line says why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
