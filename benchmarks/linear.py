"""Retention beside full attention as texts grow, forward and backward; and how what is linear grows from there on.

The two mixers have the same width and heads. Retention has a gate and a norm more, and a softmax less; so its
recurrence alone is compared with attention alone, too. `cost` has longer texts and more mechanisms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.autograd import grad

from benchmarks.measure import Runner, Three, race
from benchmarks.report import Row, Target, compared
from heed.core.contract import Mixer, MixerConfig, Where
from heed.mixers import Attention, GatedRetention, LinearAttention, Retention
from heed.parts.attention.attend import attend
from heed.parts.masks import Causal
from heed.parts.recurrence.decay import chunked, written_out

HEADS, SIZE = 8, 64
WIDTH = HEADS * SIZE
LENGTHS = (2048, 4096, 8192)  # beside full attention: retention must be the quicker one
FIRST, LONG = 4096, (8192, 16_384)  # alone
ROUNDS, FEW = 5, 3  # FEW: of what takes seconds


def rows(rounds: int | None) -> Iterator[Row]:
    """Both alone, the mixers that they are in, and growth."""
    torch.manual_seed(0)
    _agree()
    for length in LENGTHS:
        yield _recurrences(length, rounds or ROUNDS)
    for length in LENGTHS:
        yield _mixers(length, rounds or ROUNDS)
    yield from _growth(rounds or FEW)


def _recurrences(length: int, rounds: int) -> Row:
    inputs, upstream = _inputs(length), torch.randn(1, length, HEADS, SIZE)
    runners: dict[str, Runner] = {
        "heed": lambda: grad(chunked(*inputs, _fade())[0], inputs, upstream),
        "full": lambda: grad(attend(*inputs, Causal()), inputs, upstream),
    }
    return _beside(f"{length:,} tokens; chunked retention; peer: full attention, causal", runners, length, rounds)


def _mixers(length: int, rounds: int) -> Row:
    x, where = torch.randn(1, length, WIDTH), Where.run(1, length)
    runners: dict[str, Runner] = {
        name: partial(_backward, config.build(WIDTH), x, where)
        for name, config in {"heed": Retention.Config(heads=HEADS), "full": Attention.Config(heads=HEADS)}.items()
    }
    return _beside(f"{length:,} tokens; retention mixer; peer: attention mixer, causal", runners, length, rounds)


def _beside(what: str, runners: dict[str, Runner], length: int, rounds: int) -> Row:
    samples = race(runners, rounds if length < LENGTHS[-1] else min(rounds, FEW))
    return compared(what, samples["heed"], samples["full"], Target(1.0))


def _growth(rounds: int) -> Iterator[Row]:
    """Beside what would be linear from the shortest length on."""
    kinds: dict[str, MixerConfig] = {
        "retention": Retention.Config(heads=HEADS),
        "gated retention": GatedRetention.Config(heads=HEADS),
        "linear attention": LinearAttention.Config(heads=HEADS),
    }
    for name, config in kinds.items():
        mixer = config.build(WIDTH)
        runners: dict[str, Runner] = {
            str(n): partial(_backward, mixer, torch.randn(1, n, WIDTH), Where.run(1, n)) for n in (FIRST, *LONG)
        }
        samples = race(runners, rounds)
        for length in LONG:
            line = [sample * length / FIRST for sample in samples[str(FIRST)]]
            yield compared(f"{length:,} tokens; {name} mixer; peer: linear from {FIRST:,}", samples[str(length)], line)


def _backward(mixer: Mixer[object], x: Tensor, where: Where) -> Tensor:  # type: ignore[type-var]
    x = x.detach().requires_grad_()
    mixer.zero_grad()
    mixer(x, where)[0].square().mean().backward()  # type: ignore[no-untyped-call]
    return x


def _fade() -> Tensor:
    """log γ of every head."""
    return torch.tensor([math.log1p(-(2.0 ** (-5 - head))) for head in range(HEADS)], dtype=torch.float64)[None, None]


def _inputs(length: int) -> Three:
    query, key, value = (torch.randn(1, length, HEADS, SIZE, requires_grad=True) for _ in range(3))
    return query, key, value


def _agree() -> None:
    """What is measured computes what is written out."""
    inputs = _inputs(1000)
    error = float((chunked(*inputs, _fade())[0] - written_out(*inputs, _fade())[0]).detach().abs().max())
    if error > 1e-2:  # sums of a thousand products of size 8
        raise RuntimeError(f"chunked retention is {error:.1e} off its written-out form, which no rounding explains")
