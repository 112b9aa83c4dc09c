"""The five laws of the contract, as measurements. Each gives a finding with numbers and the smallest failing case.

They run on a copy of the mixer in eval mode, in the precision of the case: float64, where nothing but rounding is below
their bound, or float32, in which kernels compute. A mixer that looks ahead cannot stream; of it the split law
asks that it refuse a state, and the others hold all the same. There is no skip list: what a mixer cannot do it
declares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import wraps
from math import inf
from typing import TypeAlias

import torch

from . import cases as trials
from .cases import BOUND, AnyMixer, Case, added_up, distance
from .errors import CannotStream
from .spec import price
from .state import State, fork, nbytes, select

__all__ = ["BOUND", "LAWS", "Case", "Finding", "Law", "cost", "padding", "reach", "rows", "split", "within"]


def within(error: float, bound: float) -> bool:
    """Whether a bound is kept: an error that is no number keeps none, and what allows anything is no bound."""
    return 0.0 <= error <= bound < inf


@dataclass(frozen=True)
class Finding:
    """What a law found: the worst number it saw, the bound it must keep, and the case in words."""

    law: str
    error: float
    bound: float
    detail: str

    @property
    def holds(self) -> bool:
        return within(self.error, self.bound)

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "FAILS"
        return f"{self.law} {verdict}: {self.error:.1e} (bound {self.bound:.0e}); {self.detail}"


Law: TypeAlias = "Callable[[AnyMixer, Case], Finding]"


def _law(measure: Law) -> Law:
    """The mixer itself stays as it is. It may be a user's own and raise anything: that is a finding too."""

    @wraps(measure)
    def law(mixer: AnyMixer, case: Case) -> Finding:
        try:
            return measure(deepcopy(mixer).to(case.x.dtype).eval(), case)
        except Exception as error:
            return Finding(measure.__name__, inf, 0.0, f"raised {type(error).__name__}: {error}")

    return law


@_law
def split(mixer: AnyMixer, case: Case) -> Finding:
    """Any cutting of a sequence into calls gives the outputs and the gradients of one call."""
    if not mixer.streams:
        return _refuses(mixer, case)
    tokens, worst = case.x.shape[1], 0.0
    ways = trials.cuttings(tokens)
    with torch.no_grad():
        whole, _ = mixer(case.x, case.where(0, tokens))
        for cuts in ways:
            error = distance(whole, trials.run(mixer, case, cuts, poison=True))
            if not error <= case.bound:
                return _smallest_cut(mixer, case, cuts)
            worst = max(worst, error)
    for cuts in ([1] * tokens, trials.random_cuts(tokens)):
        error = _gradient_error(mixer, case, cuts)
        if not error <= case.bound:
            return _smallest_gradient(mixer, case, cuts)
        worst = max(worst, error)
    return Finding("split", worst, case.bound, f"values and gradients of {tokens} tokens over {len(ways)} cuttings")


@_law
def padding(mixer: AnyMixer, case: Case) -> Finding:
    """Tokens of order -1 change neither other outputs nor the state, whatever they hold."""
    count, tokens = case.x.shape[:2]
    worst = 0.0
    for garbage in (1e4, float("nan")):
        with torch.no_grad():
            for schedule in trials.schedules(mixer, count, tokens):
                error, _ = trials.ragged_error(mixer, case, schedule, garbage)
                if not error <= case.bound:
                    return _smallest_padding(mixer, case, schedule, garbage)
                worst = max(worst, error)
    leak = _padding_gradient(mixer, case)
    if not leak <= case.bound:
        return Finding("padding", leak, case.bound, "the gradient of real outputs with respect to padding is not zero")
    return Finding("padding", worst, case.bound, "ragged rows, early and late, with numbers and NaN in the padding")


