"""Sparse patterns in their cheap forms against the equation, forwards and backwards."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.parts.attention import sparse as patterns
from heed.parts.attention.attend import attend, written_out
from heed.parts.attention.sdpa import How, pays
from heed.parts.masks import (
    Atrous,
    Blocks,
    Causal,
    Fixed,
    Mask,
    Segments,
    Sight,
    Sparse,
    Strided,
    Whole,
    Window,
)
from heed.parts.positions import Alibi, Buckets

TOKENS, HEADS, SIZE = 701, 4, 8
PLAIN = How(None, SIZE**-0.5)
CLASSES = {
    "atrous": Atrous(step=7),
    "causal atrous": Causal() & Atrous(step=7),
    "strided": Strided(stride=10),
    "dilated window": Window(back=60, ahead=60) & Atrous(step=5),
    "causal dilated window": Window(back=10) & Atrous(step=2),
    "two combs of even teeth": (Atrous(step=16) | Atrous(step=24)) & Causal(),
    "two steps": Atrous(step=2) & Atrous(step=3),
    "atrous without near ones": Atrous(step=4) - Window(back=8, ahead=4),
}
UNIONS = {
    "sparse": Sparse(step=12),
    "causal sparse": Causal() & Sparse(step=12),
    "strided and local": Window(back=9) | Strided(stride=10),
    "two windows, one dilated": Window(back=3, ahead=2) | (Window(back=300, ahead=300) & Atrous(step=20)),
    "fixed": Fixed(context=20, block=5, patterns=2),
    "fixed, four patterns": Fixed(context=40, block=2, summaries=3, patterns=4),
    "two combs": (Atrous(step=16) | Atrous(step=21)) & Causal(),
}
DRAWN = {
    "window and first": Blocks.drawn(16, 44, lambda i, j: abs(i - j) <= 1 or j == 0),
    "first block sees all": Blocks.drawn(16, 44, lambda i, j: i == 0 or j in (0, i)),
    "two patterns": Blocks.drawn(16, 44, lambda i, j: i - j in (0, 7), lambda i, j: j % 5 == 4 and j <= i),
    "causal": Causal() & Blocks.drawn(16, 44, lambda i, j: i == j or j == i // 2),
    "blind rows": Blocks.drawn(16, 44, lambda i, j: i % 2 == 1 and j == 0),
}


def tensors(
    rows: int = 2, kv_heads: int = HEADS, tokens: int = TOKENS, heads: int = HEADS
) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)

    def one(heads: int) -> Tensor:
        return torch.randn(rows, tokens, heads, SIZE, generator=draw, dtype=torch.float64).requires_grad_()

    return one(heads), one(kv_heads), one(kv_heads)


def same(mask: Mask, where: Where, kv_heads: int = HEADS, heads: int = HEADS, **how: object) -> None:
    query, key, value = tensors(where.shape[0], kv_heads, where.shape[1], heads)
    sight = mask(where, where)
    y = attend(query, key, value, sight, **how)  # type: ignore[arg-type]
    truth = where.blank(written_out(query, key, value, sight, **how)[0])  # type: ignore[arg-type]
    torch.testing.assert_close(y, truth, rtol=0, atol=1e-13)
    with torch.no_grad():
        unlearnt = attend(query, key, value, sight, **how)  # type: ignore[arg-type]
    torch.testing.assert_close(unlearnt, truth, rtol=0, atol=1e-13)
    target = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    got, wanted = (torch.autograd.grad((x * target).sum(), (query, key, value)) for x in (y, truth))
    for mine, theirs in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


def form(mask: Mask, where: Where) -> str:
    """Which of the forms takes this mask."""
    sight = Sight(mask, where, where)
    if patterns.Residues.fit(sight, PLAIN):
        return "classes"
    return "union" if patterns.unites(sight, PLAIN) else "drawn" if patterns.drawn(sight, PLAIN) else "plain"


@pytest.mark.parametrize("ragged", [False, True], ids=["run", "ragged"])
@pytest.mark.parametrize(
    "mask", [*CLASSES.values(), *UNIONS.values(), *DRAWN.values()], ids=[*CLASSES, *UNIONS, *DRAWN]
)
def test_cheap_forms_are_the_equation(mask: Mask, ragged: bool) -> None:
    where = Where.ragged([TOKENS, 190]) if ragged else Where.run(2, TOKENS)
    same(mask, where)
    same(mask, where, kv_heads=2)


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        *((mask, "classes") for mask in CLASSES.values()),
        *((mask, "union") for mask in UNIONS.values()),
        *((mask, "drawn") for mask in DRAWN.values()),
        *((mask, "plain") for mask in (Causal(), Whole(), Window(back=9), Segments(length=4))),
    ],
    ids=repr,
)
def test_the_cheap_form_is_taken(mask: Mask, expected: str) -> None:
    assert form(mask, Where.run(2, TOKENS)) == expected


@pytest.mark.parametrize("mask", [Atrous(step=7), Sparse(step=12), DRAWN["window and first"]], ids=repr)
@pytest.mark.parametrize("code", [Alibi.Config(), Buckets.Config(both_ways=True)], ids=repr)
def test_with_a_term_of_positions(mask: Mask, code: Alibi.Config | Buckets.Config) -> None:
    torch.manual_seed(0)
    bias = code.build(HEADS, SIZE).double().bias
    same(mask, Where.ragged([TOKENS, 190]), bias=bias)


@pytest.mark.parametrize("mask", [Atrous(step=7), Sparse(step=12), DRAWN["window and first"]], ids=repr)
def test_with_capped_scores(mask: Mask) -> None:
    same(mask, Where.run(1, TOKENS), cap=0.5)


@pytest.mark.parametrize("mask", [Atrous(step=7), Strided(stride=10), Window(back=9) | Strided(stride=10)], ids=repr)
@pytest.mark.parametrize("past", [70, 100, 101])
def test_queries_that_are_the_last_of_many_keys(mask: Mask, past: int) -> None:
    query, key, value = tensors(1)
    some, where, seen = query[:, past:], Where.run(1, TOKENS - past, start=past), Where.run(1, TOKENS)
    y = attend(some, key, value, mask(where, seen))
    torch.testing.assert_close(y, written_out(some, key, value, mask(where, seen))[0], rtol=0, atol=1e-13)


@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
def test_a_union_whose_classes_are_bands(biased: bool) -> None:
    """Only long texts have classes so long that a window in each pays."""
    mask, where = Window(back=3) | (Window(back=480) & Atrous(step=8)), Where.ragged([2100])
    thinned = patterns.Residues.of(Sight(mask.terms[1], where, where)).sight(Sight(mask.terms[1], where, where))
    assert form(mask, where) == "union"
    assert pays(thinned, PLAIN)
    same(mask, where, 1, 1, bias=Alibi.Config().build(1, SIZE).double().bias if biased else None)


WIDE = [
    Atrous(step=64),
    Sparse(step=64),
    Window(back=63) | Strided(stride=64),
    Window(back=31) | Window(back=255) & Atrous(step=8),
]


@pytest.mark.parametrize("mask", WIDE, ids=repr)
def test_no_square_is_ever_held(mask: Mask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest mask that is written out stays far below n × n."""
    held = []
    pairs = Sight.pairs

    def measured(self: Sight, heads: int) -> Tensor:
        made = pairs(self, heads)
        held.append(made.numel())
        return made

    monkeypatch.setattr(Sight, "pairs", measured)
    tokens = 4096
    query, key, value = (torch.randn(1, tokens, 1, 8) for _ in range(3))
    attend(query, key, value, mask)
    assert sum(held) <= tokens * 256


def test_a_union_taken_apart_does_not_overlap() -> None:
    order = torch.arange(40)
    query, key = order[None, None, :, None], order[None, None, None, :]
    for mask in UNIONS.values():  # patterns broadcast
        parts = [part.allows(query, key).long() for part in patterns.apart(mask)]
        assert torch.equal(sum(parts[1:], parts[0]), mask.allows(query, key).long())
