"""One module takes less than 5 s, with all its other settings less than 30 s; here of the process, not of the clock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from time import process_time

import pytest
import torch
from torch import Tensor, nn

from heed.check import check
from heed.check.probes import PROBES
from tests.check.mutants import CORRECT, MUTANTS

SLOWEST = ("turned: values, too", "inside: keys kept as values", "classic: heads split by view")


@pytest.mark.parametrize("name", SLOWEST)
def test_one_module(name: str) -> None:
    target, _, known = MUTANTS[name]
    begun = process_time()
    check(target, only=[probe.name for probe in PROBES], **known)  # with `only` nothing else is swept
    assert process_time() - begun < 5


@pytest.mark.parametrize("target", [nn.MultiheadAttention, nn.TransformerEncoderLayer, CORRECT["shown"][0]])
def test_with_all_its_settings(target: type) -> None:
    begun = process_time()
    assert check(target).swept
    assert process_time() - begun < 30


def test_no_compiler_is_imported() -> None:
    """Torch's own takes longer to import than a check does."""
    asked = "import sys, heed, torch; heed.check(torch.nn.MultiheadAttention); print('torch._dynamo' in sys.modules)"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout.strip() == "False"


class Compiled(nn.Module):
    """What is compiled gives the same as what is not."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, heads, batch_first=True)
        self.fast = torch.compile(self._attend)

    def _attend(self, x: Tensor) -> Tensor:
        y: Tensor = self.attn(x, x, x, need_weights=False)[0]
        return y

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.fast(x)
        return y


def test_nothing_is_compiled() -> None:
    begun = process_time()
    assert check(Compiled).ok
    assert process_time() - begun < 10
