"""The engine's thread: arrivals, cancellations, deadlines, errors, ends; read by loops and event loops."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.errors import InputError
from heed.decode import Greedy, Sample
from heed.serve import Answer, Busy, Engine, EngineStopped, Limits, Request, RequestFailed
from heed.serve.answer import Event
from heed.serve.worker import Worker
from tests.serve.support import VOCABULARY, built

LIMITS = Limits(memory=1 << 22, rows=4, waiting=8, chunk=8, page=4)


def asked(**more: Any) -> Request:
    return Request(**{"prompt": [3, 1, 4], "max_new_tokens": 5, "ends": (), **more})


def slow(seconds: float) -> Any:
    """A constraint that allows everything, late."""
    return lambda written: time.sleep(seconds)


@pytest.fixture
def engine() -> Any:
    with Engine(built("gqa"), LIMITS) as made:
        yield made


def test_an_answer_is_read_in_every_way(engine: Engine) -> None:
    request = asked(sampling=Sample(seed=3), logprobs=2)
    events = list(engine.submit(request))
    assert [event.reason for event in events] == [None] * 5 + ["limit"]
    whole = engine.submit(request).result(10)
    assert whole.tokens == tuple(event.token for event in events[:-1])
    assert whole.seed == 3
    assert all(len(top) == 2 for top in whole.top)
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (3, 5)

    async def several() -> list[tuple[int, ...]]:
        answers = [engine.submit(request) for _ in range(4)]
        return [made.tokens for made in await asyncio.gather(*(answer.collect() for answer in answers))]

    assert asyncio.run(several()) == [whole.tokens] * 4


def test_a_sample_without_a_seed_tells_the_one_it_drew(engine: Engine) -> None:
    first = engine.submit(asked(sampling=Sample())).result(10)
    assert first.seed is not None
    assert engine.submit(asked(sampling=Sample(seed=first.seed))).result(10).tokens == first.tokens


def test_an_error_ends_only_its_request(engine: Engine) -> None:
    def bad(written: tuple[int, ...]) -> None:
        if len(written) == 2:
            raise ZeroDivisionError("a constraint of somebody's")

    def none(written: tuple[int, ...]) -> Any:
        return torch.zeros(VOCABULARY, dtype=torch.bool)

    alone = engine.submit(asked()).result(10)
    good, failing, empty = engine.submit(asked()), engine.submit(asked(allow=bad)), engine.submit(asked(allow=none))
    assert good.result(10).tokens == alone.tokens
    seen = []
    with pytest.raises(RequestFailed, match="somebody's") as raised:
        seen += [event.token for event in iter(failing.next, None)]
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    with pytest.raises(RequestFailed, match="forbids all"):
        empty.result(10)
    assert engine.health().alive
    told = engine.statistics()["model"]
    assert (told.failed, told.bytes_used - told.prefix_bytes, told.running) == (2, 0, 0)


def test_a_bias_changes_tokens_and_no_log_probability(engine: Engine) -> None:
    free = engine.submit(asked(max_new_tokens=1, logprobs=VOCABULARY)).result(10)
    made = engine.submit(asked(max_new_tokens=1, logprobs=0, logit_bias={5: 50.0})).result(10)
    assert made.tokens == (5,) != free.tokens
    assert made.logprobs[0] == pytest.approx(dict(free.top[0])[5], abs=1e-5)


def test_cancelling_frees_within_a_tick(engine: Engine) -> None:
    answer = engine.submit(asked(max_new_tokens=2_000, allow=slow(0.002)))
    with answer:
        assert answer.next(10) is not None
    last = [event.reason for event in answer][-1]
    assert last == "cancelled"
    told = engine.statistics()["model"]
    assert (told.cancelled, told.running, told.bytes_used) == (1, 0, told.prefix_bytes)
    waiting = [engine.submit(asked(max_new_tokens=500, allow=slow(0.002))) for _ in range(8)]
    for one in waiting:
        one.cancel()
    assert {one.result(10).reason for one in waiting} == {"cancelled"}


def test_a_deadline_ends_whoever_waits_or_writes(engine: Engine) -> None:
    late = [engine.submit(asked(max_new_tokens=2_000, allow=slow(0.005), deadline=0.1)) for _ in range(6)]
    made = [one.result(10) for one in late]
    assert {one.reason for one in made} == {"deadline"}
    assert len(made[0].tokens) > 0
    assert len(made[5].tokens) == 0  # four rows: it waited
    assert engine.statistics()["model"].expired == 6


def test_a_full_queue_is_told_to_come_again(engine: Engine) -> None:
    answers: list[Answer] = []
    raised: Busy | None = None
    while raised is None and len(answers) < 20:
        try:
            answers.append(engine.submit(asked(max_new_tokens=2_000, allow=slow(0.002))))
        except Busy as error:
            raised = error
    assert raised is not None
    assert "waiting already" in str(raised)
    assert raised.retry_after >= 1
    assert engine.statistics()["model"].refused == 1
    for answer in answers:
        answer.cancel()
    assert {answer.result(10).reason for answer in answers} == {"cancelled"}
    assert engine.submit(asked()).result(10).reason == "limit"


def test_what_cannot_be_asked_is_refused(engine: Engine) -> None:
    impossible: list[tuple[dict[str, Any], str]] = [
        ({"prompt": []}, "at least one token"),
        ({"prompt": [VOCABULARY]}, f"0 to {VOCABULARY - 1}"),
        ({"prompt": "a text"}, "give the prompt as ids"),
        ({"stop": ["x"]}, "no tokenizer"),
        ({"ends": [99]}, "not in the vocabulary"),
        ({"logit_bias": {VOCABULARY: 1.0}}, "logit_bias names"),
        ({"source": [1]}, "encodes no source"),
        ({"model": "other"}, "no model 'other'"),
    ]
    for wrong, told in impossible:
        with pytest.raises(InputError, match=told):
            engine.submit(asked(**wrong))
    malformed: list[tuple[dict[str, Any], str]] = [
        ({"max_new_tokens": -1}, "0 or more"),
        ({"logprobs": 1000}, "at most 100"),
        ({"stop": "text"}, "list of at most"),
        ({"stop": ["x" * 1000]}, "1 to 256"),
        ({"stop": [""]}, "1 to 256"),
        ({"logit_bias": {1: float("nan")}}, "logit_bias holds nan"),
        ({"logit_bias": {1: float("inf")}}, "logit_bias holds inf"),
        ({"deadline": float("inf")}, "seconds from now"),
    ]
    for wrong, told in malformed:
        with pytest.raises(InputError, match=told):
            asked(**wrong)
    assert engine.statistics()["model"].waiting == 0


def test_calls_run_between_ticks_on_the_same_thread(engine: Engine) -> None:
    names = {engine.call(lambda: threading.current_thread().name).result(10)}
    assert names == {"heed-engine"}
    with pytest.raises(ZeroDivisionError):
        engine.call(lambda: 1 // 0).result(10)
    assert engine.health().alive


def test_nothing_comes_after_the_last_event() -> None:
    answer = Answer(lambda: None)
    last = Event(text="b", reason="limit")
    for event in (Event(1, "a"), last, Event(2, "c"), Event(reason="cancelled")):
        answer.put(event)
    answer.fail(EngineStopped("later"))
    assert list(answer) == [Event(1, "a"), last]


def test_several_models_in_one_process() -> None:
    models = {"one": built("gqa"), "two": built("rwkv", seed=1)}
    with Engine(models, LIMITS) as engine:
        assert {info.budget for info in engine.models.values()} == {LIMITS.memory // 2}
        one, two = (engine.submit(asked(model=name)) for name in models)
        assert one.result(10).tokens != two.result(10).tokens
        with pytest.raises(InputError, match="there are: one, two"):
            engine.submit(asked())
        told = engine.models
        assert told["two"].rows_that_fit(10_000) > told["one"].rows_that_fit(10_000)  # a recurrence does not grow


def test_a_dead_thread_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine(built("gqa"), LIMITS)
    assert engine.health().alive

    def broken(worker: Worker) -> None:
        raise RuntimeError("the engine itself is broken")

    monkeypatch.setattr(Worker, "tick", broken)
    answer = engine.submit(asked())
    with pytest.raises(EngineStopped, match="itself is broken"):
        answer.result(10)
    engine._thread.join(10)
    health = engine.health()
    assert not health.alive
    assert health.error == "RuntimeError: the engine itself is broken"
    with pytest.raises(EngineStopped):
        engine.submit(asked())
    engine.close()


def test_draining_answers_what_is_there() -> None:
    engine = Engine(built("gqa"), LIMITS)
    answers = [engine.submit(asked(max_new_tokens=20)) for _ in range(6)]
    assert engine.drain(10)
    assert [answer.result(0).reason for answer in answers] == ["limit"] * 6
    with pytest.raises(EngineStopped, match="takes nothing new"):
        engine.submit(asked())
    engine.close()
    assert not engine.health().alive


def test_closing_ends_what_is_left() -> None:
    engine = Engine(built("gqa"), LIMITS)
    answer = engine.submit(asked(max_new_tokens=2_000, allow=slow(0.002)))
    engine.close()
    with pytest.raises(EngineStopped, match="closed"):
        answer.result(10)


def test_an_idle_engine_costs_nothing(engine: Engine) -> None:
    engine.submit(asked()).result(10)
    time.sleep(0.1)  # its last tick is over
    ticks, begun = engine.statistics()["model"].ticks, time.thread_time()
    before = time.process_time()
    time.sleep(0.3)
    assert engine.statistics()["model"].ticks == ticks
    assert time.process_time() - before < 0.1 + (time.thread_time() - begun)


def test_many_threads_ask_at_once() -> None:
    """Nothing is lost: every request is answered, with the bits that it gets alone, and all memory is free again."""
    model = built("hybrid")
    kinds = [asked(prompt=[kind + 1] * (3 * kind + 1), sampling=Sample(seed=kind), logprobs=1) for kind in range(5)]
    with Engine(model, LIMITS) as engine:
        alone = [engine.submit(kind).result(10) for kind in kinds]
    failures: list[object] = []

    def client(number: int, engine: Engine) -> None:
        for turn in range(6):
            kind = (number + turn) % len(kinds)
            made = None
            while made is None:
                try:
                    made = engine.submit(kinds[kind]).result(30)
                except Busy:
                    time.sleep(0.01)
            if (made.tokens, made.logprobs, made.top) != (alone[kind].tokens, alone[kind].logprobs, alone[kind].top):
                failures.append((kind, made))

    with Engine(model, LIMITS) as engine:
        clients = [threading.Thread(target=client, args=(number, engine)) for number in range(10)]
        for one in clients:
            one.start()
        for one in clients:
            one.join(60)
        told = engine.statistics()["model"]
    assert not failures
    assert (told.finished, told.failed, told.running, told.waiting) == (60, 0, 0, 0)
    assert told.bytes_used == told.prefix_bytes


def test_float32_is_what_samplers_see(engine: Engine, noted: Any) -> None:
    engine.submit(asked(allow=noted.mark(0), sampling=Greedy())).result(10)
    logits: list[Tensor] = noted.logits[0]
    assert {one.dtype for one in logits} == {torch.float32}
    assert {tuple(one.shape) for one in logits} == {(VOCABULARY,)}


@pytest.mark.parametrize("turns", [4, pytest.param(2_000, marks=pytest.mark.slow)])
def test_many_requests_leave_nothing_behind(turns: int) -> None:
    """Fifty a turn, some cancelled, some with shared prompts, some that fail: no page, seat or task stays, and memory
    is flat."""
    limits = Limits(memory=1 << 20, rows=8, waiting=64, chunk=8, page=4)

    def failing(written: tuple[int, ...]) -> None:
        if written:
            raise ValueError("on purpose")

    with Engine(built("mixed"), limits) as engine:
        worker, resident = engine._workers["model"], list[int]()
        for turn in range(turns):
            answers = []
            for kind in range(50):
                more: dict[str, Any] = {"allow": failing} if kind % 10 == 9 else {}
                prompt = [kind % 5] * (kind % 30 + 1) + [turn % 37]
                answers.append(engine.submit(asked(prompt=prompt, max_new_tokens=kind % 7 + 1, **more)))
                if kind % 10 == 4:
                    answers[-1].cancel()
            for kind, answer in enumerate(answers):
                if kind % 10 == 9 and kind % 7:  # those that write a second token
                    with pytest.raises(RequestFailed, match="on purpose"):
                        answer.result(60)
                else:
                    assert answer.result(60).reason in ("limit", "cancelled")
            with open("/proc/self/statm", encoding="ascii") as told:
                resident.append(int(told.read().split()[1]) * 4096)
        assert worker._batch is not None
        assert worker._batch.arena.free == worker._batch.arena.columns // 16 - 1
        assert not worker._tasks
        assert len(worker._pool) == len(worker._tree)
        assert worker._pool.used == worker._tree.bytes <= limits.memory
        done = engine.statistics()["model"]
        assert done.finished + done.cancelled + done.failed == 50 * turns
    if turns > 40:
        print(f"resident: {resident[9]:,} bytes after 500 requests, {resident[-1]:,} at the end; {done}")
        assert max(resident[turns // 2 :]) - max(resident[10 : turns // 4]) < 8 << 20
