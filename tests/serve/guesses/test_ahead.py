"""Guesses ahead: the same bits as without them, the same distribution, fewer calls; and only where they pay."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from heed.core.errors import InputError
from heed.decode import Greedy, Sample
from heed.models import Decoder
from heed.serve import Engine, Limits, Request
from heed.serve.answer import Answer
from heed.serve.batch import ROWS
from heed.serve.guesses.ahead import Ahead, Guesser, Lookup, Wish
from heed.serve.guesses.gain import Gain, Rate
from heed.serve.guesses.small import Small
from heed.serve.served import Served
from heed.serve.worker import Worker
from tests.serve.support import SIZES, VOCABULARY, built

BATCHED = ("attention", "gqa", "retention", "rwkv", "mixed", "alibi", "int8")
PERIOD = [3, 1, 4, 1, 5, 9, 2, 6]


@torch.no_grad()
def answered(worker: Worker, requests: list[Request]) -> list[Any]:
    answers = [
        worker.submit(request, number, lambda _: Answer(lambda: None)) for number, request in enumerate(requests)
    ]
    while worker.busy:
        worker.tick()
    return [answer.result(0) for answer in answers]


def worker(model: Any, *, ahead: int, draft: Any = None) -> Worker:
    limits = Limits(rows=8, waiting=400, chunk=8, page=16, ahead=ahead)
    return Worker(Served("model", model), limits, 1 << 22, draft)


def asked(count: int = 24, **more: Any) -> Request:
    return Request(**{"prompt": PERIOD * 3, "max_new_tokens": count, "ends": (), "logprobs": 2, **more})


REQUESTS = [
    asked(),
    asked(sampling=Sample(seed=3, temperature=0.5)),
    asked(sampling=Greedy(repetition=1.2)),
    asked(logit_bias={3: 2.0}, ends=[3]),
    asked(count=7),
]


@pytest.mark.parametrize("drafted", [False, True], ids=["lookup", "small"])
@pytest.mark.parametrize("name", BATCHED)
def test_answers_have_the_bits_of_those_without_guesses(name: str, drafted: bool, eager: None) -> None:
    """One request alone, and some together; a small model that is the large one is always right."""
    model = built(name)
    expected = answered(worker(model, ahead=0), REQUESTS)
    for requests in ([[request] for request in REQUESTS], [REQUESTS]):
        found, guessed, accepted = [], 0, 0
        for some in requests:
            one = worker(model, ahead=7, draft=model if drafted else None)
            found += answered(one, some)
            told = one.statistics()
            guessed, accepted = guessed + told.guessed_tokens, accepted + told.accepted_tokens
            assert told.bytes_used == told.prefix_bytes
            assert one._batch is not None
            assert one._batch.arena.free == one._batch.arena.columns // 16 - 1
        for made, theirs in zip(found, expected, strict=True):
            assert (made.tokens, made.logprobs, made.top) == (theirs.tokens, theirs.logprobs, theirs.top)
        assert guessed
        assert accepted > (20 if drafted else -1)


@pytest.mark.parametrize("name", ["gqa", "mixed"])
def test_guesses_that_are_right_save_calls(name: str, eager: None) -> None:
    model = built(name)
    plain, small = worker(model, ahead=0), worker(model, ahead=7, draft=model)
    (theirs,), (made,) = (answered(one, [asked(48, prompt=[1, 2])]) for one in (plain, small))
    assert made.tokens == theirs.tokens
    few, many = small.statistics(), plain.statistics()
    assert many.calls == 47  # the first token is read of the prompt
    assert few.calls < 12
    assert few.calls + few.accepted_tokens == 47


def test_a_small_model_is_wrong_and_found_out(eager: None) -> None:
    model, other = built("mixed"), built("rwkv", seed=5)
    requests = [asked(prompt=[kind + 1] * (3 * kind + 1), sampling=Sample(seed=kind)) for kind in range(5)]
    expected = answered(worker(model, ahead=0), requests)
    one = worker(model, ahead=4, draft=other)
    made = answered(one, requests)
    assert [each.top for each in made] == [each.top for each in expected]
    told = one.statistics()
    assert 0 <= told.accepted_tokens < told.guessed_tokens
    assert one._ahead.small is not None
    assert not one._tasks


def test_a_sample_has_the_distribution_of_the_model(eager: None) -> None:
    """The second and the third token, over many seeds, against their probabilities (chi-square)."""
    torch.manual_seed(2)
    model, small = (Decoder.Config(vocabulary=4, width=16, depth=1).build().eval() for _ in range(2))
    prompt, count, heat = [1, 2, 3], 400, 3.0
    with torch.no_grad():
        firsts = [(first, second) for first in range(4) for second in range(4)]
        p = (model(torch.tensor([[*prompt, *two] for two in firsts]))[0] / heat).softmax(-1).double()
    rows = torch.arange(16)
    first, second = torch.tensor(firsts).T
    chain = p[rows, 2, first][:, None] * (p[rows, 3, second][:, None] * p[:, 4])  # [first and second, third]
    expected = chain.view(4, 16).sum(0) * count  # of the second and the third token
    one, seen = worker(model, ahead=3, draft=small), torch.zeros(16, dtype=torch.float64)
    for begin in range(0, count, 4):
        some = [
            Request(prompt=prompt, max_new_tokens=4, ends=(), sampling=Sample(seed=seed, temperature=heat))
            for seed in range(begin, begin + 4)
        ]
        for made in answered(one, some):
            seen[4 * made.tokens[1] + made.tokens[2]] += 1
    told = one.statistics()
    assert 50 < told.accepted_tokens < told.guessed_tokens - 100
    assert float(expected.min()) > 5
    chi = float(((seen - expected) ** 2 / expected).sum())
    assert chi < 37.7  # of 15 degrees of freedom: one in a thousand is above that


def test_lookup_guesses_what_followed_before() -> None:
    lookup = Lookup([1, 2, 3, 9, 8, 1, 2, 3])
    assert lookup.guess(2) == [9, 8]
    lookup.extend([7, 2, 3])
    assert lookup.guess(3) == [7, 2, 3]  # the latest time, of two tokens
    assert Lookup([1, 2, 3]).guess(4) == []
    assert Lookup([5, 6, 5, 6, 5]).guess(5) == [6, 5, 6, 5, 6]  # it goes on as it does
    many = random.Random(0).choices(range(50), k=40_000)
    assert Lookup(many).guess(1) == Lookup(many[-(1 << 14) :]).guess(1)


def test_guesses_are_made_only_where_they_pay() -> None:
    gain = Gain()
    assert gain.count(1, [0.5, 0.25]) == 2  # nothing is known: try
    for rows, seconds in ((1, 1.0), (2, 1.1), (3, 1.9), (4, 4.0)):
        for _ in range(30):
            gain.called(rows, seconds)
    assert gain.count(1, []) == 0
    assert gain.count(1, [0.05, 0.01]) == 0
    assert gain.count(1, [0.5, 0.25]) == 1
    assert gain.count(1, [1.0, 1.0, 1.0]) == 1  # 2 in 1.1 is better than 3 in 1.9
    assert gain.count(2, [0.9]) == 0  # 2 in 1.1 is better than 2.9 in 1.9
    for _ in range(100):
        gain.guessed(1, 2.0)
    assert gain.count(1, [0.5]) == 0  # the guess itself takes longer
    rate = Rate()
    before = rate.share
    rate.note(7, 0)
    assert rate.share < before / 2
    for _ in range(60):
        rate.note(3, 3)
    assert rate.share > 0.9


def test_guesses_make_no_call_more(eager: None) -> None:
    guesser = Guesser(PERIOD * 2, 9, None)
    ahead = Ahead(7)
    for count in (1, 3, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS + 5):
        wishes = [Wish(number, [1], 20, guesser if number % 2 else None) for number in range(count)]
        calls = ahead.calls(wishes)
        assert len(calls) == -(-count // ROWS)
        assert sorted(turn.number for turns in calls for turn in turns) == list(range(count))
        assert all(sum(len(turn.tokens) for turn in turns) <= ROWS for turns in calls)
        assert sum(turn.guesses for turns in calls for turn in turns) == (-count % ROWS if count > 1 else 0)
    (alone,) = ahead.calls([Wish(0, [6], 3, guesser)])
    assert [turn.tokens for turn in alone] == [[6, *PERIOD[:2]]]  # as far as there is room
    (retraced,) = ahead.calls([Wish(0, [6, 7, 8], 20, guesser)])
    assert retraced[0][1:] == ([6, 7, 8], 0)  # known tokens, no guess


def test_what_cannot_guess_is_refused() -> None:
    model = built("gqa")
    other = Decoder.Config(**{**SIZES, "vocabulary": VOCABULARY + 1}).build().eval()
    with pytest.raises(InputError, match="same vocabulary"):
        Engine(model, Limits(memory=1 << 20), draft=other)
    with pytest.raises(InputError, match="cannot guess ahead"):
        Engine(model, Limits(memory=1 << 20), draft=built("linear"))
    with pytest.raises(InputError, match="not served: small"):
        Engine(model, Limits(memory=1 << 20), draft={"small": model})
    with pytest.raises(InputError, match="ahead is -1"):
        Limits(ahead=-1)


def test_a_small_model_without_room_follows_nobody(eager: None) -> None:
    model = built("gqa")
    small = Small(model, Limits(rows=2), 1 << 15)
    followers = []
    while (one := small.follow([1, 2, 3], 40)) is not None:
        followers.append(one)
    assert 0 < len(followers) < 60
    for one in followers:
        small.leave(one)
    assert small.follow([1, 2, 3], 40) is not None
    assert Small(built("attention"), Limits(rows=2), 1 << 20).follow([1] * 100, 25) is None  # 128 places


def test_guesses_go_with_an_engine_and_its_answers() -> None:
    model = built("retention")
    with Engine(model, Limits(memory=1 << 22, rows=4)) as engine:
        expected = engine.submit(asked()).result(10)
    with Engine(model, Limits(memory=1 << 22, rows=4), draft=model) as engine:
        assert engine.submit(asked()).result(10).top == expected.top
