"""The engine: one thread that serves some models, and the door to it.

    with Engine(heed.load("gpt2")) as engine:
        for event in engine.submit(Request(prompt="Once", max_new_tokens=20)):
            print(event.text, end="")

Every answer has the same bits as if its request were alone: prompts are read in chunks whose borders follow from the
prompt, rows that step together keep the order of their sums, draws come from a generator of each request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from itertools import count
from threading import Condition, Thread
from time import monotonic
from typing import Any, TypeVar

import torch

from ..core.contract import Mixer
from ..core.errors import InputError
from ..decode import Sample
from ..pipelines.base import Pipeline
from .answer import Answer, Busy, EngineStopped
from .request import Request
from .served import Limits, ModelInfo, Served
from .statistics import Health, Statistics
from .worker import Worker

T = TypeVar("T")


class Engine:
    """Some models, by name, served by a thread of their own. A single model is called "model"."""

    def __init__(
        self,
        models: Pipeline | Mixer[Any] | Mapping[str, Pipeline | Mixer[Any]],
        limits: Limits | None = None,
        draft: Pipeline | Mixer[Any] | Mapping[str, Pipeline | Mixer[Any]] | None = None,
    ) -> None:
        """`draft`: a small model for each of some models, which guesses what it writes; answers stay the same."""
        self.limits = limits or Limits()
        named, small = _named(models), _named({} if draft is None else draft)
        if not named:
            raise InputError("an engine without models answers nothing; give at least one")
        strange = sorted(small.keys() - named.keys())
        if strange:
            raise InputError(
                f"`draft` names models that are not served: {', '.join(strange)}; there are: {', '.join(named)}"
            )
        share = self.limits.memory // len(named)
        self._workers = {
            name: Worker(Served(name, model), self.limits, share, small.get(name)) for name, model in named.items()
        }
        self._numbers, self._calls = count(), deque[tuple[Callable[[], Any], Future[Any]]]()
        self._changed = Condition()
        self._closing = self._draining = self._ended = False
        self._failure: BaseException | None = None
        self._thread = Thread(target=self._run, name="heed-engine", daemon=True)
        self._thread.start()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def models(self) -> dict[str, ModelInfo]:
        """What there is to know of each model."""
        return {name: worker.info for name, worker in self._workers.items()}

    def submit(self, request: Request) -> Answer:
        """Ask for an answer, from any thread. Texts become ids here, not on the engine's thread.

        Raises InputError for what cannot be answered, Busy if too many wait, EngineStopped if there is no engine.
        """
        worker = self._worker(request.model)
        self._must_run()
        strategy = request.sampling.seeded()
        seed = strategy.seed if isinstance(strategy, Sample) else None
        request = replace(request, sampling=strategy)
        number = next(self._numbers)

        def cancel() -> None:
            worker.cancel(number)
            self._wake()

        answer = worker.submit(request, number, lambda prompt: Answer(cancel, seed=seed, prompt=tuple(prompt)))
        self._wake()
        if self._ended:  # just now: whoever came after it is told so
            worker.fail(self._stopped())
        return answer

    def call(self, act: Callable[[], T], model: str | None = None) -> Future[T]:
        """Something else to be done between two ticks by the thread that uses the models: embed, classify, rank."""
        self._worker(model)
        self._must_run()
        future: Future[T] = Future()
        with self._changed:
            if len(self._calls) >= self.limits.waiting:
                raise Busy(f"{len(self._calls)} calls are waiting already; ask again later", 1.0)
            self._calls.append((act, future))
            self._changed.notify_all()
        return future

    def tokenize(self, text: str, model: str | None = None, *, framed: bool = True) -> list[int]:
        """The ids of a text: as a prompt would be framed, or bare."""
        served = self._worker(model).served
        if framed and served.texts is not None and not served.encodes:
            return served.texts.prompt(text)
        return served.must_have_tokenizer().encode(text)

    def detokenize(self, ids: list[int], model: str | None = None) -> str:
        """The text of some ids."""
        return self._worker(model).served.must_have_tokenizer().decode(ids)

    def health(self) -> Health:
        """Whether the thread lives."""
        error = None if self._failure is None else f"{type(self._failure).__name__}: {self._failure}"
        return Health(self._thread.is_alive() and self._failure is None, self._draining, error)

    def statistics(self) -> dict[str, Statistics]:
        """The counts of every model."""
        return {name: worker.statistics() for name, worker in self._workers.items()}

    def drain(self, timeout: float | None = None) -> bool:
        """No new requests from now on; wait for those that are there. Whether all have ended."""
        self._draining = True
        until = None if timeout is None else monotonic() + timeout
        with self._changed:
            while self._busy and self._thread.is_alive():
                left = None if until is None else until - monotonic()
                if left is not None and left <= 0:
                    return False
                self._changed.wait(0.05 if left is None else min(left, 0.05))
        return not self._busy

    def close(self) -> None:
        """End the thread after its tick. Requests that are still there end by `EngineStopped`."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    # --- the thread ---

    @torch.no_grad()
    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._closing or self._busy)
                    if self._closing:
                        break
                    calls = [self._calls.popleft() for _ in range(len(self._calls))]
                for act, future in calls:
                    _fulfil(act, future)
                for worker in self._workers.values():
                    if worker.busy:
                        worker.tick()
        except BaseException as error:
            self._failure = error
        finally:
            self._ended = True
            for _, future in self._calls:
                future.cancel()
            for worker in self._workers.values():
                worker.fail(self._stopped())

    @property
    def _busy(self) -> bool:
        return bool(self._calls) or any(worker.busy for worker in self._workers.values())

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _worker(self, name: str | None) -> Worker:
        if name is None and len(self._workers) == 1:
            return next(iter(self._workers.values()))
        if name is None or name not in self._workers:
            raise InputError(f"no model {name!r} is served; there are: {', '.join(sorted(self._workers))}")
        return self._workers[name]

    def _must_run(self) -> None:
        if self._draining:
            raise EngineStopped("the engine is ending: it answers what it has, and takes nothing new")
        if self._closing or self._ended:
            raise self._stopped()

    def _stopped(self) -> EngineStopped:
        if self._failure is None:
            return EngineStopped("the engine was closed")
        return EngineStopped(f"the engine has ended by an error: {type(self._failure).__name__}: {self._failure}")


def _named(models: Pipeline | Mixer[Any] | Mapping[str, Pipeline | Mixer[Any]]) -> dict[str, Pipeline | Mixer[Any]]:
    return dict(models) if isinstance(models, Mapping) else {"model": models}


def _fulfil(act: Callable[[], Any], future: Future[Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(act())
    except Exception as error:
        future.set_exception(error)
