"""What maps say in words: the strongest pairs, and which heads change from one text to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import torch
from torch import Tensor

from ..core.config import nearest
from ..core.errors import InputError
from .collect import Layer

SPACES = "ĠĊ▁ "  # what tokenizers put for a space before a word


@dataclass(frozen=True)
class Pair:
    """One weight: in this layer and head the token `row` looks at the token `column`."""

    part: str
    layer: int
    head: int
    row: int
    column: int
    looks: str
    at: str
    weight: float


@dataclass(frozen=True)
class Change:
    """What one head does about one token in another text: where most of its weight goes away from, and where to."""

    part: str
    layer: int
    head: int
    row: int
    looks: str
    moved: float  # of the weight of this row, the share that went elsewhere, from 0 to 1 in a softmax
    lost: str
    lost_from: float
    lost_to: float
    won: str
    won_from: float
    won_to: float


def word(name: str) -> str:
    """A token as people write it: without what a tokenizer puts for a space, or for the lack of one."""
    bare = name.strip(SPACES).removeprefix("##").removesuffix("</w>")
    return bare or name


def is_marker(name: str) -> bool:
    """Whether a token stands for no text: [CLS], <s>, <|endoftext|>."""
    bare = name.strip(SPACES)
    return len(bare) > 2 and (bare[0], bare[-1]) in {("[", "]"), ("<", ">")}


def strongest(layers: Sequence[Layer], count: int = 10) -> tuple[Pair, ...]:
    """The strongest weights between two tokens of a text, of each pair of tokens the head that has most.

    Left out are a token and itself, markers and, in a text that is read from left to right, the first token: heads that
    have nothing to do rest there. So are rows that have nothing to choose.
    """
    best: dict[tuple[str, int, int], Pair] = {}
    for layer in layers:
        weights = layer.weights.clone()
        same = layer.rows == layer.columns
        choice = (weights != 0).sum(-1, keepdim=True) > 1
        weights = weights.masked_fill(~choice, 0)
        if same:
            weights.diagonal(dim1=1, dim2=2).zero_()
            if not layer.weights.triu(1).any():
                weights[:, :, 0] = 0
        for place, name in enumerate(layer.columns):
            if is_marker(name):
                weights[:, :, place] = 0
        top, head = weights.abs().max(0)  # [rows, columns]
        for place in top.flatten().topk(min(4 * count, top.numel())).indices.tolist():
            row, column = divmod(place, top.shape[1])
            value = float(weights[head[row, column], row, column])
            key = (layer.part, row, column)
            if value and (key not in best or abs(value) > abs(best[key].weight)):
                of = layer.heads[int(head[row, column])]
                names = layer.rows[row], layer.columns[column]
                best[key] = Pair(layer.part, layer.number, of, row, column, *names, value)
    return tuple(sorted(best.values(), key=lambda pair: -abs(pair.weight))[:count])


def aligned(one: Sequence[str], other: Sequence[str]) -> list[tuple[int, int]]:
    """Which token of one text is which of the other: equal ones, and those that stand in the place of others."""
    found = []
    for what, a, b, c, d in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if what == "equal" or (what == "replace" and b - a == d - c):
            found += list(zip(range(a, b), range(c, d), strict=True))
    return found


def changes(
    before: Sequence[Layer], after: Sequence[Layer], of: str | None = None, count: int = 10
) -> tuple[Change, ...]:
    """The heads that change most from one text to another, each by the token that changes most in it.

    `of` names a token: then only what that token looks at counts. Of tokens that only one of the texts has, nothing is
    said; their weight is what the others lost or won.
    """
    found = [change for one, two in zip(before, after, strict=True) for change in _changed(one, two, of)]
    return tuple(sorted(found, key=lambda change: -change.moved)[:count])


def _changed(one: Layer, two: Layer, of: str | None) -> Iterator[Change]:
    rows, columns = aligned(one.rows, two.rows), aligned(one.columns, two.columns)
    if of is not None:
        rows = [pair for pair in rows if word(one.rows[pair[0]]).lower() == of.lower()]
        if not rows:
            words = [word(name) for name in one.rows]
            raise InputError(f"no token that both texts have is called {of!r}{nearest(of, words)}")
    if not rows or not columns:
        raise InputError("the two texts have no token in common, so no head can be compared; change a word or two")
    first, second = (_shared(layer, rows, columns, which) for which, layer in enumerate((one, two)))
    for place, head in enumerate(one.heads):
        gone = (second[place] - first[place]).clamp(max=0).neg().sum(-1)
        come = (second[place] - first[place]).clamp(min=0).sum(-1)
        moved = torch.maximum(gone, come)
        row = int(moved.argmax())
        change = second[place, row] - first[place, row]
        lost, won = int(change.argmin()), int(change.argmax())
        yield Change(
            one.part,
            one.number,
            head,
            rows[row][0],
            one.rows[rows[row][0]],
            float(moved[row]),
            one.columns[columns[lost][0]],
            float(first[place, row, lost]),
            float(second[place, row, lost]),
            one.columns[columns[won][0]],
            float(first[place, row, won]),
            float(second[place, row, won]),
        )


def _shared(layer: Layer, rows: list[tuple[int, int]], columns: list[tuple[int, int]], which: int) -> Tensor:
    """The weights between the tokens that both texts have. [heads, rows, columns]"""
    return layer.weights[:, [pair[which] for pair in rows]][:, :, [pair[which] for pair in columns]]