@_law
def rows(mixer: AnyMixer, case: Case) -> Finding:
    """Rows are independent: selecting rows of input and state commutes with the call."""
    count, tokens = case.x.shape[:2]
    selections = [*([row] for row in range(count)), list(range(count))[::-1], [0] * count]
    worst = 0.0
    with torch.no_grad():
        for index in selections:
            error = _rows_error(mixer, case, index)
            if not error <= case.bound:
                few = next(
                    n for n in range(1, tokens + 1) if not _rows_error(mixer, case.first(n), index) <= case.bound
                )
                words = f"rows {index} of {count}, {few} tokens, do not give the outputs they give in the batch"
                return Finding("rows", error, case.bound, words)
            worst = max(worst, error)
    return Finding("rows", worst, case.bound, f"{len(selections)} selections of {count} rows, before and after a state")


@_law
def cost(mixer: AnyMixer, case: Case) -> Finding:
    """The state holds at most, for most mixers exactly, the bytes that `spec` declares."""
    count, tokens = case.x.shape[:2]
    source = case.memory.shape[1]
    declared = price(mixer.spec(), tokens, source)
    if not mixer.streams:
        return Finding("cost", declared, 0.0, "keeps no state, so it must declare none")
    exact = True
    with torch.no_grad():
        for step in (1, 4):
            state: State | None = mixer.start(count, case.given)
            for begin in range(0, tokens, step):
                end = min(begin + step, tokens)
                _, state = mixer(case.x[:, begin:end], case.where(begin, end), state)
                held, promised = nbytes(state) / count, price(mixer.spec(), end, source)
                if held > promised:
                    words = f"after {end} tokens a row holds {held:.0f} bytes and declares {promised}"
                    return Finding("cost", held - promised, 0.0, words)
                exact = exact and held == promised
    words = f"{declared} bytes per row after {tokens} tokens, {'exactly' if exact else 'at most'}"
    return Finding("cost", 0.0, 0.0, words)


@_law
def reach(mixer: AnyMixer, case: Case) -> Finding:
    """The gradient of output i is zero for every input revealed after i, and before the declared reach."""
    tokens = case.x.shape[1]
    back, ahead = mixer.reach
    strength = trials.influence(mixer, case)
    if not bool(strength.isfinite().all()):
        return Finding(
            "reach", inf, case.bound, "a gradient is not finite, so that nothing can be said about influence"
        )
    strength = strength / strength.max().clamp(min=torch.finfo(strength.dtype).tiny)  # [i, j], of the strongest
    gap = torch.arange(tokens)[:, None] - torch.arange(tokens)  # i - j
    outside = (gap < -(tokens if ahead is None else ahead)) | (gap > (tokens if back is None else back))
    declared = f"declared: {_far(back)} back, {_far(ahead)} ahead"
    wrong = (outside & (strength > case.bound)).nonzero()
    if len(wrong):
        i, j = wrong[0].tolist()
        worst = float(strength[outside].max())
        return Finding("reach", worst, case.bound, f"token {i} is influenced by token {j}; {declared}")
    farthest = int(gap[strength > case.bound].max()) if bool((strength > case.bound).any()) else 0
    worst = float(strength[outside].max()) if bool(outside.any()) else 0.0
    return Finding("reach", worst, case.bound, f"measured {farthest} back over {tokens} tokens; {declared}")


LAWS: tuple[Law, ...] = (split, padding, rows, cost, reach)


def _refuses(mixer: AnyMixer, case: Case) -> Finding:
    """What the split law asks of a mixer that looks ahead."""
    refused = 0
    for attempt in (
        lambda: mixer.start(len(case.x), case.given),
        lambda: mixer(case.x, case.where(0, case.x.shape[1]), ()),
    ):
        try:
            attempt()
        except CannotStream:
            refused += 1
    return Finding("split", float(2 - refused), 0.0, "looks ahead, so it must refuse to start or to take a state")


