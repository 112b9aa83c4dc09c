"""Rows of a program change places without copies; they are sampled in bursts, each as if it were alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from heed.core.contract import NOTHING, Given, Where
from heed.core.state import leaves, select
from heed.decode import Beam, Greedy, Sample, SamplingConfig, Stop, Token, generate, loop, stream
from heed.decode.rows import Rows
from heed.engine import SamplingSettings, adaptive
from heed.engine.compiled import CompiledRunner, compiled_runner
from heed.engine.program import Uncompiled
from heed.engine.runners import PlainRunner
from heed.kernels import library
from heed.mixers import Attention, Cross, Retention
from heed.models import RWKV, Decoder, Encoder, Seq2seq
from heed.models.block import States
from heed.parts.masks import Window
from heed.parts.positions import Alibi, Learned, Rope, Sinusoid
from heed.parts.residual.wiring import PostNorm

SIZES: dict[str, Any] = {"vocabulary": 37, "width": 24, "depth": 2}
WINDOWED = (Attention.Config(heads=2), Attention.Config(heads=2, mask=Window(back=3), position=Rope.Config()))
PLANS = {
    "dense": Decoder.Config(**SIZES, position=Learned.Config(length=128)),
    "slopes": Decoder.Config(**SIZES, mixer=Attention.Config(kv_heads=2, position=Alibi.Config())),
    "windows": Decoder.Config(**SIZES, mixer=WINDOWED, cap=3.0),
    "cells": RWKV(width=24, depth=2, hidden=16).sized(37),
    "both": Decoder.Config(**SIZES, mixer=(Retention.Config(heads=2), Attention.Config(heads=2))),
}
# Which rows go on after so many tokens: all of them in another order, more, fewer, few, one again and again.
ORDERS = ([2, 0, 1], [0, 0, 1, 2, 2], [4, 3, 2, 1, 0], [4, 1, 1, 0], [3, 0, 2], [2], [0, 0, 0], [1, 2, 0])
FLOAT32 = 3e-5  # sums in another order: some hundred roundings of numbers of about one


@pytest.fixture(autouse=True)
def _compiled() -> None:
    if library() is None:
        pytest.skip("this machine has no C++ compiler; that heed does without is shown by all other tests")


def _built(config: Decoder.Config) -> Decoder:
    torch.manual_seed(0)
    model = config.build().eval()
    torch.nn.init.normal_(model.head.weight, std=0.4)
    return model


def _seq2seq() -> tuple[Seq2seq, Given]:
    torch.manual_seed(0)
    encoder = Encoder.Config(**SIZES, position=Sinusoid.Config())
    decoder = Decoder.Config(**SIZES, cross=Cross.Config(), position=Sinusoid.Config(), wiring=PostNorm())
    model = Seq2seq.Config(encoder=encoder, decoder=decoder, shared=True).build().eval()
    memory = model.encode(torch.randint(37, (3, 8)), Where.ragged(torch.tensor([8, 3, 5])))
    return model, Given(encoder_output=memory)


def _subjects() -> Iterator[tuple[str, Decoder | Seq2seq, Given]]:
    for name, config in PLANS.items():
        yield name, _built(config), NOTHING
    yield "source", *_seq2seq()


def _scores(model: Decoder | Seq2seq, given: Given, lengths: tuple[int, ...], *, quick: bool) -> Tensor:
    """Of many tokens, while rows change places; at last by plain calls, from the state that is given back."""
    draw = torch.Generator().manual_seed(1)
    prompts = [torch.randint(37, (length,), generator=draw).tolist() for length in lengths]
    rows = Rows(model, prompts, given)
    rows.runner = rows.runner if quick else PlainRunner(model)
    made = [rows.prefill()]
    for order in ORDERS:
        rows.select(torch.tensor(order), [rows.owner[row] for row in order])
        for _ in range(6):
            made.append(rows.step(torch.randint(37, (len(order),), generator=draw)).clone())
    assert rows.runner.compiled == quick
    state = cast(States, rows.runner.state())
    with torch.no_grad():
        for order in ([0, 1, 2], [2, 1, 0], [1, 1, 0]):
            tokens = torch.randint(37, (len(rows), 1), generator=draw)
            scores, kept = model(tokens, rows.next(), select(state, torch.tensor(order)))
            rows._steps, state = rows._steps + 1, cast(States, kept)
            made.append(scores[:, -1])
    return torch.cat(made)


@pytest.mark.parametrize("lengths", [(5, 5, 5), (3, 7, 1)], ids=["even", "ragged"])
@pytest.mark.parametrize(("name", "model", "given"), list(_subjects()), ids=[name for name, *_ in _subjects()])
def test_rows_change_places(name: str, model: Decoder | Seq2seq, given: Given, lengths: tuple[int, ...]) -> None:
    quick, plain = (_scores(model, given, lengths, quick=quick) for quick in (True, False))
    assert float((quick - plain).abs().max()) <= FLOAT32 * max(1.0, float(plain.abs().max()))


def test_no_past_is_copied_while_rows_change_places() -> None:
    model, given = _seq2seq()
    with torch.no_grad():
        state = model.start(3, given)
        _, state = cast("tuple[Tensor, States]", model(torch.ones(3, 1, dtype=torch.long), Where.run(3, 1), state))
        walk = cast(CompiledRunner, compiled_runner(model, state))
        memories = walk.caches.structures
        sources = [memory.key for memory in memories if memory.source]
        assert len(sources) == 2
        walk.select(torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2]))  # more rows than there are: room is made
        written = [memory.key for memory in memories if not memory.source]
        for step in range(4):
            walk.step(torch.arange(9), Where.run(9, 1, start=1 + step))
            walk.select(torch.tensor([2, 2, 1, 5, 3, 3, 6, 6, 6]))
        assert [memory.key for memory in memories if not memory.source] == written
        walk.select(torch.tensor([8, 1, 1, 0, 4, 5]))
        assert [memory.key for memory in memories if not memory.source] == written
        assert [memory.key for memory in memories if memory.source] == sources  # rows of one prompt read one source
        walk.select(torch.tensor([5, 1]))  # few are left: they get storage of their own
        assert [memory.key for memory in memories if not memory.source] != written
        assert [len(leaf.tensors()[0]) for leaf in leaves(walk.state())] == [2] * 4


@pytest.mark.parametrize("model", [_built(PLANS["dense"]), _built(PLANS["windows"]), _built(PLANS["cells"])])
def test_beams_are_those_of_plain_calls(model: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts, how = [[1, 2, 3], [4], [5, 6]], Beam(beams=4, best=3, length_penalty=0.7, early=False)
    quick = generate(model, prompts, max_new_tokens=30, end={3, 9}, strategy=how)
    monkeypatch.setattr(adaptive, "compiled_runner", lambda model, *_: Uncompiled(model, "not wanted"))
    for mine, theirs in zip(quick, generate(model, prompts, max_new_tokens=30, end={3, 9}, strategy=how), strict=True):
        assert [(one.tokens, one.why) for one in mine] == [(one.tokens, one.why) for one in theirs]
        assert [one.score for one in mine] == pytest.approx([one.score for one in theirs], abs=1e-3)


HOWS = (
    Greedy(repetition=1.3),
    Sample(seed=3),
    Sample(temperature=0.8, top_k=7, seed=4),
    Sample(top_p=0.9, min_p=0.02, seed=5),
    Sample(top_k=20, top_p=0.8, repetition=1.2, seed=6),
)
ROWS = ([1, 2, 3], [4], [5, 6], [7, 8, 9, 10], [2], [11, 3])
STOP = Stop(["7,", "1,2"], lambda ids: "".join(f"{i}," for i in ids))


@pytest.mark.parametrize("stop", [None, STOP], ids=["", "stop"])
@pytest.mark.parametrize("end", [None, {5, 7}], ids=["", "end"])
@pytest.mark.parametrize("how", HOWS, ids=repr)
def test_bursts_write_what_single_steps_write(
    how: SamplingConfig, end: Any, stop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a row alone, with its own seed; and somebody who reads along."""
    model = _built(PLANS["windows"])
    found = generate(model, ROWS, strategy=how, max_new_tokens=150, end=end, stop=stop)
    for row, prompt in enumerate(ROWS[:4]):
        alone = how.model_copy(update={"seed": (how.seed or 0) + row}) if isinstance(how, Sample) else how
        (other,) = generate(model, [prompt], strategy=alone, max_new_tokens=150, end=end, stop=stop)[0]
        assert (other.tokens, other.why, other.cut) == (found[row][0].tokens, found[row][0].why, found[row][0].cut)
    lines: list[list[Token]] = [[] for _ in ROWS]
    for token in stream(model, ROWS, strategy=how, max_new_tokens=150, end=end, stop=stop):
        lines[token.row].append(token)
    monkeypatch.setattr(loop, "MANY", 1)
    monkeypatch.setattr(loop, "FEW", 1)
    single = generate(model, ROWS, strategy=how, max_new_tokens=150, end=end, stop=stop)
    for line, (mine,), (theirs,) in zip(lines, found, single, strict=True):
        assert (mine.tokens, mine.why, mine.cut) == (theirs.tokens, theirs.why, theirs.cut)
        assert mine.score == pytest.approx(theirs.score, abs=1e-3)
        assert tuple(token.token for token in line if token.kept) == mine.tokens
        assert line[-1].why == mine.why
        assert sum(token.logprob for token in line) == pytest.approx(mine.score, abs=1e-3)
    assert end is not None or stop is not None or all(len(one.tokens) == 150 for (one,) in found)


