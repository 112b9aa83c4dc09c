"""Rows that step together: who may, codes of far places, pages that come back, and a call that is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from heed.core.contract import NOTHING, Where
from heed.core.errors import InputError
from heed.models import Decoder
from heed.parts.positions import Sinusoid
from heed.serve import Engine, Limits, Request, RequestFailed
from heed.serve.batch import FIRST, PAGE, Batch, batch_of
from heed.serve.executor import Row
from tests.serve.support import SIZES, built

MEMORY = 1 << 24


def made(model: Any, rows: int = 4) -> Batch:
    batch = batch_of(model, MEMORY, rows)
    assert batch is not None
    return batch


@torch.no_grad()
def read(model: Any, prompt: list[int]) -> Row:
    row = Row(model, NOTHING)
    row.read(prompt)
    return row


@pytest.mark.parametrize("name", ["window", "linear", "translator", "hybrid"])
def test_others_step_by_themselves(name: str) -> None:
    assert batch_of(built(name), MEMORY, 4) is None


@pytest.mark.parametrize("name", ["attention", "gqa", "alibi", "retention", "rwkv", "mixed"])
@torch.no_grad()
def test_steps_are_those_of_a_row_by_itself(name: str) -> None:
    """Of lengths around the border of a page: near to plain steps, and the same bits as in a batch of one."""
    model = built(name)
    batch, lengths = made(model), (1, PAGE - 1, PAGE, PAGE + 1, 3 * PAGE)
    rows = [read(model, [(7 * i + length) % 37 for i in range(length)]) for length in lengths]
    singles = [read(model, [(7 * i + length) % 37 for i in range(length)]) for length in lengths]
    plain = [read(model, [(7 * i + length) % 37 for i in range(length)]) for length in lengths]
    for turn in range(PAGE + 2):
        orders, tokens = [length + turn for length in lengths], [(turn + length) % 37 for length in lengths]
        seats = [row.seat(batch) for row in rows]
        together = torch.cat(batch.step(seats, [[token] for token in tokens], orders))
        for seat in seats:
            seat.keep(1)
        for place, (single, by_calls) in enumerate(zip(singles, plain, strict=True)):
            seat = single.seat(batch)
            (alone,) = batch.step([seat], [[tokens[place]]], [orders[place]])[0]
            seat.keep(1)
            assert torch.equal(together[place], alone)
            torch.testing.assert_close(alone, by_calls.step(tokens[place]), atol=1e-4, rtol=1e-4)
    for row in (*rows, *singles):
        row.close()
    assert batch.arena.free == batch.arena.columns // PAGE - 1


@pytest.mark.parametrize("name", ["window", "linear"])
@torch.no_grad()
def test_logits_of_a_step_stay(name: str) -> None:
    row = read(built(name), [1, 2, 3])
    first = row.step(4)
    kept = first.clone()
    assert not torch.equal(row.step(5), kept)
    assert torch.equal(first, kept)


@torch.no_grad()
def test_codes_reach_the_longest_row() -> None:
    """A code that is added to tokens is made ready for so many places at first; a longer row needs more."""
    torch.manual_seed(1)
    model = Decoder.Config(**SIZES, position=Sinusoid.Config()).build().eval()
    batch = made(model)
    rows = [read(model, [1]), read(model, [(3 * i) % 37 for i in range(2 * FIRST + 5)])]
    logits = batch.step([row.seat(batch) for row in rows], [[2], [3]], [row.done for row in rows])
    ids = torch.tensor([[(3 * i) % 37 for i in range(2 * FIRST + 5)] + [3]])
    torch.testing.assert_close(logits[1][0], model(ids)[0][0, -1], atol=1e-4, rtol=1e-4)


def test_a_call_that_is_refused_ends_its_rows_only(monkeypatch: pytest.MonkeyPatch) -> None:
    step, refused = Batch.step, list[int]()

    def once(batch: Batch, *given: Any) -> Any:
        if not refused:
            refused.append(len(given[0]))
            raise ValueError("the kernel refuses")
        return step(batch, *given)

    monkeypatch.setattr(Batch, "step", once)
    with Engine(built("gqa"), Limits(memory=MEMORY, rows=4, chunk=8, page=4)) as engine:
        first = engine.submit(Request(prompt=[1, 2], max_new_tokens=4, ends=()))
        with pytest.raises(RequestFailed, match="the kernel refuses"):
            first.result(10)
        assert engine.submit(Request(prompt=[1, 2], max_new_tokens=4, ends=())).result(10).reason == "limit"
        assert engine.health().alive
        told = engine.statistics()["model"]
    assert (told.failed, told.finished, told.bytes_used) == (1, 1, 0)


@pytest.mark.parametrize("name", ["attention", "gqa", "alibi", "retention", "rwkv", "mixed", "int8"])
@torch.no_grad()
def test_several_tokens_of_a_row_are_so_many_steps(name: str) -> None:
    """Some of them wrong, and forgotten; beside another row, and across the border of a page."""
    model, rng = built(name), random.Random(name)
    batch, prompt = made(model), [(7 * i) % 37 for i in range(PAGE - 3)]
    single, several, other = read(model, prompt), read(model, prompt), read(model, [2, 7, 1])
    one, many, beside = (row.seat(batch) for row in (single, several, other))
    tokens, expected = [(5 * i + 3) % 37 for i in range(20)], []
    for place, token in enumerate(tokens):
        expected.append(batch.step([one], [[token]], [len(prompt) + place])[0][0].clone())
        one.keep(1)
    at = 0
    while at < len(tokens):
        right = min(rng.randrange(1, 6), len(tokens) - at)
        given = tokens[at : at + right] + [rng.randrange(37) for _ in range(rng.randrange(3))]
        _, logits = batch.step([beside, many], [[4], given], [beside.length, len(prompt) + at])
        assert len(logits) == len(given)
        assert all(torch.equal(found, wanted) for found, wanted in zip(logits, expected[at : at + right], strict=False))
        beside.keep(1)
        many.keep(right)
        at += right


@torch.no_grad()
def test_the_first_row_follows_none() -> None:
    batch = made(built("retention"))
    seat = read(built("retention"), [1, 2, 3]).seat(batch)
    batch.step([seat], [[1, 2]], [3])
    (execution,) = batch._executions.values()
    tokens, order = torch.tensor([1, 2]), torch.tensor([[4], [5]])
    with pytest.raises(InputError):
        execution.step(tokens, Where(order, order), torch.tensor([True, True]))
    execution.step(tokens, Where(order, order), torch.tensor([False, True]))
