"""What can be seen inside a call, whatever form of attention it is: scale, softmax, and whether tokens stay apart.

Two calls that differ in one token are traced. What the second changes in queries and keys tells whether heads were cut
out of the right places; what the weights sum to tells over which axis the softmax runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from .bugs import named_by
from .factors import Flow
from .foreign.adapt import Ours
from .masks import Form
from .outcome import Clue, Outcome, Status, Sure
from .reference import distance, scales_of
from .subject import QUIET, Subject
from .trace import Product, Softmaxed, Trace, Tracer

BIASES = re.compile(r"bias|(^|[._])(b|beta)([._]?[qkvo]\w*)?$", re.IGNORECASE)
BEYOND = 1e6  # no score of an ordinary input is as large
NUDGED = 1  # the token of row 0 that the second call changes


@dataclass(frozen=True)
class Looks:
    """Two traced calls, of which the second has another token 1 in row 0."""

    x: Tensor
    source: Tensor | None
    y: Tensor
    heads: int
    first: Trace
    second: Trace

    @cached_property
    def flow(self) -> Flow | None:
        """By what the scores of the first attention were scaled; None if no softmax of a product was seen."""
        return next((flow for flow in self.first.scores if flow.size is not None), None)

    @property
    def keys(self) -> int:
        return (self.x if self.source is None else self.source).shape[1]

    @cached_property
    def scale(self) -> str | None:
        """The name of the scale, by its number; None if it cannot be followed, "other" if it is none of the usual."""
        if self.flow is None or not self.flow.known or self.flow.size is None:
            return None
        usual = scales_of(self.flow.size, self.heads, self.keys, self.x.shape[-1])
        return next(
            (name for name, number in usual.items() if math.isclose(number, self.flow.factor, rel_tol=1e-6)), "other"
        )

    @cached_property
    def summed(self) -> bool | None:
        """Whether the weights sum to one over what they sum: over the keys. None if that was not seen."""
        if self.first.fused:
            return True
        for seen in self.first.softmaxes:
            if seen.flow.size is None:
                continue
            for sums in self._mixing(seen):
                known = sums[sums.isfinite()]  # of a token that sees nothing there is no sum
                return distance(known, torch.ones_like(known)) <= 1e-6 if known.numel() else None
        return None

    def _mixing(self, seen: Softmaxed) -> list[Tensor]:
        """What a softmax's weights sum to along the axis that a product with the values sums over."""
        found = []
        for one, other, _ in self.first.products:
            if _same(one, seen.weights) or _same(one, seen.weights.mT):
                found.append(one.sum(-1))
            elif _same(other, seen.weights) or _same(other, seen.weights.mT):
                found.append(other.sum(-2))
        return found

    @cached_property
    def keys_summed(self) -> bool:
        """Whether what the weights sum is the keys, just as they met the queries."""
        if self.first.fused:
            return any(_same(fused.key, fused.value) for fused in self.first.fused)
        if self.flow is None or self.flow.product is None:
            return False
        product = self.first.products[self.flow.product]
        weights = [seen.weights for seen in self.first.softmaxes if seen.flow.size is not None]
        summed = [p.other for p in self.first.products if any(_same(p.one, w) for w in weights)]
        return any(_same(keys, value) for keys in (product.one, product.other.mT) for value in summed)

    @cached_property
    def strayed(self) -> list[int]:
        """Tokens whose scores of other keys change with a token that is neither: they are of that token's query."""
        for one, two in zip(self.first.softmaxes, self.second.softmaxes, strict=False):
            tokens = self.x.shape[1]
            if one.scores.shape[-2:] != (tokens, tokens) or one.scores.shape != two.scores.shape:
                continue
            gap = (one.scores - two.scores).abs().nan_to_num(0.0).reshape(-1, tokens, tokens).amax(0)
            moved = gap > QUIET * one.scores.nan_to_num(0.0, 0.0, 0.0).abs().max()
            moved[NUDGED], moved[:, NUDGED] = False, False
            return [int(row) for row in moved.any(-1).nonzero().flatten()]
        return []

    @cached_property
    def apart(self) -> bool | None:
        """Whether each head's queries, keys and outputs of a token are of that token; None if they are not seen."""
        if self._shifted():
            return None
        told = [made for made in (self._cut(), self._merged()) if made is not None]
        return all(told) if told else None

    def _shifted(self) -> bool:
        """Whether whole tokens stand elsewhere in some heads, as where half of them look from another place: meant."""
        return any(
            len(touched) * len(self.x) == len(moved)
            and bool((touched.sum(-1) == 1).all())
            and not bool((touched == touched[:1]).all())
            for moved, touched in self._moved()
        )

    def _cut(self) -> bool | None:
        """A token that changes must change the same queries and keys in every head of its row."""
        told = []
        for moved, touched in self._moved():
            alike = bool((touched == touched[:1]).all())
            if alike and len(touched) == len(moved) and len(self.x) > 1:
                continue  # the same token of every row: rows are mixed, and heads are not
            told.append(alike and len(touched) * len(self.x) == len(moved))
        return all(told) if told else None

    def _moved(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Which queries, then which keys, change with one token, in all heads and in those where any does. [H, T]"""
        for one, two in zip(self._met(self.first), self._met(self.second), strict=False):
            if one.shape != two.shape or one.dim() < 3 or one[..., 0, 0].numel() % len(self.x):
                continue
            moved = ((one - two).abs().nan_to_num(1.0).amax(-1) > QUIET).flatten(0, -2)  # [rows·heads, tokens]
            touched = moved[moved.any(-1)]
            if len(touched):  # else queries are learnt, and not made of the stream
                yield moved, touched

    @cached_property
    def _heads_first(self) -> bool:
        """Whether rows of one head stand together, rather than heads of one row: row 0 was changed."""
        rows = len(self.x)
        for moved, touched in self._moved():
            places = moved.any(-1).nonzero().flatten().tolist()
            if 1 < len(touched) == len(moved) // rows:
                return rows > 1 and places == list(range(0, len(moved), rows))
        return False

    def _met(self, trace: Trace) -> list[Tensor]:
        """Queries and keys as they meet, where tokens stand last but one. [..., T, d]"""
        if trace.fused:
            both = [trace.fused[0].query, trace.fused[0].key]
        elif self.flow is not None and self.flow.product is not None and self.flow.product < len(trace.products):
            product = trace.products[self.flow.product]
            both = [product.one, product.other.mT] if product.other.dim() > 1 else []
        else:
            return []
        return [part.detach() for part in both if part.dim() > 1 and part.shape[-2] in (self.x.shape[1], self.keys)]

    def _merged(self) -> bool | None:
        """The outputs of all heads, put side by side: those of one token stay together."""
        context = self._context()
        if context is None:
            return None
        rows, tokens = self.x.shape[:2]
        whole = context.flatten().sort().values
        for later in (*(p.given for p in self.first.projections), self.y):
            if later.numel() != whole.numel() or distance(later.flatten().sort().values, whole) > 1e-12:
                continue
            if self._heads_first:
                heads = context.reshape(-1, rows, tokens, context.shape[-1]).transpose(0, 1)
            else:
                heads = context.reshape(rows, -1, tokens, context.shape[-1])
            right = heads.transpose(1, 2).flatten(2).sort(-1).values  # [B, T, H·d]
            laid = (later.reshape(rows, tokens, -1), later.reshape(tokens, rows, -1).transpose(0, 1))
            return any(part.shape == right.shape and distance(part.sort(-1).values, right) <= 1e-12 for part in laid)
        return None

    def _context(self) -> Tensor | None:
        """What the weights make of the values, head by head. [..., T, d]"""
        rows, tokens = self.x.shape[:2]
        for made in [fused.made for fused in self.first.fused] or self._contexts():
            if made.dim() >= 3 and made.shape[-2] == tokens and made.numel() % (rows * tokens) == 0:
                return made.detach()
        return None

    def _contexts(self) -> list[Tensor]:
        weights = [seen.weights for seen in self.first.softmaxes if seen.flow.size is not None]
        return [p.made for p in self.first.products if any(_same(p.one, w) for w in weights)]


def _same(one: Tensor, other: Tensor) -> bool:
    return one.numel() == other.numel() and distance(one.flatten(), other.flatten()) == 0


def looked(subject: Subject) -> Looks | None:
    """Both calls, made once, of a copy whose biases are zero; None if they cannot be made."""
    if "_looks" not in subject.__dict__:
        subject.__dict__["_looks"] = _looked(subject)
    kept: Looks | None = subject.__dict__["_looks"]
    return kept


def _looked(subject: Subject) -> Looks | None:
    if isinstance(subject.module, Ours):  # a mixer of heed: the contract asks it more than this
        return None
    plain = unbiased(subject)
    x, source = subject.stream(), subject.source()
    moved = subject.nudged(x, NUDGED, 0) if x.shape[1] > NUDGED else x
    beside = None if source is None else subject.nudged(source, NUDGED, 0)
    y, first = plain.watched(x, source)
    _, second = plain.watched(moved, beside)
    return Looks(x, source, y.detach(), subject.sizes.heads, first, second)


def unbiased(subject: Subject) -> Subject:
    """A copy whose biases are zero: then a projection is all there is between a weight and the scores."""
    plain = subject.copied()
    if plain.module is not None:
        with torch.no_grad():
            for name, weight in plain.module.named_parameters():
                if BIASES.search(name):
                    weight.zero_()
    return plain


def half_hidden(subject: Subject, form: Form) -> tuple[str, str] | None:
    """How a mask hides by halves: after the softmax, as zeros before it, or by a number that scores reach.

    The bug and what was seen of it; None if it is none of these.
    """
    x, source = subject.stream(), subject.source()
    sees = torch.ones(len(x), x.shape[1], subject.keys(x), dtype=torch.bool)
    sees[:, :, 2] = False
    _, trace = subject.watched(x, source, sees=sees, form=form)
    for seen in trace.softmaxes:
        if seen.scores.shape[-1] != sees.shape[-1]:
            continue
        if bool((seen.scores[..., 2] == 0).all()):
            return "mask-after-softmax", "the scores of hidden keys are 0, which the softmax makes 1 before it divides"
        if (number := _one_number(seen.scores[..., 2])) is not None and abs(number) < BEYOND:
            return "finite-mask", f"the scores of hidden keys are {number:g}, which ordinary scores reach"
        if bool((seen.weights[..., 2] > 0).all()) and any(
            _blanked(product, seen.weights) for product in (*trace.products, *_turned(trace.gates))
        ):
            return (
                "mask-after-softmax",
                "the softmax still gives weight to hidden keys, and they are taken out after it",
            )
    return None


def _one_number(scores: Tensor) -> float | None:
    """The number that all of them are, if it is one."""
    first = float(scores.flatten()[0])
    return first if math.isfinite(first) and bool((scores == first).all()) else None


def _turned(gates: Sequence[Product]) -> Iterator[Product]:
    """Weights that are multiplied one by one may stand on either side."""
    for gate in gates:
        yield from (gate, Product(gate.other, gate.one, gate.made))


def _blanked(product: Product, weights: Tensor) -> bool:
    """Whether the weights, as they meet the values, lack the hidden key; they may stand on either side."""
    for part in (product.one, product.one.mT, product.other, product.other.mT):
        if part.numel() == weights.numel() and part.shape[-2:] == weights.shape[-2:]:
            left = part.reshape(weights.shape)
            if bool((left[..., 2] == 0).all()) and bool((left[..., 0] > 0).any()):
                return True
    return False


def weighed(subject: Subject, outcomes: list[Outcome]) -> list[Outcome]:
    """What was found, less what is meant so: by its name, or because tokens are sorted or chosen by their numbers."""
    doubtful = {"head-mixing", "softmax-axis", "future-leak", "padding-leak", "mask-on-queries"}
    named = {"overflow"} & named_by(subject.name)
    clues = [clue for outcome in outcomes for clue in outcome.clues]
    if any(outcome.probe.startswith("gradient ") or outcome.probe == "gradient" for outcome in _failed(outcomes)):
        doubtful -= {"future-leak"}  # no gradient leads through a choice: the weights themselves look ahead
    chosen = any(clue.slug in doubtful for clue in clues) and chooses(subject)
    told = [clue for clue in clues if clue.slug in named or (chosen and clue.slug in doubtful)]

    def less(clue: Clue) -> Clue:
        return replace(clue, sure=Sure.CONVENTION) if clue in told and clue.sure < Sure.CERTAIN else clue

    return [replace(outcome, clues=tuple(map(less, outcome.clues))) for outcome in outcomes]


def _failed(outcomes: Sequence[Outcome]) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.status is Status.FAIL]


def chooses(subject: Subject) -> bool:
    """Whether tokens are chosen, by hashes, clusters or scores of their own; not only the best keys of each query."""
    x = subject.stream()
    try:
        choices = subject.watched(x, subject.source())[1].choices
    except Exception:  # foreign code may raise anything
        return False
    return any(shape[-2:] != (x.shape[1], subject.keys(x)) for shape in choices)


def of_length(told: str, model: nn.Module, run: Callable[[int], object], lengths: tuple[int, int]) -> Clue:
    """Why the scores of a text's beginning are others alone: later tokens are seen, or how many there are scales."""
    flows = list[Flow]()
    for tokens in lengths:
        tracer = Tracer.of(model)
        with tracer.watching():
            run(tokens)
        flows += [flow for flow in tracer.trace.scores if flow.size is not None and flow.known][:1]
    many, few = lengths
    if len(flows) < 2 or not math.isclose(flows[0].factor / flows[1].factor, (few / many) ** 0.5, rel_tol=1e-3):
        return Clue("future-leak", Sure.LIKELY, told)
    by = f"scores are scaled by {flows[0].factor:.3g} for {many} tokens and by {flows[1].factor:.3g} for {few}"
    return Clue("wrong-scale", Sure.LIKELY, f"{told}: {by}, by how many there are")
