"""The wiring whose stream is the normed one."""

from __future__ import annotations

import torch
from torch import nn

from heed.parts.layers.norms import LayerNorm
from heed.parts.residual.wiring import Normed


def test_normed_is_its_equation() -> None:
    torch.manual_seed(0)
    a, b, x = nn.Linear(8, 8).double(), nn.Linear(8, 8).double(), torch.randn(2, 5, 8, dtype=torch.float64)
    wiring, ends = Normed().build(8, 2, LayerNorm(), 0.0).double(), Normed().ends(8, LayerNorm()).double()
    for parameter in (*wiring.parameters(), *ends.parameters()):
        nn.init.normal_(parameter)
    first = wiring.norms[0](x)
    second = wiring.norms[1](first + a(first))
    assert ends.final is not None
    assert torch.equal(ends.leave(wiring(ends.enter(x), (a, b))), ends.final(second + b(second)))
