"""Quantised matrices, one token at a time: how many weights pass by per second.

Several matrices take turns, more than the caches hold, so that weights come from memory as they do in a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle

import torch
from torch import Tensor, nn

from benchmarks.measure import Figure, Runner, race, ratio
from benchmarks.report import Row, Target
from heed.kernels.hugepages import gathered
from heed.parts.layers.bitnet import PackedTernaryLinear, TernaryLinear
from heed.parts.layers.quantised import GroupedLinear, Int8Linear

SIZE = 4096
BYTES = 160 << 20  # of the matrices of a kind, together
ROUNDS = 15


def rows(rounds: int | None) -> Iterator[Row]:
    """Time per weight, beside 8 bits."""
    torch.manual_seed(0)
    kinds: dict[str, tuple[Callable[[nn.Linear], nn.Module], float, Target | None]] = {
        "8 bits by rows": (Int8Linear, 1.0, None),
        "ternary, 2 bits": (lambda layer: PackedTernaryLinear(TernaryLinear(layer)), 0.25, Target(1 / 2.5)),
        "4 bits by groups": (lambda layer: GroupedLinear(layer, 4), 0.5625, None),
        "float32": (lambda layer: layer, 4.0, None),
    }
    samples = race({name: _turns(make, each) for name, (make, each, _) in kinds.items()}, rounds or ROUNDS)
    eights = samples["8 bits by rows"]
    for name, (_, each, target) in kinds.items():
        speed = each * SIZE * SIZE / min(samples[name]) / 1e9
        what = f"{SIZE} × {SIZE}, {name}: a token, at {speed:.0f} GB/s"
        mine = Figure.of(samples[name])
        if name == "8 bits by rows":
            yield Row(what, mine)
        else:
            yield Row(f"{what}; peer: 8 bits", mine, Figure.of(eights), ratio(samples[name], eights), target)


def _turns(make: Callable[[nn.Linear], nn.Module], each: float) -> Runner:
    count = max(2, round(BYTES / (each * SIZE * SIZE)))
    layers = []
    for _ in range(count):
        layers.append(make(nn.Linear(SIZE, SIZE, bias=False)).eval())
    held = [layer for layer in layers if isinstance(layer, Int8Linear | PackedTernaryLinear | GroupedLinear)]
    for layer, codes in zip(held, gathered([layer.codes for layer in held]), strict=True):
        layer.codes = codes
    x, turns = torch.randn(1, SIZE), cycle(layers)

    def run() -> Tensor:
        with torch.no_grad():
            y: Tensor = next(turns)(x)
        return y

    return run
