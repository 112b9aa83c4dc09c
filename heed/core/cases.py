"""Law cases: the inputs that the laws feed a mixer, and how far apart two outcomes are."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .contract import Given, Mixer, Where
from .state import Seen, State, leaves

AnyMixer: TypeAlias = "Mixer[Any]"
Schedule: TypeAlias = "list[list[int]]"  # for each call, how many tokens each row gets
BOUND = 1e-12  # float64 carries 16 digits; a few hundred operations may cost the last three
CHUNK, RETRIEVED = 4, 6  # with the last of every four tokens six entries of neighbours arrive


@dataclass(frozen=True)
class Case:
    """Random inputs, and an encoder output for mixers that look at one; neighbours are made of its first token.

    The position of a token is not its order: a cache that takes one for the other is found out.
    """

    x: Tensor  # [B, T, D]
    memory: Tensor  # [B, S, D]

    @classmethod
    def make(
        cls,
        width: int,
        *,
        rows: int = 3,
        tokens: int = 11,
        source: int = 5,
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
    ) -> Case:
        draw = torch.Generator().manual_seed(seed)
        x = torch.randn(rows, tokens, width, generator=draw, dtype=torch.float64)
        return cls(x.to(dtype), torch.randn(rows, source, width, generator=draw, dtype=torch.float64).to(dtype))

    @property
    def bound(self) -> float:
        """How far two ways to the same result may be apart.

        Where float32 is computed with, by kernels, too: what a sum over all tokens and channels of a row is off by, the
        root of their number in units of its last place, eight times over for gradients that pass through several.
        """
        if self.x.dtype == torch.float64:
            return BOUND
        return 8 * torch.finfo(self.x.dtype).eps * sqrt(self.x.shape[1] * self.x.shape[2])

    @property
    def given(self) -> Given:
        return Given(encoder_output=Seen.of(Where.run(*self.memory.shape[:2]), self.memory))

    def where(self, begin: int, end: int) -> Where:
        run = Where.run(len(self.x), end - begin, start=begin)
        given = replace(self.given, neighbours=arrived(self.memory, [begin] * len(self.x), [end] * len(self.x)))
        where = Where(run.order, 2 * run.order[:1].expand_as(run.order) + 3, given)
        where.known(run.span)
        return where

    def rows(self, index: Sequence[int]) -> Case:
        return Case(self.x[list(index)], self.memory[list(index)])

    def first(self, tokens: int) -> Case:
        return replace(self, x=self.x[:, :tokens])


def arrived(memory: Tensor, begin: Sequence[int], end: Sequence[int]) -> Seen | None:
    """The neighbours of the chunks whose last token is among begin .. end-1 of a row; some entries are padding.

    Entry j of chunk u is the row's first source token with its channels moved on, other ones for every u and j.
    """
    chunks = [range(first // CHUNK, last // CHUNK) for first, last in zip(begin, end, strict=True)]
    most = max(map(len, chunks))
    if not most:
        return None
    number = torch.tensor([[*row, *[-1] * (most - len(row))] for row in chunks])[..., None]  # [B, U, 1]
    entry = torch.arange(RETRIEVED)
    move = (number * RETRIEVED + entry)[..., None] + torch.arange(memory.shape[2])  # [B, U, E, D]
    x = memory[:, :1, None].expand(*move.shape).take_along_dim(move % memory.shape[2], -1)
    hidden = (number + entry) % 5 == 4
    place = (entry % 3).expand_as(hidden).masked_fill(hidden, -1)
    x = (x * torch.where(hidden, 100, 1)[..., None]).masked_fill((number < 0)[..., None], float("nan"))
    return Seen(number.expand_as(place).flatten(1), place.flatten(1), x.flatten(1, 2))


def cuttings(tokens: int) -> list[list[int]]:
    """Ways to cut a sequence into calls."""
    half, third = tokens // 2, tokens // 3
    singly_then_many = [1] * (tokens - third) + [third]  # a ring has wrapped when the many arrive
    ends = ([tokens - 1, 1], [1, tokens - 1], [half, tokens - half])
    ways = [[tokens], [1] * tokens, *ends, singly_then_many, random_cuts(tokens)]
    return [[cut for cut in cuts if cut] for cuts in ways]  # a call brings at least one token


def random_cuts(tokens: int) -> list[int]:
    """One to four tokens at a time, the same every time."""
    draw, cuts = random.Random(tokens), list[int]()
    while sum(cuts) < tokens:
        cuts.append(draw.randint(1, min(4, tokens - sum(cuts))))
    return cuts


def run(mixer: AnyMixer, case: Case, cuts: Sequence[int], *, poison: bool = False) -> Tensor:
    """The outputs of a sequence that is cut into calls, side by side."""
    state, outputs, begin = mixer.start(len(case.x), case.given), [], 0
    for length in cuts:
        before = state
        y, state = mixer(case.x[:, begin : begin + length], case.where(begin, begin + length), before)
        outputs.append(y)
        begin += length
        if poison:
            _poison(before, state)
    return torch.cat(outputs, 1)


def gradients(mixer: AnyMixer, case: Case, cuts: Sequence[int] | None) -> list[Tensor]:
    """Of a random mean of all outputs, towards input, source and weights; `cuts` = None is one call without state."""
    live = Case(case.x.clone().requires_grad_(), case.memory.clone().requires_grad_())
    inputs = [live.x, live.memory, *(p for p in mixer.parameters() if p.requires_grad)]
    y = mixer(live.x, live.where(0, live.x.shape[1]))[0] if cuts is None else run(mixer, live, cuts)
    target = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    return gradients_of((y * target).sum(), inputs)


def influence(mixer: AnyMixer, case: Case) -> Tensor:
    """How strongly token i is influenced by token j: the largest gradient of the square of output i. [i, j]"""
    tokens = case.x.shape[1]
    x = case.x.clone().requires_grad_()
    y, _ = mixer(x, case.where(0, tokens))
    return torch.stack(
        [gradients_of(y[:, i].square().sum(), [x], again=True)[0].abs().amax((0, 2)) for i in range(tokens)]
    )


def gradients_of(y: Tensor, inputs: Sequence[Tensor], *, again: bool = False) -> list[Tensor]:
    """The gradient of a number; zero towards what it does not depend on at all."""
    if not y.requires_grad:
        return [torch.zeros_like(tensor) for tensor in inputs]
    return list(torch.autograd.grad(y, inputs, retain_graph=again, allow_unused=True, materialize_grads=True))


def schedules(mixer: AnyMixer, rows: int, tokens: int) -> Iterator[Schedule]:
    """Ragged rows in the first call or in a later one, rows without any token among them."""
    falling = [max(0, tokens - 1 - 2 * row) for row in range(rows)]
    for first in (falling, [0] + [tokens // 2] * (rows - 1)):
        later = tokens - max(first)
        yield [first, [later] * rows] if mixer.streams else [first]
    if mixer.streams and tokens > 3:
        singly = [[1] * rows] * (tokens - 3)
        yield [*singly, [0] + [2] * (rows - 1), [1] * rows]
        yield [*singly, [2] * (rows - 1) + [0], [1] * rows]


def small_schedules(mixer: AnyMixer, tokens: int) -> Iterator[Schedule]:
    """Two rows, from the simplest on."""
    for longest in range(1, tokens):
        for other in range(longest):
            yield [[longest, other], [1, 1]] if mixer.streams else [[longest, other]]
    if mixer.streams:
        yield from ([[1, 1]] * before + [[1, 0], [1, 1]] for before in range(1, tokens - 1))


def ragged_error(mixer: AnyMixer, case: Case, schedule: Schedule, garbage: float) -> tuple[float, int]:
    """How far rows that are called together, with garbage in their padding, are from each row alone; and which row."""
    count = len(case.x)
    source = [max(1, case.memory.shape[1] - row) for row in range(count)]
    memory = case.memory.clone()
    for row in range(count):
        memory[row, source[row] :] = garbage
    given = Given(encoder_output=Seen.of(Where.ragged(source, width=memory.shape[1]), memory))
    done, outputs = [0] * count, [list[Tensor]() for _ in range(count)]
    state = mixer.start(count, given) if mixer.streams else None
    for lengths in schedule:
        x = torch.full((count, max(1, *lengths), case.x.shape[2]), garbage, dtype=case.x.dtype)
        for row, n in enumerate(lengths):
            x[row, :n] = case.x[row, done[row] : done[row] + n]
        stamps = Where.ragged(lengths, start=torch.tensor(done), width=x.shape[1])
        position = torch.where(stamps.real, 2 * stamps.order + 3, 0)
        now = arrived(memory, done, [before + n for before, n in zip(done, lengths, strict=True)])
        y, state = mixer(x, Where(stamps.order, position, replace(given, neighbours=now)), state)
        for row, n in enumerate(lengths):
            outputs[row].append(y[row, :n])
            done[row] += n
    errors = [
        _alone(mixer, Case(case.x[row : row + 1, : done[row]], case.memory[row : row + 1, : source[row]]), outputs[row])
        for row in range(count)
    ]
    return max(errors), errors.index(max(errors))


def distance(a: Tensor, b: Tensor) -> float:
    """Largest difference, relative to the largest magnitude where that exceeds one; infinite if not a number.

    Tensors of different shapes are infinitely far apart: no row of the one is compared with all rows of the other.
    """
    if a.shape != b.shape:
        return float("inf")
    if not a.numel():
        return 0.0
    gap = (a - b).abs().max() / a.abs().max().clamp(min=1.0)
    return float(gap.nan_to_num(float("inf")))


def tokens_apart(a: Tensor, b: Tensor) -> tuple[float, int]:
    """How far two outputs are apart at most, and at which token. [B, T, D] twice"""
    gap = (a - b).abs().amax((0, 2)).nan_to_num(float("inf"))
    return float(gap.max()), int(gap.argmax())


def added_up(numbers: Sequence[int]) -> str:
    """3+1+2"""
    return "+".join(map(str, numbers))


def spaced(first: int, last: int) -> list[list[int]]:
    """Every way to cut up to `last` tokens in two, the shortest sequences first, the latest cuts first."""
    return [[cut, end - cut] for end in range(first, last + 1) for cut in range(end - 1, 0, -1)]


def _alone(mixer: AnyMixer, case: Case, outputs: list[Tensor]) -> float:
    """A row by itself in one call, against what it gave among others."""
    tokens = case.x.shape[1]
    if not tokens:
        return 0.0
    truth, _ = mixer(case.x, case.where(0, tokens))
    ends = [0]
    for output in outputs:
        ends.append(ends[-1] + len(output))
    return max(distance(truth[0, a:b], y) for (a, b), y in zip(pairwise(ends), outputs, strict=True))


def _poison(before: State, after: State | None) -> None:
    """A consumed state must not be needed any more: spoil what it holds alone."""
    alive = {t.untyped_storage().data_ptr() for leaf in leaves(after) for t in leaf.storage()}
    for leaf in leaves(before):
        for tensor in leaf.storage():
            if tensor.numel() and tensor.is_floating_point() and tensor.untyped_storage().data_ptr() not in alive:
                tensor.fill_(float("nan"))
