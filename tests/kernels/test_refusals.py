"""Every entry point of the kernels refuses what cannot be right, by a number that becomes heed's error."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.errors import InputError
from heed.core.state import Log
from heed.engine import operands
from heed.engine.execution import Execution
from heed.engine.program import Program, ProgramBuilder
from heed.kernels import library, prebuilt
from heed.kernels.abi import (
    Choice,
    Instruction,
    Matrix,
    Mode,
    Weights,
)
from heed.kernels.kv_slots import KvCaches
from heed.kernels.linear import matrix
from heed.kernels.refusals import WORDS, Refusal, must_be_done

pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiler")

ROWS, WIDTH, VOCABULARY, PLACES = 2, 8, 5, 6
HUGE = 1 << 62
BROKEN_COUNTS = (-1, -HUGE, HUGE)


def _kernels() -> Any:
    found = library()
    assert found is not None
    return found


def test_python_and_the_sources_have_the_same_numbers() -> None:
    listed = re.search(r"enum Refusal[^{]*{(.*?)};", (prebuilt.SOURCES / "checks.h").read_text(), re.DOTALL)
    assert listed is not None
    assert re.findall(r"^  ([A-Z]+),", listed[1], re.MULTILINE) == [refusal.name for refusal in Refusal]
    assert set(WORDS) == set(Refusal) - {Refusal.DONE}


def test_a_refusal_is_heeds_error() -> None:
    must_be_done(Refusal.DONE)
    for refusal, words in WORDS.items():
        with pytest.raises(InputError, match=re.escape(words)):
            must_be_done(refusal)
    with pytest.raises(InputError, match="refuses as 99"):
        must_be_done(99)
    with pytest.raises(InputError, match="a token from 3 to 9 is not in the vocabulary"):
        must_be_done(Refusal.VALUES, torch.tensor([3, 9]))
    with pytest.raises(
        InputError, match="a position from 7 to 8, or of the tokens after it, has no code in this model"
    ):
        must_be_done(Refusal.POSITIONS, position=torch.tensor([[8, 7]]))


# --- a program, in which every operation occurs ---


def _written() -> ProgramBuilder:
    made = ProgramBuilder()
    stream, other, wide = (made.register(name, width) for name, width in (("a", WIDTH), ("b", WIDTH), ("c", 2 * WIDTH)))
    small = [made.register(name, 4) for name in ("key", "value")]
    last, above, below, level, kept = (made.cell() for _ in range(5))
    some = [torch.randn(WIDTH) for _ in range(4)]
    made.kept += some

    def weights(rows: int, columns: int) -> Matrix:
        made.kept.append(torch.randn(rows, columns))
        return matrix(Weights.FLOAT32, made.kept[-1], None, None, rows, columns)

    made.add(operands.Embed(1.0), stream, matrix=weights(VOCABULARY, WIDTH))
    made.add(operands.Place(1, PLACES, torch.randn(PLACES, WIDTH)), stream)
    made.add(operands.Norm(2, 4, 0, 0, 1e-5, some[0]), other, stream)
    made.linear(weights(4, WIDTH), small[0], other)
    made.linear(weights(4, WIDTH), small[1], other)
    made.linear(weights(2 * WIDTH, WIDTH), wide, stream, Mode.PLUS, "gelu", 0.0)
    waves = made.waves((1.0, 0.5), 1.0)
    made.add(operands.Turn(2, 4, 2, 0), other, waves)
    made.add(operands.Attend(made.cache(), 2, 1, 4, 4, -1, 0.5, 0.0), stream, other, key=small[0], value=small[1])
    made.add(operands.Clamp(3.0), stream)
    made.add(operands.Add(1.0, 0.5), stream, other)
    made.add(operands.Shift(last, some[1]), other, stream)
    made.add(operands.Keep(last), -1, stream)
    made.add(operands.Wkv(above, below, level, some[2], some[3]), other, key=stream, value=stream)
    made.add(operands.Retain(kept, 2, 4, 4, 1.0, torch.rand(2)), other, stream, key=stream, value=stream)
    return made


class _Running:
    """The program at work, and its KV cache, of which half is filled."""

    begins: Tensor  # these three are put in by what breaks it, and live as long as it does
    slots: Tensor
    owner: Tensor

    def __init__(self) -> None:
        torch.manual_seed(0)
        stamps = torch.arange(2).expand(ROWS, 2).contiguous()
        log = Log(stamps, stamps, torch.randn(ROWS, 2, 1, 4), torch.randn(ROWS, 2, 1, 4)).lend()
        log.held = tuple(torch.cat((held, held), 1) for held in log.held)  # room for two more
        cells = [torch.zeros(ROWS, WIDTH) for _ in range(4)] + [torch.zeros(ROWS, 2, 4, 4)]
        self.caches = KvCaches([log], [False])
        self.execution = Execution(Program.of(_written()), ROWS, self.caches, cells)
        self.stamps = [torch.full((ROWS,), n) for n in (1, 2, 2)]
        self.step, self.cache = self.execution._step, self.caches.structures[0]
        self.step.tokens, self.step.order, self.step.position = (stamp.data_ptr() for stamp in self.stamps)
        self.step.threads = 1

    def of(self, told: type[operands.Operands]) -> Instruction:
        return next(one for one in self.execution._instructions if one.operation == told.operation)

    def run(self) -> int:
        return int(_kernels().heed_step(ctypes.byref(self.step)))


def test_what_is_right_is_done() -> None:
    running = _Running()
    assert running.run() == Refusal.DONE
    assert running.cache.length == 3
    assert {one.operation for one in running.execution._instructions} == {told.operation for told in operands.OPERANDS}
    assert running.step.checked == 1


def test_a_row_that_sees_nothing_gets_zeros() -> None:
    """Not NaN, which would spread through all that follows; and the row beside it notices nothing."""
    alone, beside, other = _Running(), _Running(), _Running()
    for running in (alone, beside, other):
        running.cache.holes = 1
    for running in (beside, other):
        running.stamps[1][1] = -1
        running.caches._lent[0].held[0][1] = -1  # all that the second row remembers
    other.caches._lent[0].held[3][1] += 1.0  # values that nobody sees
    kept = [[cell for cell in running.execution.cells if cell.dim() == 2] for running in (alone, beside, other)]
    assert alone.run() == beside.run() == other.run() == Refusal.DONE
    assert all(map(torch.equal, *kept[1:]))
    assert all(bool(cell.isfinite().all()) for cell in kept[1])
    assert any(not torch.equal(one[1], two[1]) for one, two in zip(*kept[:2], strict=True))
    assert all(torch.equal(one[0], two[0]) for one, two in zip(*kept[:2], strict=True))


Break = Callable[[_Running], object]


def _put(what: str, value: object) -> Break:
    return lambda running: setattr(running.step, what, value)


def _stamp(place: int, value: int) -> Break:
    return lambda running: running.stamps[place].fill_(value)


def _cache(what: str, value: object) -> Break:
    return lambda running: setattr(running.cache, what, value)


def _many(*begins: int) -> Break:
    def put(running: _Running) -> None:
        running.begins = torch.tensor(begins)
        running.step.begins, running.step.sequences = running.begins.data_ptr(), len(begins) - 1

    return put


def _slots(slot: int) -> Break:
    def put(running: _Running) -> None:
        running.slots = torch.arange(8, dtype=torch.int32)
        running.slots[5] = slot
        running.cache.slot = running.slots.data_ptr()

    return put


def _owner(owner: int) -> Break:
    def put(running: _Running) -> None:
        running.owner = torch.tensor([0, owner], dtype=torch.int32)
        running.cache.owner = running.owner.data_ptr()

    return put


WRONG_CALLS: list[tuple[Refusal, Break]] = [
    *((Refusal.VALUES, _stamp(0, token)) for token in (-1, VOCABULARY, HUGE)),
    *((Refusal.POSITIONS, _stamp(2, place)) for place in (-2, PLACES - 1, HUGE, -HUGE)),
    *((Refusal.THREADS, _put("threads", count)) for count in (0, -3, 1 << 20)),
    *((Refusal.SIZES, _put("rows", count)) for count in (-1, ROWS + 1, HUGE)),
    *((Refusal.SIZES, _put(what, count)) for count in BROKEN_COUNTS for what in ("instructions", "register_count")),
    *((Refusal.SIZES, _put(what, count)) for count in BROKEN_COUNTS for what in ("cell_count", "cell_rows", "widest")),
    *((Refusal.SIZES, _put("cache_count", count)) for count in BROKEN_COUNTS),
    (Refusal.SIZES, _put("cell_rows", ROWS - 1)),
    (Refusal.SIZES, _put("room", 1)),
    *((Refusal.SIZES, _many(*begins)) for begins in ((1, ROWS), (0, ROWS + 1), (0, ROWS - 1), (0, 3, ROWS))),
    *((Refusal.MISSING, _put(what, None)) for what in ("program", "registers", "caches", "cells")),
    *((Refusal.MISSING, _put(what, None)) for what in ("tokens", "order", "position")),
    *((Refusal.CACHES, _cache("length", length)) for length in (-1, 4, 5, HUGE)),
    *((Refusal.CACHES, _cache("room", room)) for room in (-1, 1, 2, HUGE)),
    *((Refusal.CACHES, _cache(what, None)) for what in ("order", "position", "key", "value")),
    *((Refusal.CACHES, _cache("rows", rows)) for rows in (0, ROWS - 1, -1, HUGE)),
    (Refusal.CACHES, _cache("free", 4)),
    *((Refusal.CACHES, _slots(slot)) for slot in (-1, 8, 2**31 - 1)),
    *((Refusal.CACHES, _owner(owner)) for owner in (-1, ROWS)),
    (Refusal.PROGRAM, _cache("key_width", 5)),
    (Refusal.PROGRAM, _cache("value_width", 3)),
    (Refusal.PROGRAM, _put("cache_count", 0)),
    (Refusal.PROGRAM, _put("register_count", 1)),
    (Refusal.PROGRAM, _put("cell_count", 4)),
    (Refusal.PROGRAM, _put("widest", WIDTH)),
    (Refusal.PROGRAM, _put("scratch", None)),
]


@pytest.mark.parametrize(("refusal", "wrong"), WRONG_CALLS)
def test_a_step_that_cannot_be_is_refused(refusal: Refusal, wrong: Break) -> None:
    running = _Running()
    held = [held.clone() for held in running.caches._lent[0].held]
    wrong(running)
    before = running.cache.length
    assert running.run() == refusal
    assert running.cache.length == before
    assert all(map(torch.equal, held, running.caches._lent[0].held))  # nothing was written


def _number(told: type[operands.Operands], name: str, value: int) -> Break:
    return lambda running: running.of(told).number.__setitem__(told.named("int").index(name), value)


def _set(told: type[operands.Operands], **fields: int) -> Break:
    def put(running: _Running) -> None:
        for name, value in fields.items():
            setattr(running.of(told), name, value)

    return put


def _matrix(told: type[operands.Operands], **fields: int | None) -> Break:
    def put(running: _Running) -> None:
        for name, value in fields.items():
            setattr(running.of(told).matrix, name, value)

    return put


def _all_wider(running: _Running) -> None:
    """Matrices that fit one another, and not what they read."""
    for one in running.execution._instructions:
        if one.operation == operands.Linear.operation:
            one.matrix.columns = WIDTH + 1


def _no_table(told: type[operands.Operands], place: int = 0) -> Break:
    return lambda running: running.of(told).table.__setitem__(place, None)


ATTEND, NORM, LINEAR, TURN = operands.Attend, operands.Norm, operands.Linear, operands.Turn
NEEDED = {
    "to": [told for told in operands.OPERANDS if told is not operands.Keep],
    "from_": [NORM, LINEAR, TURN, ATTEND, operands.Add, operands.Shift, operands.Keep, operands.Retain],
    "key": [ATTEND, operands.Wkv, operands.Retain],
    "value": [ATTEND, operands.Wkv, operands.Retain],
}
WRONG_INSTRUCTIONS: list[Break] = [
    *(_set(told, **{name: number}) for name, some in NEEDED.items() for told in some for number in (-1, 99)),
    *(_set(told, to=2) for told in (operands.Embed, operands.Add, operands.Shift, operands.Wkv)),  # a wider one
    *(_set(told, operation=number) for told in (operands.Clamp,) for number in (-1, 13, 99)),
    *(
        _matrix(operands.Embed, **{name: value})
        for name, value in (("columns", 7), ("kind", 4), ("kind", -1), ("rows", -1))
    ),
    *(_matrix(LINEAR, columns=columns) for columns in (0, -1, WIDTH + 1)),
    _all_wider,
    *(_matrix(LINEAR, rows=rows) for rows in (-1, 5)),
    *(_matrix(LINEAR, kind=kind) for kind in (-1, 1, 6)),  # 1: without scales
    *(_matrix(LINEAR, across=across) for across in (-1, 3)),
    _matrix(LINEAR, weights=None),
    *(_number(LINEAR, "activation", number) for number in (-1, 8)),
    *(_number(LINEAR, "mode", number) for number in (-1, 3)),
    _number(LINEAR, "quantised", 1),  # nothing was quantised before
    *(_number(operands.Place, "places", number) for number in (-1,)),
    *(_number(NORM, name, number) for name in ("groups", "width") for number in (0, -1, 5, 1 << 30)),
    *(_number(operands.Waves, "count", number) for number in (-1, 3)),
    *(_number(TURN, name, number) for name in ("heads", "size", "half") for number in (-1, 5, 1 << 30)),
    *(_number(ATTEND, name, number) for name in ("heads", "kv_heads") for number in (0, -1, 3, 1 << 30)),
    *(_number(ATTEND, name, number) for name in ("size", "value_size") for number in (0, -1, 5, 1 << 30)),
    *(_number(ATTEND, "cache", number) for number in (-3, -1, 1)),  # -1: needs many tokens in a row
    *(_number(told, "cell", number) for told in (operands.Shift, operands.Keep, operands.Retain) for number in (-1, 5)),
    *(_number(operands.Shift, "cell", number) for number in (4,)),  # of another width
    *(_number(operands.Wkv, name, number) for name in ("above", "below", "level") for number in (-1, 4, 5)),
    *(_number(operands.Retain, name, n) for name in ("heads", "size", "value_size") for n in (0, -1, 3, 1 << 30)),
    *(map(_no_table, (operands.Place, operands.Waves, operands.Shift, operands.Wkv, operands.Retain))),
    _no_table(operands.Wkv, 1),
]


@pytest.mark.parametrize("wrong", WRONG_INSTRUCTIONS)
def test_an_instruction_that_does_not_fit_is_refused(wrong: Break) -> None:
    running = _Running()
    wrong(running)
    assert running.run() == Refusal.PROGRAM
    with pytest.raises(InputError, match="an instruction that does not fit its registers"):
        must_be_done(running.run())


def test_what_fits_is_looked_at_again_when_something_is_put_in_its_place() -> None:
    running = _Running()
    assert running.run() == Refusal.DONE
    running.execution.take([torch.zeros(ROWS, WIDTH) for _ in range(5)])
    assert running.run() == Refusal.PROGRAM
    running = _Running()
    assert running.run() == Refusal.DONE
    running.stamps[2].fill_(8)
    assert running.run() == Refusal.POSITIONS
    running.execution.place(torch.zeros(20, WIDTH))
    assert running.run() == Refusal.DONE


# --- tokens, one after the other ---


def test_tokens_one_after_the_other() -> None:
    def run(count: int = 1, scores: int = 0, wrong: Break = lambda _: None, missing: int = -1, **fields: Any) -> int:
        running = _Running()
        wrong(running)
        ends, live = torch.zeros(1, dtype=torch.int64), torch.ones(ROWS, dtype=torch.bool)
        how = Choice(1.0, 1.0, 0.0, 0, None, None, ends.data_ptr(), live.data_ptr(), 1, 1, 1.0, 0.0)
        for name, value in fields.items():
            setattr(how, name, value)
        chosen, logp = torch.zeros(2, ROWS, dtype=torch.int64), torch.zeros(2, ROWS)
        at = [tensor.data_ptr() for tensor in (*running.stamps, chosen, logp)]
        given = [None if place == missing else address for place, address in enumerate(at)]
        return int(_kernels().heed_write(ctypes.byref(running.step), count, scores, ctypes.byref(how), *given))

    assert run() == 1
    assert run(scores=-1) == run(scores=99) == -Refusal.SIZES
    assert run(end_count=-1) == run(end_count=HUGE) == run(top_k=-1) == -Refusal.SIZES
    assert [run(count=count) for count in BROKEN_COUNTS] == [-Refusal.SIZES] * 3
    assert [run(missing=place) for place in range(5)] == [-Refusal.MISSING] * 5
    assert run(ends=None) == run(live=None) == -Refusal.MISSING
    assert run(wrong=_stamp(0, -1)) == -Refusal.VALUES
    assert run(wrong=_put("threads", 0)) == -Refusal.THREADS
    assert run(wrong=_cache("length", 4)) == -Refusal.CACHES
    assert run(wrong=_stamp(2, PLACES - 2)) == 1
    assert run(2, wrong=_stamp(2, PLACES - 2), ends=None, end_count=0) == -Refusal.POSITIONS  # the second one
