"""What the kernel chooses is what `Sample` chooses, over all its options; and the likeliest tokens of a row."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from heed.core.errors import InputError
from heed.decode import Greedy, Sample, SamplingConfig
from heed.decode.sampling import RandomSampler, Repetition
from heed.engine import execution
from heed.engine.execution import SamplingSettings, sample, topk_logprobs

pytestmark = pytest.mark.usefixtures("compiler")

# More than there is, ties and nothing at all; hot, cold; a share that few tokens have, and one that most must be in.
SAMPLING: tuple[SamplingConfig, ...] = (
    Greedy(),
    Greedy(repetition=1.4),
    Sample(),
    Sample(temperature=0.2),
    Sample(temperature=1e-310),
    Sample(temperature=50.0, top_p=0.5),
    Sample(top_k=1),
    Sample(top_k=5),
    Sample(top_k=700),
    Sample(top_k=10**6),
    Sample(top_p=1e-3),
    Sample(top_p=0.9),
    Sample(top_p=0.99999),
    Sample(top_p=1.0),
    Sample(min_p=0.2),
    Sample(min_p=1.0),
    Sample(temperature=1.3, top_k=40, top_p=0.9, min_p=0.01, repetition=1.2),
)


@pytest.fixture(autouse=True)
def _of_each_kind(compiled: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "library", lambda: compiled)


def _choice(rows: int) -> SamplingSettings:
    return SamplingSettings(torch.ones(rows, dtype=torch.bool), enough=1, ends=torch.empty(0, dtype=torch.long))


def _scores(vocabulary: int) -> Iterator[Tensor]:
    draw = torch.Generator().manual_seed(vocabulary)
    plain = torch.randn(6, vocabulary, generator=draw)
    yield plain
    yield 9 * plain
    yield (2 * plain).round()  # many are equal
    yield torch.zeros(6, vocabulary)  # all are
    yield plain.masked_fill(plain < 0.5, -torch.inf)
    yield 0.01 * plain - 1e4


@pytest.mark.parametrize("vocabulary", [1, 3, 17, 130, 5003])
@pytest.mark.parametrize("how", SAMPLING, ids=repr)
def test_the_kernel_chooses_what_the_written_out_form_chooses(how: SamplingConfig, vocabulary: int) -> None:
    for scores in _scores(vocabulary):
        if bool((scores == -torch.inf).all(1).any()):
            continue
        one, other = how.seeded(0).start(6), how.seeded(0).start(6)
        penalty = Repetition(how.repetition, [[row % vocabulary, (5 * row) % vocabulary] for row in range(6)])
        for _ in range(3):
            wanted = one(penalty(scores))
            told = penalty.settings(other.settings(_choice(6), 1))
            seen = None if told.seen is None else told.seen.clone()
            tokens, logp = sample(scores, told)
            other.used(1)
            assert torch.equal(tokens, wanted)
            torch.testing.assert_close(logp, scores.log_softmax(1).gather(1, wanted[:, None])[:, 0], rtol=0, atol=4e-6)
            if seen is not None:
                assert told.seen is not None
                assert torch.equal(told.seen, seen.scatter(1, wanted[:, None], True))


def test_draws_are_handed_over_in_their_order() -> None:
    """Blocks are joined, and what was handed over but not used comes again."""
    whole, part = (RandomSampler(Sample(), range(3)) for _ in range(2))
    wanted = torch.cat([whole._uniform() for _ in range(200)], 1)
    found: list[Tensor] = []
    for most, used in ((50, 50), (64, 3), (1, 1), (64, 40), (64, 64), (42, 42)):
        draws = part.settings(_choice(3), most).draws
        assert draws is not None
        assert draws.shape == (most, 3)
        found.append(draws[:used].T)
        part.used(used)
    assert torch.equal(torch.cat(found, 1), wanted)


def test_no_number_has_no_log_p() -> None:
    scores = torch.randn(4, 20)
    scores[0, 7], scores[1, 3], scores[2] = torch.nan, torch.inf, -torch.inf
    for how in (Greedy(), Sample(top_k=3), Sample(top_p=0.5)):
        tokens, logp = sample(scores, how.start(4).settings(_choice(4), 1))
        assert logp.isnan().tolist() == [True, True, True, False]
        assert bool(((tokens >= 0) & (tokens < 20)).all())


@pytest.mark.parametrize("vocabulary", [1, 9, 128, 129, 4000])
@pytest.mark.parametrize("count", [1, 4, 12])
def test_the_topk_logprobs(vocabulary: int, count: int) -> None:
    count = min(count, vocabulary)
    for scores in _scores(vocabulary):
        if bool((scores == -torch.inf).all(1).any()):
            continue
        logp, tokens = topk_logprobs(scores, count)
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, :count]
        assert torch.equal(tokens, order)  # the first of equals first
        torch.testing.assert_close(logp, scores.log_softmax(1).gather(1, order), rtol=0, atol=4e-6)
    scores[2, 0] = torch.nan
    logp, _ = topk_logprobs(scores, count)
    assert logp.isnan().any(1).tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize("penalty", [1e-45, 1e-30, 0.0, -1.0, 1e38, torch.inf, torch.nan])
@pytest.mark.parametrize("draw", [0.0, 0.999, -5.0, 7.0, torch.nan, None])
@pytest.mark.parametrize("size", [1.0, 3e38])
def test_hostile_settings_leave_memory_alone(penalty: float, draw: float | None, size: float) -> None:
    """Past every check of Python: whatever they make of the logits, a token is one of the vocabulary."""
    scores = size * torch.linspace(-1, 1, 200).repeat(3, 1)
    scores[1] = -torch.inf
    scores[1, 7] = 1.0
    for temperature, top_p in ((1.0, 0.9), (torch.nan, 0.9), (-1.0, 0.5), (torch.inf, 0.9), (0.0, torch.nan)):
        seen = torch.zeros(3, 200, dtype=torch.bool)
        seen[:, ::2] = True
        draws = None if draw is None else torch.full((1, 3), draw, dtype=torch.float64)
        told = replace(_choice(3), draws=draws, temperature=temperature, top_p=top_p, penalty=penalty, seen=seen)
        tokens, _ = sample(scores, told)
        assert bool(((tokens >= 0) & (tokens < 200)).all())


def test_what_a_penalty_makes_infinite_is_no_choice() -> None:
    scores = torch.tensor([[3e38, 1.0, 2.0], [2.0, 1.0, 0.0]])
    told = replace(_choice(2), penalty=1e-3, seen=torch.ones(2, 3, dtype=torch.bool))
    _, logp = sample(scores, told)
    assert logp.isnan().tolist() == [True, False]


@pytest.mark.parametrize("draw", [0.0, 0.5, 1.0])  # the last of which rounding may make of one that is just below
def test_what_is_hidden_is_not_drawn(draw: float) -> None:
    """Also where fewer tokens are left than top-k may keep."""
    scores = torch.full((2, 200), -torch.inf)
    scores[0, 3], scores[1, [5, 150]] = 1.0, 2.0
    draws = torch.full((1, 2), draw, dtype=torch.float64)
    tokens, logp = sample(scores, replace(_choice(2), draws=draws, top_k=7))
    assert tokens.tolist() == [3, 5 if draw < 0.5 else 150]
    assert bool(logp.isfinite().all())


def test_where_nothing_is_left_nothing_is_chosen() -> None:
    scores = torch.tensor([[-3e38, -2e38, -1e38], [-3.0, -2.0, -1.0]])
    for draws in (None, torch.full((1, 2), 0.5, dtype=torch.float64)):
        told = replace(_choice(2), draws=draws, penalty=1e3, seen=torch.ones(2, 3, dtype=torch.bool))
        tokens, logp = sample(scores, told)
        assert logp.isnan().tolist() == [True, False]
        assert tokens[0] == 0


@pytest.mark.parametrize("count", [0, -1, 31])
def test_more_than_there_is_is_refused(count: int) -> None:
    scores = torch.randn(2, 30)
    with pytest.raises((InputError, RuntimeError), match=r"largest of 30 logits|negative dimension"):
        topk_logprobs(scores, count)
