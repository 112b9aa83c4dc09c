"""Operations of a model, counted while it runs without memory, as `torch.utils.flop_counter` counts them.

A product of matrices [m, k] and [k, n] is 2·m·k·n operations; convolutions and fused attention are counted likewise,
and heed's own operators by the formulas below. What works number by number (norms, activations, the scan of a
recurrence) is not counted, there as here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ..core.contract import Mixer, Where
from ..core.errors import InputError
from ..kernels import linear, selective_scan
from ..mixers import Gru, Lstm, Rnn
from .subject import Subject, given, outputs

DEFINED = (linear, selective_scan)  # importing them defines heed's operators
LOOPED = (Lstm, Gru, Rnn)  # computed token by token: counted over few tokens, and continued
FEW = 4  # tokens, and two and three times as many
# What torch says of numbers that were read where there are none; and its counter of a gradient that it cannot follow.
READS = ("meta tensor", "Expected gradient function to be set")


class Operations(NamedTuple):
    """How many operations a text takes, forwards and backwards, and one more token behind it."""

    forward: int
    backward: int
    step: int | None  # None: it does not stream


def rows_times_outputs(x: tuple[int, ...], weights: tuple[int, ...], *_: Any, out_shape: Any = None, **__: Any) -> int:
    """x [..., k] times codes [n, k]: int8, w8a8, grouped."""
    return 2 * prod(x) * weights[0]


def rows_times_named(x: tuple[int, ...], codes: Any, scale: Any, bias: Any, rows: int, *_: Any, **__: Any) -> int:
    """x [..., k] times ternary codes, four in a byte, of so many rows."""
    return 2 * prod(x) * rows


def read_states(step: tuple[int, ...], u: Any, write: tuple[int, ...], *_: Any, **__: Any) -> int:
    """Mamba's scan over [B, T, D] channels of S numbers each: y = C·h. All else in it works number by number."""
    return 2 * prod(step) * write[-1]


def read_states_back(
    y: Any, last: Any, step: tuple[int, ...], u: Any, write: tuple[int, ...], *_: Any, **__: Any
) -> int:
    """Its two gradients, towards C and towards h."""
    return 2 * read_states(step, u, write)


def formulas() -> dict[Any, Callable[..., int]]:
    """By operator. `heed::wkv` is not among them: all that it does, it does number by number."""
    own = torch.ops.heed
    return {
        own.int8: rows_times_outputs,
        own.w8a8: rows_times_outputs,
        own.grouped: rows_times_outputs,
        own.two_bits: rows_times_named,
        own.selective: read_states,
        own.selective_back: read_states_back,
    }


def counter() -> FlopCounterMode:
    """One that knows heed's operators, too."""
    return FlopCounterMode(display=False, custom_mapping=formulas())


def counted(subject: Subject, tokens: int) -> Operations | None:
    """Over so many tokens, of one row; None where a mechanism decides by its numbers what it computes."""
    if any(isinstance(part, LOOPED) for part in subject.model().modules()) and tokens > 3 * FEW:
        known = [counted(subject, FEW * many) for many in (1, 2, 3)]
        return Operations(*(_continued(values, tokens) for values in zip(*known, strict=True)))  # type: ignore[arg-type]
    model, reading = subject.model(), given(subject.shape, tokens)
    try:
        with torch.device("meta"), torch.enable_grad():
            with counter() as forward:
                y = outputs(model, reading)
            with counter() as backward:
                y.float().sum().backward()  # type: ignore[no-untyped-call]
    except (RuntimeError, AssertionError) as error:
        must_be_unreadable(error)
        return None
    return Operations(forward.get_total_flops(), backward.get_total_flops(), _step(model, tokens))


def must_be_unreadable(error: Exception) -> None:
    """Raise it again unless it says that numbers were read where there are none, or that torch's counter lost track."""
    if not any(words in str(error) for words in READS):
        raise error


def _continued(values: tuple[int | None, ...], tokens: int) -> int | None:
    """The value of the parabola through three lengths: a text costs a constant, a linear and a square term."""
    if None in values:
        return None
    one, two, three = (int(value or 0) for value in values)
    at = tokens / FEW - 1
    return round(one + (two - one) * at + (three - 2 * two + one) * at * (at - 1) / 2)


@torch.no_grad()
def _step(model: Mixer[Any], tokens: int) -> int | None:
    """One token more behind so many."""
    if not model.streams or tokens < 1:
        return None
    try:
        before, once = Where.run(1, tokens, device="meta"), Where.run(1, 1, start=tokens, device="meta")
        with torch.device("meta"):
            _, state = model(torch.zeros(1, tokens, dtype=torch.long), before, model.start(1))
            with counter() as step:
                model(torch.zeros(1, 1, dtype=torch.long), once, state)
    except InputError:  # it has no place for one more, or needs an encoder output
        return None
    except (RuntimeError, AssertionError) as error:
        must_be_unreadable(error)
        return None
    return int(step.get_total_flops())


def weights_of(model: Mixer[Any]) -> int:
    """What is tied counts once."""
    held: dict[int, Tensor] = {id(weight): weight for weight in model.parameters()}
    return sum(weight.numel() for weight in held.values())
