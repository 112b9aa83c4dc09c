"""One model at work: its schedule carried out tick by tick, on the engine's thread.

An exception in what belongs to one request (its source, its chunk, its step, its sampling, its constraint) ends that
request only. What belongs to none ends the engine, which then says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any

from torch import Tensor

from ..core.contract import Mixer
from ..pipelines.base import Pipeline
from .answer import Answer, Event, Reason, Top, Usage
from .batch import ROWS, Batch, Seat, batch_of
from .executor import Row
from .guesses.ahead import Ahead, Guesser, Turn, Wish
from .guesses.small import Small
from .plan import Job, chunk_after
from .pool import Pool, Prices
from .prefix import Node, PrefixTree
from .request import Request
from .schedule import Schedule
from .served import Limits, ModelInfo, Served
from .statistics import Pace, Statistics
from .writer import Writer, prompt_logprobs


@dataclass(eq=False)
class Task:
    """A request in the engine."""

    job: Job
    request: Request
    answer: Answer
    prompt: list[int]
    source: list[int] | None
    writer: Writer
    arrived: float
    row: Row | None = None
    node: Node | None = None  # of the chunk read last, where the next one may be kept
    cached: int = 0
    told: list[tuple[float, Top] | None] | None = None  # log-probabilities of the prompt so far
    before: Tensor | None = None  # the logits after the chunk before
    ended: Reason | None = None  # from outside: cancelled or too late
    guesser: Guesser | None = None  # of tokens that may come; from the first token on

    @property
    def coming(self) -> list[int]:
        """Those that are to be stepped next: the newest, and after a preemption those before it."""
        return self.writer.written[self.job.done - len(self.prompt) :]

    def clear(self) -> None:
        """Nothing is remembered of its tokens any more."""
        if self.row is not None:
            self.row.close()
        self.row = self.node = None

    @property
    def late(self) -> bool:
        return self.request.deadline is not None and monotonic() - self.arrived > self.request.deadline


class Worker:
    """A served model: `submit` from any thread, `tick` on the engine's."""

    def __init__(self, served: Served, limits: Limits, budget: int, draft: Pipeline | Mixer[Any] | None = None) -> None:
        self.served, self.limits = served, limits
        spec = served.model.spec() if served.generates else ()
        small = None if draft is None else Small.beside(served.model, Served(served.name, draft).model, limits, budget)
        budget -= small.bytes if small is not None else 0
        self._prices, self._pool = Prices.of(spec, limits.page), Pool(budget)
        self._tree = PrefixTree(spec, self._pool, limits.chunk, served.name)
        self._batch = batch_of(served.model, budget, limits.rows) if served.generates else None
        self._ahead = Ahead(limits.ahead, small)
        self._schedule = Schedule(
            self._pool,
            self._prices,
            rows=limits.rows,
            waiting=limits.waiting,
            chunk=limits.chunk,
            ahead=0 if self._batch is None else limits.ahead,
            reclaim=self._tree.reclaim,
        )
        self._tasks: dict[int, Task] = {}
        self._lock = Lock()  # of schedule and tasks
        self._pace, self._counts = Pace(limits.gap), Statistics(bytes_budget=budget)

    @property
    def info(self) -> ModelInfo:
        served, prices = self.served, self._prices
        return ModelInfo(
            name=served.name,
            pipeline=served.pipeline,
            generates=served.generates,
            vocabulary=served.vocabulary,
            context=served.context,
            executor="plain" if self._batch is None else "compiled",
            exact=True,
            page_tokens=prices.page,
            page_bytes=prices.page_bytes,
            row_bytes=prices.slot_bytes,
            budget=self._pool.budget,
        )

    @property
    def busy(self) -> bool:
        return bool(self._tasks)

    def statistics(self) -> Statistics:
        """A copy of the counts as they are now."""
        with self._lock:
            now = Statistics(**vars(self._counts))
            now.running, now.bytes_used = len(self._schedule.running), self._pool.used
            now.waiting = len(self._schedule) - now.running
            now.prefix_bytes, now.prefix_nodes = self._tree.bytes, len(self._tree)
        return now

    # --- at the door, on the caller's thread ---

    def submit(self, request: Request, number: int, answer: Callable[[list[int]], Answer]) -> Answer:
        """The request waits from now on; raises at what cannot be."""
        served = self.served
        served.check(request)
        prompt, source = served.prompt(request), served.source(request)
        limit = served.limit(request, prompt)
        job = Job(number, request.owner, len(prompt), max(limit, 1), len(source or ()))
        writer = Writer(
            request,
            prompt,
            limit=limit,
            ends=served.ends(request),
            constraint=served.constraint(),
            stream=None if served.tokenizer is None else served.tokenizer.stream(),
        )
        task = Task(job, request, answer(prompt), prompt, source, writer, monotonic())
        if request.prompt_logprobs is not None:
            task.told = [None]
        with self._lock:
            retry = self._pace.retry_after(len(self._schedule), self.limits.rows)
            try:
                self._schedule.submit(job, retry)
            except BaseException:
                self._counts.refused += 1
                raise
            self._tasks[number] = task
        return task.answer

    def cancel(self, number: int) -> None:
        """End it, if it is still there, in the next tick."""
        task = self._tasks.get(number)
        if task is not None:
            task.ended = task.ended or "cancelled"

    # --- on the engine's thread ---

    def tick(self) -> None:
        """Everybody one token further, and some prompts a chunk."""
        begun = monotonic()
        with self._lock:
            tasks = list(self._tasks.items())
        for number, task in tasks:
            if task.ended is None and task.late:
                task.ended = "deadline"
            if task.ended is not None:
                self._guarded(number, lambda task: self._end(task, task.ended or "cancelled"))
        with self._lock:
            writing = any(not job.reading for job in self._schedule.running.values())
            budget = self._pace.budget(self.limits.chunk, writing=writing)
            tick = self._schedule.plan(budget, self._tree.bytes)
        for number in tick.preempt:
            self._tasks[number].clear()
            self._counts.preempted += 1
        for number in tick.admit:
            self._guarded(number, self._open)
        self._steps(tick.step)
        self._reads(number for number, _ in tick.read)
        self._counts.ticks += 1
        self._counts.tick_seconds += monotonic() - begun

    def fail(self, failure: BaseException) -> None:
        """Nothing will be answered any more."""
        with self._lock:
            tasks, self._tasks = self._tasks, {}
        for task in tasks.values():
            task.answer.fail(failure)

    def _steps(self, numbers: Sequence[int]) -> None:
        """A token more in each of these: some rows together, or one after the other."""
        begun = monotonic()
        if self._batch is None:
            for number in numbers:
                self._guarded(number, self._step)
        else:
            wishes = [self._wish(self._tasks[number]) for number in numbers if number in self._tasks]
            for turns in self._ahead.calls(wishes):
                self._step_together(self._batch, turns)
        if numbers:
            self._pace.stepped(monotonic() - begun)

    def _reads(self, numbers: Iterable[int]) -> None:
        """A chunk of each of these."""
        begun = monotonic()
        tokens = sum(self._guarded(number, self._read) or 0 for number in numbers)
        if tokens:
            self._pace.read(tokens, monotonic() - begun)

    def _guarded(self, number: int, act: Callable[[Task], Any]) -> Any:
        """What belongs to one request: its error ends it, and no other."""
        task = self._tasks.get(number)
        if task is None:  # it has ended in this very tick
            return None
        try:
            return act(task)
        except Exception as error:
            self._fail(task, error)
            return None

    def _fail(self, task: Task, error: Exception) -> None:
        self._leave(task)
        self._counts.failed += 1
        task.answer.fail(error)

    def _open(self, task: Task) -> None:
        """It begins, or begins again: with what is known of its prompt, else with nothing."""
        task.row = Row(self.served.model, self.served.given(task.source))
        again = task.job.preemptions > 0
        if self.limits.prefixes and task.told is None:
            task.node, done = self._tree.find(task.request.owner, task.prompt)
            if task.node is not None:
                task.row.resume(self._tree.resume(task.node, task.row.state), done)
                task.job.done = done
                if not again:
                    task.cached = done
        if not again:
            self._counts.prompt_tokens += len(task.prompt)
            self._counts.cached_tokens += task.cached

    def _read(self, task: Task) -> int:
        """The next chunk of a prompt, and after the last one the first token."""
        job, row = task.job, task.row
        assert row is not None
        count = chunk_after(job.done, job.prompt, self.limits.chunk)
        if count <= 0:  # more of it was known than the plan could know
            return 0
        tokens = task.prompt[job.done : job.done + count]
        logits = row.read(tokens) if task.told is None else self._told(task, row.read_all(tokens))
        job.done += count
        self._keep(task, tokens)
        if job.preemptions:
            self._counts.retraced_tokens += count
        if not job.reading and not job.written:
            self._begin(task, logits)
        return count

    def _begin(self, task: Task, logits: Tensor) -> None:
        """The prompt is read: what there is to tell of it, and the first token."""
        if task.told is not None:
            task.answer.put(Event(prompt_logprobs=tuple(task.told)))
        if task.request.max_new_tokens == 0:
            self._end(task, "limit")
            return
        if self._batch is not None:
            task.guesser = self._ahead.guesser(task.prompt, task.job.limit)
        self._write(task, logits)

    def _told(self, task: Task, logits: Tensor) -> Tensor:
        """Notes the log-probabilities of the tokens of a chunk: each by the logits before it. Gives the last."""
        begin, count = task.job.done, len(logits)
        wanted = task.request.prompt_logprobs
        if task.told is not None and wanted is not None and len(task.told) == max(begin, 1):  # else it is retraced
            if begin and task.before is not None:
                task.told += prompt_logprobs(task.before[None], task.prompt[begin : begin + 1], wanted)
            task.told += prompt_logprobs(logits[:-1], task.prompt[begin + 1 : begin + count], wanted)
        task.before = logits[-1].clone()
        return logits[-1]

    def _keep(self, task: Task, tokens: list[int]) -> None:
        """What is remembered after a whole chunk, for prompts that begin alike."""
        whole = len(tokens) == self.limits.chunk
        if not (self.limits.prefixes and self._tree.able and whole) or task.row is None:
            return
        first = task.job.done == self.limits.chunk
        if first or task.node is not None:
            with self._lock:
                task.node = self._tree.add(task.node, task.request.owner, tokens, task.row.state)

    def _wish(self, task: Task) -> Wish:
        """What it may step: within its pages, and no further than its last token but one."""
        job, prices = task.job, self._prices
        held = job.pages * prices.page if prices.page_bytes else job.prompt + job.limit
        room = min(held, job.prompt + job.limit - 1) - job.done
        return Wish(job.number, task.coming[:ROWS], room, task.guesser)

    def _step(self, task: Task) -> None:
        """One token more: one that was written before, after a preemption, or the newest."""
        assert task.row is not None
        self._stepped(task, task.row.step(task.coming[0]))

    def _step_together(self, batch: Batch, turns: Sequence[Turn]) -> None:
        """The same for some rows at once. What the call refuses is of no single row: tokens and places are checked."""
        tasks = [self._tasks[turn.number] for turn in turns]
        try:
            seats = [task.row.seat(batch) for task in tasks if task.row is not None]
            begun = monotonic()
            logits = batch.step(seats, [turn.tokens for turn in turns], [task.job.done for task in tasks])
        except Exception as error:
            for task in tasks:
                self._fail(task, error)
            return
        self._ahead.gain.called(sum(map(len, logits)), monotonic() - begun)
        self._counts.calls += 1
        for turn, seat, rows in zip(turns, seats, logits, strict=True):
            self._guarded(turn.number, partial(self._took, turn=turn, seat=seat, logits=rows))

    def _took(self, task: Task, turn: Turn, seat: Seat, logits: Tensor) -> None:
        """These are the logits after its tokens: as many of them stay as are what would have been written anyway."""
        certain = len(turn.tokens) - turn.guesses
        for stayed, row in enumerate(logits, 1):
            self._stepped(task, row)
            if task.writer.reason is not None:  # it ended: nothing steps it any more
                break
            if stayed == len(logits) or task.coming[0] != turn.tokens[stayed]:
                break
        right = max(0, stayed - certain)
        if task.guesser is not None and turn.guesses:
            wrong = task.writer.reason is None and stayed < len(logits)
            task.guesser.note(right + wrong, right)
        self._counts.guessed_tokens += turn.guesses
        self._counts.accepted_tokens += right
        seat.keep(stayed)

    def _stepped(self, task: Task, logits: Tensor) -> None:
        """These are the logits after the token."""
        task.job.done += 1
        if task.job.done == task.job.known:
            self._write(task, logits)
        else:
            self._counts.retraced_tokens += 1

    def _write(self, task: Task, logits: Tensor) -> None:
        events = task.writer.write(logits)
        if task.guesser is not None:
            task.guesser.write(task.writer.written[-1])
        task.job.written += 1
        self._counts.written_tokens += 1
        for event in events:
            task.answer.put(event)
        if task.writer.reason is not None:
            self._end(task, task.writer.reason)

    def _end(self, task: Task, reason: Reason) -> None:
        """The last event; everything that was held is free."""
        self._leave(task)
        events, text, found = task.writer.finish()
        job = task.job
        usage = Usage(job.prompt, job.written, task.cached, job.preemptions)
        for event in events:
            task.answer.put(event)
        outside = reason in ("cancelled", "deadline")
        self._counts.cancelled += reason == "cancelled"
        self._counts.expired += reason == "deadline"
        self._counts.finished += not outside
        if not outside:
            self._pace.answered(monotonic() - task.arrived)
        task.answer.put(Event(text=text, reason=reason if outside else found or reason, usage=usage))

    def _leave(self, task: Task) -> None:
        with self._lock:
            if self._tasks.pop(task.job.number, None) is not None:
                self._schedule.finish(task.job)
        task.clear()
        if task.guesser is not None:
            task.guesser.close()
