"""Masks: each against its rule written as a loop, their algebra, their reach, and what spans may conclude."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heed.core.contract import Reach, Where
from heed.core.errors import ConfigError, InputError
from heed.core.stamps import Stamps
from heed.mixers.attention import SAMPLE_MASKS
from heed.parts.masks import (
    And,
    Atrous,
    Blocks,
    Causal,
    Fixed,
    Mask,
    Or,
    Padding,
    Prefix,
    Segments,
    Sparse,
    Strided,
    Summaries,
    Whole,
    Window,
)

TOKENS = 12
RULES: list[tuple[Mask, Callable[[int, int], bool]]] = [
    (Whole(), lambda i, j: True),
    (Padding(), lambda i, j: True),
    (Causal(), lambda i, j: j <= i),
    (Window(back=3), lambda i, j: i - 3 <= j <= i),
    (Window(back=2, ahead=1), lambda i, j: i - 2 <= j <= i + 1),
    (Atrous(step=3), lambda i, j: (i - j) % 3 == 0),
    (Sparse(step=3), lambda i, j: abs(i - j) <= 3 or (i - j) % 3 == 0),
    (Strided(stride=4), lambda i, j: j <= i and (i - j) % 4 == 0),
    (Fixed(context=4), lambda i, j: j <= i and (j // 4 == i // 4 or j % 4 == 3)),
    (Fixed(context=4, summaries=2), lambda i, j: j <= i and (j // 4 == i // 4 or j % 4 in (2, 3))),
    (Summaries(context=4), lambda i, j: j // 4 < i // 4 and j % 4 == 3),
    (Summaries(context=4, block=2), lambda i, j: j // 4 < i // 4 and j % 4 >= 2),
    (Causal() - Window(back=2), lambda i, j: j < i - 2),
    (Prefix(length=4), lambda i, j: j <= i or j < 4),
    (Segments(length=5), lambda i, j: i // 5 == j // 5),
    (Segments(length=4, memory=2), lambda i, j: i // 4 * 4 - 2 <= j < i // 4 * 4 + 4),
    (Blocks(size=4, layouts=(("100", "010", "111"),)), lambda i, j: "100010111"[i // 4 * 3 + j // 4] == "1"),
    (Causal() & Atrous(step=2), lambda i, j: j <= i and (i - j) % 2 == 0),
    (Window(back=1) | Strided(stride=5), lambda i, j: 0 <= i - j <= 1 or (j <= i and (i - j) % 5 == 0)),
]


@pytest.mark.parametrize(("mask", "rule"), RULES, ids=lambda value: repr(value) if isinstance(value, Mask) else "")
def test_a_mask_is_its_rule(mask: Mask, rule: Callable[[int, int], bool]) -> None:
    where = Where.run(2, TOKENS)
    wanted = [[rule(i, j) for j in range(TOKENS)] for i in range(TOKENS)]
    assert mask(where, where).pairs(1)[0, 0].tolist() == wanted
    gaps = [i - j for i in range(TOKENS) for j in range(TOKENS) if wanted[i][j]]
    back, ahead = mask.reach
    assert back is None or max(gaps) <= back
    assert ahead is None or -min(gaps) <= ahead
    if back is not None and back < TOKENS - 1:
        assert max(gaps) == back or isinstance(mask, Blocks)  # declared no farther than it looks


def test_patterns_are_taken_in_turn_by_the_heads() -> None:
    mask = Fixed(context=4, block=1, patterns=2)
    pairs = mask(Where.run(1, 12), Where.run(1, 12)).pairs(4)
    assert pairs.shape == (1, 4, 12, 12)
    assert torch.equal(pairs[:, :2], pairs[:, 2:])
    assert pairs[0, 0, 9, 3]  # the first pattern looks at the last of each group
    assert not pairs[0, 1, 9, 3]
    assert pairs[0, 1, 9, 2]
    odd = mask(Where.run(1, 12), Where.run(1, 12)).pairs(3)
    assert torch.equal(odd, pairs[:, [0, 1, 0]])


@pytest.mark.parametrize(
    "mask",
    [
        Summaries(context=4),
        Summaries(context=4, summaries=2),
        Summaries(context=4, block=2),
        Summaries(context=4, patterns=3),
    ],
)
@pytest.mark.parametrize("keys", [12, 14, 15])
def test_columns_are_all_keys_that_any_query_sees(mask: Summaries, keys: int) -> None:
    """Pattern by pattern. A group that is not full is in nobody's past, so that it may be there or not."""
    columns, patterns = mask.columns(keys), mask.patterns
    assert columns is not None
    later = Where.run(1, 4, start=16)  # behind all of them
    seen = mask(later, Where.run(1, keys)).pairs(patterns)[0].any(1)  # [P, keys]
    for pattern in range(patterns):
        whole = {key for key in seen[pattern].nonzero()[:, 0].tolist() if key < keys // 4 * 4}
        found = columns[pattern].tolist()
        assert whole <= set(found) <= set(seen[pattern].nonzero()[:, 0].tolist())
        assert len(found) == len(set(found))


def test_masks_read_order_not_index() -> None:
    """A ring that wrapped: the newest entry lies first."""
    wrapped = torch.tensor([[8, 5, 6, 7]])
    seen = Stamps(wrapped, wrapped)
    query = Where.run(1, 1, start=8)
    assert Window(back=2)(query, seen).pairs(1)[0, 0, 0].tolist() == [True, False, True, True]


def test_padding_neither_sees_nor_is_seen() -> None:
    where = Where.ragged([3, 1])
    for mask in SAMPLE_MASKS:
        pairs = mask(where, where).pairs(4)
        assert not pairs[1, :, 1:].any()
        assert not pairs[1, :, :, 1:].any()


def test_the_algebra_is_flat_and_reaches_combine() -> None:
    causal, window, whole = Causal(), Window(back=2, ahead=4), Whole()
    assert causal & window & whole == And(parts=(causal, window, whole))
    assert causal | (window | whole) == Or(parts=(causal, window, whole))
    assert (causal & window).reach == Reach(2, 0)
    assert (causal | window).reach == Reach(None, 4)


@settings(max_examples=200, deadline=None)
@given(
    mask=st.sampled_from(SAMPLE_MASKS),
    query=st.tuples(st.integers(0, 5), st.integers(1, 3)),
    key=st.tuples(st.integers(0, 5), st.integers(1, 3)),
)
def test_what_spans_conclude_is_true(mask: Mask, query: tuple[int, int], key: tuple[int, int]) -> None:
    sight = mask(Where.run(1, query[1], start=query[0]), Where.run(1, key[1], start=key[0]))
    if sight.whole:
        assert bool(sight.pairs(4).all())
    if sight.triangle:
        assert torch.equal(sight.pairs(1)[0, 0], torch.ones(query[1], key[1]).tril().bool())


def test_spans_spare_the_mask_where_it_matters() -> None:
    past = Where.run(1, 9)
    assert Causal()(Where.run(1, 1, start=8), past).whole  # decoding
    assert Causal()(past, past).triangle  # training
    ragged = Where.ragged([9, 4])
    assert Causal()(ragged, ragged).triangle  # training, padded at the end
    assert not Causal()(Where.ragged([9, 9]), ragged).triangle  # a real query would meet the padding of another row
    assert Window(back=8)(Where.run(1, 1, start=8), past).whole  # a full window
    assert not Window(back=7)(Where.run(1, 1, start=8), past).whole
    assert not Window(back=8)(Where.run(1, 2, start=8), past).whole  # full for the first of two tokens only
    assert not Causal()(Where.run(1, 2, start=7), past).whole
    assert not Whole()(past, Where.ragged([9, 4])).whole


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Window(back=-1), "back is -1"),
        (lambda: Atrous(step=0), "step is 0; it must be greater than 0"),
        (lambda: Fixed(context=5, block=2), "context 5 is not a multiple of block 2"),
        (lambda: Fixed(context=4, block=2, patterns=3), "need a context of at least 6, not 4"),
        (lambda: Blocks(size=2, layouts=()), "needs at least one layout"),
        (lambda: Blocks(size=2, layouts=(("10", "1"),)), "'1' is not a row of 2 characters 0 or 1"),
        (lambda: Blocks(size=2, layouts=(("10", "1x"),)), "'1x' is not a row"),
        (lambda: Blocks(size=2, layouts=(("10", "11"), ("10",))), "every layout must have 2 rows"),
    ],
)
def test_impossible_masks_are_refused(make: Callable[[], Mask], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        make()


def test_a_block_pattern_says_how_far_it_goes() -> None:
    mask = Blocks(size=2, layouts=(("10", "11"),))
    with pytest.raises(InputError, match="covers 4 tokens, but token 4 was given; give layouts with more rows"):
        mask(Where.run(1, 5), Where.run(1, 5)).pairs(1)
