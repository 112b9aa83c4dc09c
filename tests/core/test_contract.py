"""Stamps, Where and Reach: which tokens these are, and what is known of them without looking."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from heed.core.contract import Reach, Where
from heed.core.errors import InputError
from heed.core.stamps import Span, Stamps
from heed.core.state import Seen


@settings(max_examples=100, deadline=None)
@given(start=st.integers(0, 5), lengths=st.lists(st.integers(0, 5), min_size=1, max_size=3))
def test_a_span_is_measured_right(start: int, lengths: list[int]) -> None:
    where = Where.ragged(lengths, start=start)
    span, longest = where.span, max(lengths)
    if longest == 0:
        assert (span.first, span.last) == (0, -1)
        return
    assert span == Span(start, start + longest - 1, run=True, padded=min(lengths) < longest)


def test_run_knows_its_span_without_looking() -> None:
    where = Where.run(2, 4, start=3)
    measured = Stamps(where.order, where.position).span
    assert where.span == measured == Span(3, 6, run=True, padded=False)


def test_holes_and_permutations_are_not_runs() -> None:
    for order in ([[-1, 0, 1]], [[0, -1, 2]], [[1, 0, 2]], [[0, 1, 3]], [[0, 1, 2], [1, 2, 3]]):
        stamps = Stamps(torch.tensor(order), torch.tensor(order))
        assert not stamps.span.run


def test_blank_clears_padding_and_nothing_else() -> None:
    where = Where.ragged([2, 1])
    x = torch.full((2, 2, 3), float("nan"))
    x[where.real] = 1.0
    assert where.blank(x).tolist() == [[[1.0] * 3] * 2, [[1.0] * 3, [0.0] * 3]]
    whole = Where.run(2, 2)
    assert whole.blank(x) is x


def test_give_keeps_what_is_not_named_and_what_is_known() -> None:
    where = Where.run(1, 2)
    memory, shared = Seen.of(where, torch.zeros(1, 2, 1)), Seen.of(where, torch.ones(1, 2, 1))
    both = where.give(encoder_output=memory).give(shared=shared)
    assert both.given.encoder_output is memory
    assert both.given.shared is shared
    assert both.span == where.span


def test_cut_takes_columns() -> None:
    where = Where.run(2, 5, start=2).cut(1, 3)
    assert where.order.tolist() == [[3, 4], [3, 4]]


def test_columns_know_their_span_if_the_whole_does() -> None:
    for whole in (Where.run(2, 5, start=2), Where.ragged([4, 2])):
        part = whole.columns(1, 3)
        assert part.order.tolist() == whole.order[:, 1:3].tolist()
        assert part.span == Stamps(part.order, part.position).span


def test_reach_adds_widens_and_narrows() -> None:
    near, far = Reach(2, 0), Reach(None, 3)
    assert near.then(near) == Reach(4, 0)
    assert near.then(far) == Reach(None, 3)
    assert near.beside(far) == Reach(None, 3)
    assert near.within(far) == Reach(2, 0)


def test_negative_lengths_are_refused() -> None:
    with pytest.raises(InputError, match="lengths must be 0 to any, got"):
        Where.ragged([2, -1])
    with pytest.raises(InputError, match="lengths must be 0 to 3, got"):
        Where.ragged([2, 5], width=3)
    with pytest.raises(InputError, match="order of 0 or more, not -2"):
        Where.run(1, 3, start=-2)
    assert Where.ragged([]).shape == (0, 0)