def _smallest_cut(mixer: AnyMixer, case: Case, cuts: Sequence[int]) -> Finding:
    tokens = case.x.shape[1]
    for candidate in [*trials.spaced(2, tokens), *trials.cuttings(tokens), list(cuts)]:
        small = case.first(sum(candidate))
        whole, _ = mixer(small.x, small.where(0, sum(candidate)))
        error, token = trials.tokens_apart(whole, trials.run(mixer, small, candidate, poison=True))
        if not error <= case.bound * max(1.0, float(whole.abs().max())):
            words = f"{sum(candidate)} tokens cut {added_up(candidate)}: token {token} differs"
            return Finding("split", error, case.bound, words)
    return Finding(
        "split", inf, case.bound, f"outputs of {tokens} tokens cut {added_up(cuts)} differ from call to call"
    )


def _gradient_error(mixer: AnyMixer, case: Case, cuts: Sequence[int]) -> float:
    pairs = zip(trials.gradients(mixer, case, None), trials.gradients(mixer, case, cuts), strict=True)
    return max(distance(once, cut) for once, cut in pairs)


def _smallest_gradient(mixer: AnyMixer, case: Case, cuts: Sequence[int]) -> Finding:
    small = ([end - 1, 1] for end in range(2, case.x.shape[1] + 1))
    failing = (way for way in small if not _gradient_error(mixer, case.first(sum(way)), way) <= case.bound)
    candidate = next(failing, cuts)
    error = _gradient_error(mixer, case.first(sum(candidate)), candidate)
    words = f"the gradients of {sum(candidate)} tokens cut {added_up(candidate)} differ from one call's"
    return Finding("split", error, case.bound, words)


def _smallest_padding(mixer: AnyMixer, case: Case, schedule: trials.Schedule, garbage: float) -> Finding:
    pair = case.rows([0, len(case.x) - 1])
    small = trials.small_schedules(mixer, case.x.shape[1])
    failing = (way for way in small if not trials.ragged_error(mixer, pair, way, garbage)[0] <= case.bound)
    candidate = next(failing, None)
    some, candidate = (case, schedule) if candidate is None else (pair, candidate)
    error, row = trials.ragged_error(mixer, some, candidate, garbage)
    words = f"rows of {', then '.join(map(str, candidate))} tokens padded with {garbage:g}: row {row} changes"
    return Finding("padding", error, case.bound, words)


def _padding_gradient(mixer: AnyMixer, case: Case) -> float:
    """The largest gradient towards padding, relative to the largest towards a token."""
    count, tokens = case.x.shape[:2]
    where = case.where(0, tokens)
    real = torch.arange(tokens) < torch.tensor([max(0, tokens - 1 - row) for row in range(count)])[:, None]
    order = torch.where(real, where.order, -1)
    x = case.x.clone().requires_grad_()
    y, _ = mixer(x, type(where)(order, torch.where(real, where.position, 0), case.given))
    (gradient,) = trials.gradients_of(y[real].square().sum(), [x])
    if not bool(gradient.isfinite().all()):
        return inf
    return float(gradient[~real].abs().max() / gradient.abs().max().clamp(min=torch.finfo(gradient.dtype).tiny))


def _rows_error(mixer: AnyMixer, case: Case, index: Sequence[int]) -> float:
    tokens, part = case.x.shape[1], case.rows(index)
    whole, _ = mixer(case.x, case.where(0, tokens))
    error = distance(whole[list(index)], mixer(part.x, part.where(0, tokens))[0])
    if not mixer.streams:
        return error
    middle = tokens // 2
    _, state = mixer(case.x[:, :middle], case.where(0, middle), mixer.start(len(case.x), case.given))
    assert state is not None  # it streams
    kept = select(fork(state), index)
    straight, _ = mixer(case.x[:, middle:], case.where(middle, tokens), state)
    chosen, _ = mixer(part.x[:, middle:], part.where(middle, tokens), kept)
    return max(error, distance(straight[list(index)], chosen))


def _far(reach: int | None) -> str:
    return "any" if reach is None else str(reach)
