"""Whatever the neighbours, arrivals, cancellations, prefix hits, preemptions: the bits of a request that is alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Mixer
from heed.core.errors import InputError
from heed.decode import Greedy, Sample
from heed.serve.answer import Answer, Completed
from heed.serve.request import Request
from heed.serve.served import Limits, Served
from heed.serve.statistics import Statistics
from heed.serve.worker import Worker
from tests.serve.support import CHUNK, PLANS, VOCABULARY, Noted, built

NUMBERS = count()
KINDS = 14  # distinct requests of a model
MEMORIES = (1.0, 1.2, 1.4, 1.6, 1.8, 2.1, 2.5, 8.0)  # of each schedule, in times of the largest request


BATCHED = ("attention", "gqa", "retention", "rwkv", "mixed", "alibi", "int8")  # whose rows step together


def requests(rng: random.Random, *, sourced: bool) -> list[Request]:
    """Prompts that begin alike and others, short and long, with every kind of sampling."""
    shared = [rng.randrange(VOCABULARY) for _ in range(3 * CHUNK + 1)]
    made = []
    for kind in range(KINDS):
        own = [rng.randrange(VOCABULARY) for _ in range(rng.choice((1, 2, 5, CHUNK, 2 * CHUNK, 27)))]
        prompt = shared[: rng.choice((CHUNK, 2 * CHUNK, 3 * CHUNK + 1))] + own if kind % 2 else own
        sampling = (
            Greedy(),
            Sample(seed=kind, temperature=0.9),
            Sample(seed=kind, top_k=5, repetition=1.3),
            Sample(seed=kind, top_p=0.8, min_p=0.02),
        )[kind % 4]
        source = [rng.randrange(VOCABULARY) for _ in range(rng.randrange(1, 9))] if sourced else None
        bias = {3: 1.5} if kind % 3 == 0 else {}
        owner = "ab"[kind % 5 == 4]
        limit = rng.choice((1, 3, 8, 17, 40))
        made.append(
            Request(
                prompt=prompt,
                source=source,
                max_new_tokens=limit,
                sampling=sampling,
                ends=[0],
                logit_bias=bias,
                logprobs=3,
                owner=owner,
            )
        )
    return made


class Run:
    """A worker driven by hand, so that a schedule follows from a seed."""

    def __init__(self, model: Mixer[Any], noted: Noted, *, memory: int, rows: int = 11, ahead: int = 7) -> None:
        self.noted, self.first = noted, next(NUMBERS)
        limits = Limits(rows=rows, waiting=64, chunk=CHUNK, page=4, ahead=ahead)
        self.worker = Worker(Served("model", model), limits, memory)

    def submit(self, request: Request) -> tuple[Answer, int]:
        number = next(NUMBERS)
        marked = replace(request, allow=self.noted.mark(number))
        return self.worker.submit(marked, number, lambda _: Answer(lambda: self.worker.cancel(number))), number

    @torch.no_grad()
    def tick(self) -> None:
        self.worker.tick()

    def alone(self, request: Request) -> tuple[Completed, list[Tensor]]:
        answer, number = self.submit(request)
        while self.worker.busy:
            self.tick()
        return answer.result(0), self.noted.logits.get(number, [])


def driven(run: Run, rng: random.Random, kinds: list[Request]) -> Iterator[tuple[int, Completed, list[Tensor]]]:
    """One schedule: requests come between ticks, some are cancelled; what each was answered."""
    coming = [rng.randrange(len(kinds)) for _ in range(12)]
    answers: list[tuple[int, Answer, int]] = []
    while coming or run.worker.busy:
        while coming and rng.random() < 0.4:
            kind = coming.pop()
            answers.append((kind, *run.submit(kinds[kind])))
        if answers and rng.random() < 0.03:
            rng.choice(answers)[1].cancel()
        run.tick()
    for kind, answer, number in answers:
        yield kind, answer.result(0), run.noted.logits.get(number, [])


def compared(name: str, noted: Noted, schedules: int, *, quantised: bool = False) -> Statistics:
    """So many schedules of a model, each answer compared with that of its request alone; what they did in all."""
    model, rng = built(name, quantised=quantised), random.Random(name)
    kinds = requests(rng, sourced=name == "translator")
    alone = [Run(model, noted, memory=1 << 24).alone(kind) for kind in kinds]
    probe = Run(model, noted, memory=1 << 24).worker
    largest = max(
        probe._prices.bytes(len(kind.prompt) + (kind.max_new_tokens or 0), len(kind.source or ())) for kind in kinds
    )
    assert probe.info.executor == ("compiled" if name in BATCHED else "plain")
    total, together = Statistics(), 0
    for schedule in range(schedules):
        run = Run(model, noted, memory=int(largest * MEMORIES[schedule % len(MEMORIES)]))
        for kind, made, logits in driven(run, random.Random(f"{name} {schedule}"), kinds):
            expected, theirs = alone[kind]
            written = len(made.tokens)
            assert made.tokens == expected.tokens[:written]
            assert all(torch.equal(one, other) for one, other in zip(logits, theirs, strict=False))
            if made.reason != "cancelled":
                assert (made.tokens, made.logprobs, made.top, made.reason) == (
                    expected.tokens,
                    expected.logprobs,
                    expected.top,
                    expected.reason,
                )
                assert len(logits) == len(theirs) == made.usage.completion_tokens
        end = run.worker.statistics()
        assert (end.running, end.waiting, end.bytes_used) == (0, 0, end.prefix_bytes)
        for what in ("finished", "cancelled", "cached_tokens", "preempted", "guessed_tokens", "accepted_tokens"):
            setattr(total, what, getattr(total, what) + getattr(end, what))
        if run.worker._batch is not None:
            together = max(together, *run.worker._batch._executions)
        noted.logits = {number: logits for number, logits in noted.logits.items() if number < run.first}
    assert total.finished > 8 * schedules
    assert total.cancelled
    assert name not in BATCHED or together > 3  # rows did share calls
    assert name == "translator" or total.cached_tokens
    return total


@pytest.mark.parametrize("name", PLANS)
def test_answers_are_those_of_a_request_alone(name: str, noted: Noted) -> None:
    compared(name, noted, len(MEMORIES))


@pytest.mark.slow
@pytest.mark.parametrize("quantised", [False, True], ids=["float32", "int8"])
@pytest.mark.parametrize("name", ["attention", "window", "gqa", "retention", "rwkv", "hybrid", "mixed", "translator"])
def test_so_they_are_over_a_thousand_schedules(name: str, quantised: bool, noted: Noted) -> None:
    """Of each of eight mechanisms in two precisions, 80: 1,280 in all."""
    total = compared(name, noted, 80, quantised=quantised)
    print({what: number for what, number in vars(total).items() if number})
    assert total.preempted or name in ("window", "retention", "rwkv", "hybrid")  # whose rows do not grow
    assert total.guessed_tokens or name not in BATCHED


@pytest.mark.parametrize("ahead", [0, 7])
@pytest.mark.parametrize("name", ["attention", "gqa", "mixed", "alibi", "int8", "translator"])
def test_who_was_put_off_is_retraced_to_the_same_bits(name: str, ahead: int, noted: Noted, eager: None) -> None:
    """Four requests fit as they begin, and not as they grow."""
    model, sourced = built(name), name == "translator"
    kinds = [
        Request(
            prompt=[kind + 1] * (10 + kind),
            source=[3, 2, 1] if sourced else None,
            max_new_tokens=40,
            sampling=Sample(seed=kind),
            ends=(),
            logprobs=1,
        )
        for kind in range(4)
    ]
    alone = [Run(model, noted, memory=1 << 24).alone(kind) for kind in kinds]
    prices = Run(model, noted, memory=1 << 24).worker._prices
    run = Run(model, noted, memory=4 * prices.bytes(14, 3) + 2 * prices.page_bytes, ahead=ahead)
    answers = [run.submit(kind) for kind in kinds]
    while run.worker.busy:
        run.tick()
    end = run.worker.statistics()
    assert end.preempted > (0 if ahead else 1)
    assert end.retraced_tokens > 10
    assert end.bytes_used == end.prefix_bytes
    for (answer, number), (expected, theirs) in zip(answers, alone, strict=True):
        made = answer.result(0)
        assert (made.tokens, made.logprobs, made.top) == (expected.tokens, expected.logprobs, expected.top)
        assert all(torch.equal(one, other) for one, other in zip(run.noted.logits[number], theirs, strict=True))
    assert run.worker._batch is None or run.worker._batch.arena.free == run.worker._batch.arena.columns // 16 - 1


@pytest.mark.parametrize("name", ["attention", "window", "retention", "rwkv", "hybrid", "linear"])
def test_a_prefix_hit_gives_the_same_bits(name: str, noted: Noted) -> None:
    model = built(name)
    prompt = [(7 * i) % VOCABULARY for i in range(4 * CHUNK)]
    request = Request(prompt=prompt, max_new_tokens=6, ends=(), logprobs=VOCABULARY)
    run = Run(model, noted, memory=1 << 24)
    (cold, first), (warm, second) = run.alone(request), run.alone(request)
    assert (cold.usage.cached_tokens, warm.usage.cached_tokens) == (0, 3 * CHUNK)  # one chunk is always read
    assert cold.top == warm.top
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    other, _ = run.alone(replace(request, owner="somebody else"))
    assert other.usage.cached_tokens == 0  # nothing tells an owner what others asked
    changed, _ = run.alone(replace(request, prompt=[1, *prompt[1:]]))
    assert changed.usage.cached_tokens == 0


@pytest.mark.parametrize("name", ["attention", "rwkv"])
def test_prompt_logprobs_are_those_of_one_call(name: str, noted: Noted) -> None:
    model = built(name)
    prompt = [(5 * i) % VOCABULARY for i in range(2 * CHUNK + 3)]
    run = Run(model, noted, memory=1 << 24)
    made, _ = run.alone(Request(prompt=prompt, max_new_tokens=1, prompt_logprobs=2, ends=()))
    with torch.no_grad():
        expected = model(torch.tensor([prompt]))[0][0].log_softmax(1)
    only, _ = run.alone(Request(prompt=prompt, max_new_tokens=0, prompt_logprobs=2, ends=()))  # read, nothing written
    assert (only.tokens, only.reason, only.usage.completion_tokens) == ((), "limit", 0)
    assert only.prompt_logprobs == made.prompt_logprobs
    assert made.prompt_logprobs is not None
    assert made.prompt_logprobs[0] is None
    assert len(made.prompt_logprobs) == len(prompt)
    for place, told in enumerate(made.prompt_logprobs[1:]):
        assert told is not None
        assert told[0] == pytest.approx(float(expected[place, prompt[place + 1]]), abs=1e-4)
        assert [token for token, _ in told[1]] == expected[place].topk(2).indices.tolist()


def test_tokens_are_those_of_decode(noted: Noted) -> None:
    from heed.decode import generate

    model = built("gqa")
    for sampling in (Greedy(), Sample(seed=5, temperature=0.7), Greedy(repetition=1.4)):
        prompt = [3, 1, 4, 1, 5]
        (theirs,) = generate(model, [prompt], max_new_tokens=12, end=0, strategy=sampling)
        run = Run(model, noted, memory=1 << 24)
        made, _ = run.alone(Request(prompt=prompt, max_new_tokens=12, ends=[0], sampling=sampling, logprobs=0))
        assert (made.tokens, made.reason) == (theirs[0].tokens, theirs[0].why)
        assert made.logprobs == pytest.approx(theirs[0].logprobs[: len(made.tokens)], abs=1e-4)


def test_what_never_fits_is_refused_at_the_door(noted: Noted) -> None:
    run = Run(built("attention"), noted, memory=60_000)
    with pytest.raises(InputError, match="ask for fewer"):
        run.submit(Request(prompt=[1] * 60, max_new_tokens=60))
    with pytest.raises(InputError, match="128 places"):
        run.submit(Request(prompt=[1] * 60, max_new_tokens=70))
    assert not run.worker.busy