def test_a_burst_ends_where_too_few_rows_are_left() -> None:
    model = _built(PLANS["dense"])
    tokens = torch.tensor([1, 2, 3, 4])

    def write(ends: list[int], enough: int) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            _, state = model(tokens[:, None], Where.run(4, 1), model.start(4))
            assert state is not None
            walk = compiled_runner(model, state)
            assert not isinstance(walk, Uncompiled)
            live = torch.tensor([True, True, False, True])  # what the third writes ends nothing
            how = SamplingSettings(live, enough=enough, ends=torch.tensor(ends, dtype=torch.long))
            made = walk.burst(tokens, Where.run(4, 1, start=1), 40, how)
            assert made is not None
            return made[0], live

    whole, live = write([], 1)
    assert len(whole) == 40
    assert live.tolist() == [True, True, False, True]
    end = int(whole[6, 1])
    ended = [(whole[:, row] == end).nonzero()[:1].flatten().tolist() for row in (0, 1, 3)]
    first = sorted(place[0] for place in ended if place)
    for count, enough in enumerate(range(3, 3 - len(first), -1)):
        made, live = write([end, 36], enough)
        assert len(made) <= first[count] + 1
        assert torch.equal(made, whole[: len(made)])
        assert int(live.sum()) < enough


def test_a_burst_that_takes_long_is_followed_by_shorter_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model, counts, form = _built(PLANS["dense"]), list[int](), CompiledRunner.burst

    def write(
        walk: CompiledRunner, tokens: Tensor, where: Where, most: int, how: SamplingSettings
    ) -> tuple[Tensor, Tensor] | None:
        counts.append(most)
        return form(walk, tokens, where, most, how)

    monkeypatch.setattr(CompiledRunner, "burst", write)
    monkeypatch.setattr(loop, "PATIENCE", 0.0)
    patient = generate(model, [[1]], max_new_tokens=120, end=None)
    assert counts == [64, 32, 16, 7]
    monkeypatch.setattr(loop, "PATIENCE", 100.0)
    assert generate(model, [[1]], max_new_tokens=120, end=None)[0][0].tokens == patient[0][0].tokens
    assert counts[4:] == [64, 55]
