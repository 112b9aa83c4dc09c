"""State: logs that grow, wrap and compact; specs that price them; the guard against using a state twice."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import CannotStream, ConfigError, InputError, StateConsumed
from heed.core.log import joined
from heed.core.spec import STAMP_BYTES, Dim, Entries, Slot, price, words
from heed.core.stamps import Span, Stamps
from heed.core.state import (
    Cell,
    Log,
    Seen,
    State,
    allocate,
    detach,
    fork,
    leaves,
    nbytes,
    remember,
    select,
    to,
)

SLOT = Slot(((2,),), Entries(each=1), torch.float64)


def window(cap: int) -> Slot:
    return Slot(((2,),), Entries(each=1, cap=cap), torch.float64)


def value_of(order: Tensor) -> Tensor:
    """An entry that tells which token it belongs to. [B, T, 2]"""
    return torch.stack((order, -order), -1).double()


def entries(seen: Seen | Log, row: int) -> list[int]:
    order = seen.order if isinstance(seen, Seen) else seen.tensors()[0]
    return sorted(o for o in order[row].tolist() if o >= 0)


STEPS = st.tuples(
    st.sampled_from([(1, 1), (1, 1), (2, 2), (4, 4), (0, 0), (1, 0), (0, 2), (3, 1)]),  # tokens of the two rows
    st.sampled_from([False, False, True]),  # with gradients?
    st.sampled_from([lambda s: s, lambda s: s, fork, lambda s: select(s, [0, 1]), lambda s: to(s, "cpu")]),
)


@settings(max_examples=150, deadline=None)
@given(cap=st.none() | st.integers(0, 5), steps=st.lists(STEPS, min_size=1, max_size=14))
def test_a_log_shows_all_it_kept_and_keeps_the_newest(
    cap: int | None, steps: list[tuple[tuple[int, int], bool, Callable[[Log], Log]]]
) -> None:
    """Any sequence of calls, ragged or not, in place or not: what is seen, what is kept, every entry by its stamp."""
    log = Log.empty(SLOT if cap is None else window(cap), rows=2)
    done, kept = [0, 0], [[], []]  # type: tuple[list[int], list[list[int]]]
    for lengths, tracked, change in steps:
        where = Where.ragged(lengths, start=torch.tensor(done), width=max(lengths))
        with torch.set_grad_enabled(tracked):
            seen, log = change(log).append(where, value_of(where.order).requires_grad_(tracked))
        for row, length in enumerate(lengths):
            now = kept[row] + list(range(done[row], done[row] + length))
            assert entries(seen, row) == now
            kept[row] = now if cap is None else now[len(now) - min(cap, len(now)) :]
            done[row] += length
            assert entries(log, row) == kept[row]
        real = seen.order >= 0
        assert torch.equal(seen.parts[0][real], value_of(seen.order)[real])
        assert_span_is_true(seen)
        assert log.tensors()[0].shape[1] <= (max(len(k) for k in kept) if cap is None else cap)


def assert_span_is_true(seen: Stamps) -> None:
    """A span may know less than there is to know, never something false."""
    span, order = seen.span, seen.order
    real = order[order >= 0]
    assert span.padded or bool((order >= 0).all())
    if real.numel():
        assert span.first <= int(real.min())
        assert span.last >= int(real.max())
    if span.run and order.numel():
        expected = torch.arange(span.first, span.first + order.shape[1])
        assert bool(((order == expected) | (order < 0)).all())


def test_in_place_and_joined_give_the_same() -> None:
    for cap in (None, 1, 3):
        slot = SLOT if cap is None else window(cap)
        plain, tracked = Log.empty(slot, 1), Log.empty(slot, 1)
        for t in range(9):
            where = Where.run(1, 1, start=t)
            part = value_of(where.order)
            with torch.no_grad():
                a, plain = plain.append(where, part)
            b, tracked = tracked.append(where, part.clone().requires_grad_())
            assert entries(a, 0) == entries(b, 0)
            assert entries(plain, 0) == entries(tracked, 0)


@torch.no_grad()
def test_appending_one_token_does_not_copy_the_past() -> None:
    log = Log.empty(SLOT, 1)
    moves, place = 0, 0
    for t in range(1000):
        _, log = log.append(Where.run(1, 1, start=t), torch.zeros(1, 1, 2, dtype=torch.float64))
        moves += log.storage()[2].data_ptr() != place
        place = log.storage()[2].data_ptr()
    assert moves < 70  # it grows by a sixteenth at a time
    assert log.storage()[2].shape[1] <= 1000 * 17 / 16 + 16


@torch.no_grad()
def test_a_full_window_is_written_in_place() -> None:
    log = Log.empty(window(4), 1)
    for t in range(5):
        _, log = log.append(Where.run(1, 1, start=t), torch.zeros(1, 1, 2, dtype=torch.float64))
    place = log.storage()[2].data_ptr()
    for t in range(5, 50):
        seen, log = log.append(Where.run(1, 1, start=t), torch.zeros(1, 1, 2, dtype=torch.float64))
        assert log.storage()[2].data_ptr() == place
        assert entries(seen, 0) == list(range(t - 4, t + 1))
        assert (seen.span.first, seen.span.last) == (t - 4, t)


def test_without_a_state_a_call_sees_itself_and_keeps_nothing() -> None:
    where = Where.run(2, 3)
    seen, kept = remember(None, where, value_of(where.order))
    assert kept is None
    assert torch.equal(seen.order, where.order)


def test_reading_uses_a_log_up_but_gives_it_back() -> None:
    where = Where.run(1, 3)
    log = Log(where.order, where.position, value_of(where.order))
    seen, again = log.read()
    assert entries(seen, 0) == entries(again, 0) == [0, 1, 2]
    with pytest.raises(StateConsumed):
        log.read()


@pytest.mark.parametrize("use", [fork, detach, lambda s: select(s, [0]), lambda s: to(s, "cpu")])
def test_a_consumed_state_is_refused(use: Callable[[State], State]) -> None:
    where = Where.run(1, 2)
    log = Log.empty(SLOT, 1)
    log.append(where, value_of(where.order))
    with pytest.raises(StateConsumed, match="wrong:(.|\n)*right:(.|\n)*fork"):
        use(log)
    with pytest.raises(StateConsumed):
        log.append(where, value_of(where.order))
    cell = Cell(torch.zeros(1, 3))
    cell.take()
    with pytest.raises(StateConsumed):
        cell.take()


def test_detach_and_to_use_the_old_handle_up_and_fork_and_select_do_not() -> None:
    for change in (detach, lambda s: to(s, dtype=torch.float32)):
        cell = Cell(torch.zeros(1, 3))
        change(cell)
        assert cell.spent
    for twin in (fork, lambda s: select(s, [0, 0])):
        cell = Cell(torch.zeros(1, 3))
        twin(cell)
        assert not cell.spent


@torch.no_grad()
def test_a_fork_lives_on_its_own() -> None:
    where, later = Where.run(1, 2), Where.run(1, 1, start=2)
    _, state = Log.empty(SLOT, 1).append(where, value_of(where.order))
    other = fork(state)
    assert isinstance(other, Log)
    _, state = state.append(later, value_of(later.order))
    seen, _ = other.append(later, 7 + value_of(later.order))
    assert seen.parts[0][0, 2, 0] == 9
    assert state.tensors()[2][0, 2, 0] == 2


def test_a_fork_shares_no_memory_and_a_detached_state_no_gradients() -> None:
    where = Where.run(1, 2)
    held = torch.ones(1, 3, requires_grad=True)
    _, log = Log.empty(SLOT, 1).append(where, value_of(where.order).requires_grad_())
    state: State = (Cell(held * 1), log)
    before = [tensor.data_ptr() for leaf in leaves(state) for tensor in leaf.tensors()]
    copies = [tensor for leaf in leaves(fork(state)) for tensor in leaf.tensors()]
    assert not {tensor.data_ptr() for tensor in copies} & set(before)
    assert any(tensor.requires_grad for leaf in leaves(state) for tensor in leaf.tensors())
    cut = [tensor for leaf in leaves(detach(state)) for tensor in leaf.tensors()]
    assert not any(tensor.requires_grad for tensor in cut)
    assert [tensor.tolist() for tensor in cut] == [tensor.tolist() for tensor in copies]


def test_entries_across_a_gap_are_no_run() -> None:
    """What is known of a log decides which tokens are looked at without a mask."""
    together, apart, after = Span(0, 1, True, False), Span(5, 5, True, False), Span(2, 2, True, False)
    assert joined(together, after, 2) == Span(0, 2, run=True, padded=False)
    assert joined(together, apart, 2) == Span(0, 5, run=False, padded=False)
    assert joined(Span(0, 1, True, True), after, 2) == Span(0, 2, run=False, padded=True)


class Pair(NamedTuple):
    log: State
    cell: State


def test_the_generic_functions_keep_the_tree() -> None:
    where = Where.ragged([3, 1])
    _, log = Log.empty(window(2), 2).append(where, value_of(where.order))
    tree = (Pair(log, Cell(torch.tensor([[1.0], [2.0]]))), ())
    chosen = select(fork(tree), torch.tensor([1, 0, 1]))
    assert isinstance(chosen, tuple)
    pair = chosen[0]
    assert isinstance(pair, Pair)
    assert isinstance(pair.log, Log)
    assert isinstance(pair.cell, Cell)
    assert [entries(pair.log, row) for row in range(3)] == [[0], [1, 2], [0]]
    assert pair.cell.take()[0].flatten().tolist() == [2.0, 1.0, 2.0]
    moved = to(fork(tree), dtype=torch.float16)
    assert [t.dtype for leaf in leaves(moved) for t in leaf.tensors()] == [torch.int64, torch.int64] + [
        torch.float16
    ] * 2


@torch.no_grad()
def test_select_keeps_a_wrapped_window_in_step() -> None:
    log = Log.empty(window(3), 2)
    for t in range(6):
        where = Where.run(2, 1, start=t)
        _, log = log.append(where, value_of(where.order))
    turned = select(log, [1, 0])
    assert isinstance(turned, Log)
    seen, kept = turned.append(Where.run(2, 1, start=6), value_of(torch.full((2, 1), 6)))
    assert [entries(seen, row) for row in range(2)] == [[3, 4, 5, 6]] * 2
    assert [entries(kept, row) for row in range(2)] == [[4, 5, 6]] * 2


@settings(max_examples=50, deadline=None)
@given(each=st.integers(0, 4), cap=st.none() | st.integers(0, 9), fixed=st.integers(0, 3), tokens=st.integers(0, 30))
def test_entries_count_as_their_words_say(each: int, cap: int | None, fixed: int, tokens: int) -> None:
    grown = sum(1 for t in range(tokens) if each and t % each == 0)
    assert Entries(each, cap, fixed).count(tokens) == fixed + (grown if cap is None else min(cap, grown))
    assert Entries(per_source=True).count(tokens, 7) == 7


def test_price_is_what_is_held() -> None:
    spec = (SLOT, window(2), Slot(((3,), (2, 2)), Entries(fixed=1), torch.float32, fill=-1.0), ())
    state = allocate(spec, rows=2)
    assert nbytes(state) == 2 * price(spec, 0) == 2 * 7 * 4
    assert isinstance(state, tuple)
    cell = state[2]
    assert isinstance(cell, Cell)
    assert all(bool((part == -1).all()) for part in cell.tensors())
    assert price(spec, 5) == 5 * (16 + STAMP_BYTES) + 2 * (16 + STAMP_BYTES) + 7 * 4


def test_words_come_from_the_names_of_sizes() -> None:
    heads, size = Dim("kv_heads", 2), Dim("head_size", 6)
    both = ((heads, size),) * 2
    assert words(Slot(both, Entries(each=1))) == "2·kv_heads·head_size numbers per token"
    assert words(Slot(both, Entries(each=1, cap=Dim("window", 9)))) == (
        "2·kv_heads·head_size numbers per token, for the last window tokens"
    )
    assert words(Slot(((heads, size, size), (size,)), Entries(fixed=1))) == (
        "kv_heads·head_size·head_size + head_size numbers, whatever the length"
    )
    assert words(Slot(((heads,),), Entries(per_source=True))) == "kv_heads numbers per source token"
    assert words(Slot(((heads,),), Entries(each=4))) == "kv_heads numbers per 4 tokens"
    assert words(Slot(((3,), ()), Entries(fixed=4))) == "4·3 + 4 numbers, whatever the length"
    assert words(((), ())) == "nothing"


def test_a_permuted_call_is_kept_by_order() -> None:
    order = torch.tensor([[0, 2, 1]])
    with torch.no_grad():
        _, log = Log.empty(window(1), 1).append(Stamps(order, order), value_of(order))
    assert entries(log, 0) == [2]


def test_a_prefill_in_inference_mode_goes_on_outside_of_it() -> None:
    with torch.inference_mode():
        where = Where.run(1, 2)
        _, log = Log.empty(SLOT, 1).append(where, value_of(where.order))
    with torch.no_grad():
        seen, _ = log.append(Where.run(1, 1, start=2), value_of(torch.tensor([[2]])))
    assert entries(seen, 0) == [0, 1, 2]


def test_names_of_sizes_survive_copies() -> None:
    for copied in (copy.deepcopy(Dim("width", 3)), pickle.loads(pickle.dumps(Dim("width", 3)))):
        assert (copied.name, copied) == ("width", 3)
    for error in (StateConsumed(), CannotStream.because("Encoder", None), ConfigError("a", "b")):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_wrong_rows_and_parts_are_refused_and_cost_nothing() -> None:
    where, log = Where.run(3, 1), Log.empty(SLOT, 2)
    with pytest.raises(InputError, match="remembers 2 rows, this call has 3; use select"):
        log.append(where, value_of(where.order))
    assert not log.spent
    with pytest.raises(InputError, match="1 parts per entry, 2 were given"):
        Log.empty(SLOT, 3).append(where, value_of(where.order), value_of(where.order))
