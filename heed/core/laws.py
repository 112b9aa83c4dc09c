"""The five laws of the contract, as measurements. Each gives a finding with numbers and the smallest failing case.

They run in float64 on a mixer in eval mode. A mixer that looks ahead cannot stream; of it the split law asks that it
refuse a state, and the others hold all the same. There is no skip list: what a mixer cannot do it declares.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .contract import Given, Mixer, Where
from .errors import CannotStream, HeedError
from .state import Seen, State, fork, leaves, nbytes, price, select

BOUND = 1e-12  # float64 carries 16 digits; a few hundred operations may cost the last three


@dataclass(frozen=True)
class Finding:
    """What a law found: the worst number it saw, the bound it must keep, and the case in words."""

    law: str
    error: float
    bound: float
    detail: str

    @property
    def holds(self) -> bool:
        return self.error <= self.bound  # NaN does not hold

    def __str__(self) -> str:
        return (
            f"{self.law} {'holds' if self.holds else 'FAILS'}: {self.error:.1e} (bound {self.bound:.0e}); {self.detail}"
        )


@dataclass(frozen=True)
class Case:
    """What a law feeds a mixer: random inputs, and a source for those that look at one."""

    x: Tensor  # [B, T, D]
    memory: Tensor  # [B, S, D]

    @classmethod
    def make(cls, width: int, *, rows: int = 3, tokens: int = 11, source: int = 5, seed: int = 0) -> Case:
        draw = torch.Generator().manual_seed(seed)
        x = torch.randn(rows, tokens, width, generator=draw, dtype=torch.float64)
        return cls(x, torch.randn(rows, source, width, generator=draw, dtype=torch.float64))

    @property
    def given(self) -> Given:
        return Given(memory=Seen.of(Where.run(*self.memory.shape[:2]), self.memory))

    def where(self, begin: int, end: int) -> Where:
        return replace_given(Where.run(len(self.x), end - begin, start=begin), self.given)

    def rows(self, index: Sequence[int]) -> Case:
        return Case(self.x[list(index)], self.memory[list(index)])

    def first(self, tokens: int) -> Case:
        return replace(self, x=self.x[:, :tokens])


AnyMixer: TypeAlias = "Mixer[Any]"
Law: TypeAlias = "Callable[[AnyMixer, Case], Finding]"


def _law(measure: Law) -> Law:
    """A mixer under test may raise anything torch raises: that is a finding too."""

    @wraps(measure)
    def law(mixer: AnyMixer, case: Case) -> Finding:
        try:
            return measure(mixer.double().eval(), case)
        except (HeedError, RuntimeError, ValueError, IndexError, AttributeError, TypeError) as error:
            return Finding(measure.__name__, float("inf"), 0.0, f"raised {type(error).__name__}: {error}")

    return law


@_law
def split(mixer: AnyMixer, case: Case) -> Finding:
    """Any cutting of a sequence into calls gives the outputs and the gradients of one call."""
    if not mixer.streams:
        return _refuses(mixer, case)
    tokens = case.x.shape[1]
    with torch.no_grad():
        whole, _ = mixer(case.x, case.where(0, tokens))
        worst = 0.0
        for cuts in _cuttings(tokens):
            error = _distance(whole, _run(mixer, case, cuts, poison=True))
            if not error <= BOUND:
                return _smallest_cut(mixer, case, cuts)
            worst = max(worst, error)
    target = torch.randn(whole.shape, generator=torch.Generator().manual_seed(1), dtype=whole.dtype)
    once = _gradients(mixer, case, [tokens], target, state=False)
    for cuts in ([1] * tokens, _random_cuts(tokens)):
        error = max(_distance(a, b) for a, b in zip(once, _gradients(mixer, case, cuts, target), strict=True))
        if not error <= BOUND:
            return Finding(
                "split", error, BOUND, f"the gradients of {tokens} tokens cut {_sum(cuts)} differ from one call's"
            )
        worst = max(worst, error)
    return Finding(
        "split", worst, BOUND, f"values and gradients of {tokens} tokens over {len(_cuttings(tokens))} cuttings"
    )


@_law
def padding(mixer: AnyMixer, case: Case) -> Finding:
    """Tokens of order -1 change neither other outputs nor the state, whatever they hold."""
    rows, tokens = case.x.shape[:2]
    worst = 0.0
    for garbage in (1e4, float("nan")):
        for lengths in ([max(0, tokens - 1 - 2 * row) for row in range(rows)], [0] + [tokens // 2] * (rows - 1)):
            error, row = _padded_error(mixer, case, lengths, garbage)
            if not error <= BOUND:
                small = _smallest_padding(mixer, case, garbage) or (lengths, error, row)
                words = f"rows of {small[0]} tokens padded with {garbage:g}: row {small[2]} changes"
                return Finding("padding", small[1], BOUND, words)
            worst = max(worst, error)
    leak = _padding_gradient(mixer, case)
    if leak != 0:
        return Finding("padding", leak, 0.0, "the gradient of real outputs with respect to padding is not zero")
    return Finding("padding", worst, BOUND, "ragged rows with numbers and NaN in the padding")


@_law
def rows(mixer: AnyMixer, case: Case) -> Finding:
    """Rows are independent: selecting rows of input and state commutes with the call."""
    count, tokens = case.x.shape[:2]
    worst = 0.0
    orders = [[row] for row in range(count)] + [list(range(count))[::-1], [0] * count]
    with torch.no_grad():
        whole, _ = mixer(case.x, case.where(0, tokens))
        for index in orders:
            part = case.rows(index)
            error = _distance(whole[index], mixer(part.x, part.where(0, tokens))[0])
            if mixer.streams:
                error = max(error, _selected_error(mixer, case, index))
            if not error <= BOUND:
                return Finding(
                    "rows", error, BOUND, f"rows {index} of {count} do not give the outputs they give in the batch"
                )
            worst = max(worst, error)
    return Finding("rows", worst, BOUND, f"{len(orders)} selections of {count} rows, before and after a state")


@_law
def cost(mixer: AnyMixer, case: Case) -> Finding:
    """The state holds at most, for most mixers exactly, the bytes that `spec` declares."""
    count, tokens = case.x.shape[:2]
    source = case.memory.shape[1]
    if not mixer.streams:
        declared = price(mixer.spec(), tokens, source)
        return Finding("cost", declared, 0.0, "keeps no state, so it must declare none")
    exact = True
    with torch.no_grad():
        for step in (1, 4):
            state: State | None = mixer.start(count, case.given)
            for begin in range(0, tokens, step):
                end = min(begin + step, tokens)
                _, state = mixer(case.x[:, begin:end], case.where(begin, end), state)
                held, declared = nbytes(state) / count, price(mixer.spec(), end, source)
                if held > declared:
                    words = f"after {end} tokens a row holds {held:.0f} bytes and declares {declared}"
                    return Finding("cost", held - declared, 0.0, words)
                exact = exact and held == declared
    declared = price(mixer.spec(), tokens, source)
    return Finding(
        "cost", 0.0, 0.0, f"{declared} bytes per row after {tokens} tokens, {'exactly' if exact else 'at most'}"
    )


@_law
def reach(mixer: AnyMixer, case: Case) -> Finding:
    """The gradient of output i is zero for every input revealed after i, and before the declared reach."""
    tokens = case.x.shape[1]
    back, ahead = mixer.reach
    x = case.x.clone().requires_grad_()
    y, _ = mixer(x, case.where(0, tokens))
    farthest, worst, found = 0, 0.0, ""
    for i in range(tokens):
        (gradient,) = torch.autograd.grad(y[:, i].square().sum(), x, retain_graph=True)
        strength = gradient.abs().amax((0, 2))  # [T]
        for j in strength.nonzero()[:, 0].tolist():
            farthest = max(farthest, i - j)
            outside = (ahead is not None and j - i > ahead) or (back is not None and i - j > back)
            if outside and not found:
                worst = float(strength[j])
                found = f"token {i} is influenced by token {j}; declared: {_none(back)} back, {_none(ahead)} ahead"
    words = f"measured {farthest} back over {tokens} tokens; declared {_none(back)} back, {_none(ahead)} ahead"
    return Finding("reach", worst, 0.0, found or words)


LAWS: tuple[Law, ...] = (split, padding, rows, cost, reach)


def replace_given(where: Where, given: Given) -> Where:
    """The same tokens beside other side inputs."""
    other = replace(where, given=given)
    other.known(where.span)
    return other


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


def _cuttings(tokens: int) -> list[list[int]]:
    half, third = tokens // 2, tokens // 3
    singly_then_many = [1] * (tokens - third) + [third]  # a ring has wrapped when the many arrive
    fixed = [[tokens], [1] * tokens, [half, tokens - half], [tokens - 1, 1], [1, tokens - 1], singly_then_many]
    return [[cut for cut in cuts if cut] for cuts in (*fixed, _random_cuts(tokens))]


def _random_cuts(tokens: int) -> list[int]:
    draw, cuts = random.Random(tokens), list[int]()
    while sum(cuts) < tokens:
        cuts.append(draw.randint(1, min(4, tokens - sum(cuts))))
    return cuts


def _run(mixer: AnyMixer, case: Case, cuts: Sequence[int], *, poison: bool = False) -> Tensor:
    state, outputs, begin = mixer.start(len(case.x), case.given), [], 0
    for length in cuts:
        before = state
        y, state = mixer(case.x[:, begin : begin + length], case.where(begin, begin + length), before)
        outputs.append(y)
        begin += length
        if poison:
            _poison(before, state)
    return torch.cat(outputs, 1)


def _poison(before: State, after: State | None) -> None:
    """A consumed state must not be needed any more: spoil what it holds alone."""
    alive = {t.untyped_storage().data_ptr() for leaf in leaves(after) for t in leaf.storage()}
    for leaf in leaves(before):
        for tensor in leaf.storage():
            if tensor.numel() and tensor.is_floating_point() and tensor.untyped_storage().data_ptr() not in alive:
                tensor.fill_(float("nan"))


def _gradients(mixer: AnyMixer, case: Case, cuts: Sequence[int], target: Tensor, *, state: bool = True) -> list[Tensor]:
    x = case.x.clone().requires_grad_()
    inputs = [x, *(p for p in mixer.parameters() if p.requires_grad)]
    live = replace(case, x=x)
    y = _run(mixer, live, cuts) if state else mixer(x, live.where(0, x.shape[1]))[0]
    return list(torch.autograd.grad((y * target).sum(), inputs, allow_unused=True, materialize_grads=True))


def _smallest_cut(mixer: AnyMixer, case: Case, cuts: Sequence[int]) -> Finding:
    tokens = case.x.shape[1]
    candidates = [[first, last - first] for last in range(2, tokens + 1) for first in range(last - 1, 0, -1)]
    for candidate in [*candidates, *_cuttings(tokens), list(cuts)]:
        small = case.first(sum(candidate))
        whole, _ = mixer(small.x, small.where(0, sum(candidate)))
        gap = (whole - _run(mixer, small, candidate, poison=True)).abs().amax((0, 2)).nan_to_num(float("inf"))
        if float(gap.max()) > BOUND * max(1.0, float(whole.abs().max())):
            words = f"{sum(candidate)} tokens cut {_sum(candidate)}: token {int(gap.argmax())} differs"
            return Finding("split", float(gap.max()), BOUND, words)
    return Finding("split", float("inf"), BOUND, f"outputs of {tokens} tokens cut {_sum(cuts)} are not the same twice")


def _padded_error(mixer: AnyMixer, case: Case, lengths: Sequence[int], garbage: float) -> tuple[float, int]:
    """Ragged rows with garbage in the padding, then (if it streams) the rest of each row: against each row alone."""
    count, tokens = case.x.shape[:2]
    source = [max(1, case.memory.shape[1] - row) for row in range(count)]
    memory, width = case.memory.clone(), max(1, *lengths)
    x = case.x[:, :width].clone()
    for row in range(count):
        x[row, lengths[row] :] = garbage
        memory[row, source[row] :] = garbage
    given = Given(memory=Seen.of(Where.ragged(source, width=memory.shape[1]), memory))
    where = replace_given(Where.ragged(lengths, width=width), given)
    worst, at = 0.0, 0
    with torch.no_grad():
        state = mixer.start(count, given) if mixer.streams else None
        y, state = mixer(x, where, state)
        later, rest_y = tokens - max(lengths), y
        if mixer.streams and later:
            begin = torch.tensor(lengths)
            rest = torch.stack([case.x[row, n : n + later] for row, n in enumerate(lengths)])
            more = replace_given(Where.ragged([later] * count, start=begin), given)
            rest_y, _ = mixer(rest, more, state)
        for row, n in enumerate(lengths):
            alone = Case(case.x[row : row + 1], case.memory[row : row + 1, : source[row]])
            total = n + later if mixer.streams else n
            if not total:
                continue
            truth, _ = mixer(alone.x[:, :total], alone.where(0, total))
            error = _distance(truth[0, :n], y[row, :n])
            if mixer.streams and later:
                error = max(error, _distance(truth[0, n:], rest_y[row]))
            if not error <= worst:
                worst, at = error, row
    return worst, at


def _smallest_padding(mixer: AnyMixer, case: Case, garbage: float) -> tuple[list[int], float, int] | None:
    pair = case.rows([0, len(case.x) - 1])
    for longest in range(1, case.x.shape[1]):
        for lengths in ([longest, n] for n in range(longest)):
            error, row = _padded_error(mixer, pair, lengths, garbage)
            if not error <= BOUND:
                return lengths, error, row
    return None


def _padding_gradient(mixer: AnyMixer, case: Case) -> float:
    count, tokens = case.x.shape[:2]
    where = Where.ragged([max(0, tokens - 1 - row) for row in range(count)], width=tokens)
    x = case.x.clone().requires_grad_()
    y, _ = mixer(x, replace_given(where, case.given))
    (gradient,) = torch.autograd.grad((y * where.real[..., None]).square().sum(), x)
    return float(gradient[~where.real].abs().max())


def _selected_error(mixer: AnyMixer, case: Case, index: Sequence[int]) -> float:
    tokens = case.x.shape[1]
    middle = tokens // 2
    _, state = mixer(case.x[:, :middle], case.where(0, middle), mixer.start(len(case.x), case.given))
    assert state is not None  # it streams
    kept, part = select(fork(state), index), case.rows(index)
    straight, _ = mixer(case.x[:, middle:], case.where(middle, tokens), state)
    chosen, _ = mixer(part.x[:, middle:], part.where(middle, tokens), kept)
    return _distance(straight[list(index)], chosen)


def _distance(a: Tensor, b: Tensor) -> float:
    """Largest difference, relative to the largest magnitude where that exceeds one; infinite if not a number."""
    if not a.numel():
        return 0.0
    gap = (a - b).abs().max() / a.abs().max().clamp(min=1.0)
    return float(gap.nan_to_num(float("inf")))


def _sum(cuts: Sequence[int]) -> str:
    return "+".join(map(str, cuts))


def _none(reach: int | None) -> str:
    return "any" if reach is None else str(reach)
