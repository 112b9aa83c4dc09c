"""Quantised weights without kernels, beside float32 without kernels: all matrices of GPT-2 (124M), one token and 64.

This is what a machine without a compiler runs, and the reason to have one: `bits` has the kernels' figures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measure import Figure, Runner, race, ratio
from benchmarks.report import Row, Target
from heed.kernels import linear
from heed.parts.layers.bitnet import pack_ternary, quantise_ternary
from heed.parts.layers.quantised import quantise_groups, quantise_rows

SHAPES = ((2304, 768), (768, 768), (3072, 768), (768, 3072)) * 12
TOKENS = (1, 64)
ROUNDS = 15


def rows(rounds: int | None) -> Iterator[Row]:
    """Time of a pass through all matrices, beside float32."""
    torch.manual_seed(0)
    weights = [torch.randn(shape) for shape in SHAPES]
    forms: dict[str, Callable[[Tensor], Callable[[Tensor], Tensor]]] = {
        "float32": lambda weight: partial(F.linear, weight=weight),
        "int8": lambda weight: _bound(linear.int8_dequantised, *quantise_rows(weight)),
        "w8a8": lambda weight: _bound(linear.w8a8_dequantised, *quantise_rows(weight)),
        "q8_0": lambda weight: _bound(linear.grouped_dequantised, *quantise_groups(weight, 8)),
        "int4": lambda weight: _bound(linear.grouped_dequantised, *quantise_groups(weight, 4)),
        "ternary": _ternary,
    }
    made = {name: [form(weight) for weight in weights] for name, form in forms.items()}
    for tokens in TOKENS:
        samples = race({name: _pass(tokens, layers) for name, layers in made.items()}, rounds or ROUNDS)
        plain = samples.pop("float32")
        for name, mine in samples.items():
            what = f"GPT-2's matrices in {name}, no kernels, {tokens} token{'s' * (tokens > 1)}; peer: float32"
            target = Target(1.05) if name in ("int8", "w8a8") else None
            yield Row(what, Figure.of(mine), Figure.of(plain), ratio(mine, plain), target)


def _bound(form: Callable[..., Tensor], codes: Tensor, scales: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: form(x, codes, scales, None)


def _ternary(weight: Tensor) -> Callable[[Tensor], Tensor]:
    whole = quantise_ternary(weight)
    codes, scale = pack_ternary(whole.codes), whole.scale.reshape(1)
    return lambda x: linear.two_bits_dequantised(x, codes, scale, None, len(weight))


def _pass(tokens: int, layers: list[Callable[[Tensor], Tensor]]) -> Runner:
    inputs = {size: torch.randn(tokens, size) for size in {shape[1] for shape in SHAPES}}

    def run() -> None:
        with torch.no_grad():
            for layer, (_, size) in zip(layers, SHAPES, strict=True):
                layer(inputs[size])

    return run
