"""The answers to one request: submitted together, read together, ended together."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from ...core.errors import HeedError
from ...decode import AnyStrategy, Greedy, Sample
from ...decode.sampling import SamplingConfig, fresh_seed
from ..answer import Answer, Event, Usage
from ..request import Request
from .grammar import Grammar
from .service import NamedModel, Service
from .shapes.requests import Generating
from .shapes.responses import Finish, PromptDetails, TokenUsage
from .wire.refusal import Refusal

QUIET = 15.0  # seconds without an event, after which a stream shows that it lives
AHEAD = 256  # events that wait to be written

Came: TypeAlias = "tuple[int, Event] | None"


def sampling_of(asked: Generating, usual: AnyStrategy) -> SamplingConfig:
    """How to draw: as asked, else as the checkpoint says, else as OpenAI has it (temperature 1)."""
    own: dict[str, Any] = usual.dump() if isinstance(usual, Sample) else {}
    repetition = asked.repetition_penalty or own.get("repetition", 1.0)
    temperature = asked.temperature if asked.temperature is not None else own.get("temperature", 1.0)
    if temperature == 0:
        return Greedy(repetition=float(repetition))
    top_k = own.get("top_k") if asked.top_k is None else asked.top_k
    min_p = own.get("min_p") if asked.min_p is None else asked.min_p
    return Sample(
        repetition=float(repetition),
        temperature=float(temperature),
        top_k=top_k if top_k is not None and top_k > 0 else None,
        top_p=own.get("top_p") if asked.top_p is None else asked.top_p,
        min_p=min_p or None,
        seed=asked.seed if asked.seed is not None else fresh_seed(),
    )


def seeded(request: Request, number: int) -> Request:
    """The same for answer `number`: each draws for itself, as the rows of a batch do."""
    if isinstance(request.allow, Grammar):
        request = replace(request, allow=request.allow.fresh())
    how = request.sampling
    if not number or not isinstance(how, Sample) or how.seed is None:
        return request
    return replace(request, sampling=how.model_copy(update={"seed": how.seed + number}))


@dataclass
class Answers:
    """The answers, in their order. The reader of `events` ends them by leaving."""

    service: Service
    served: NamedModel
    all: list[Answer]
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))
    begun: float = field(default_factory=time.perf_counter)
    usages: list[Usage] = field(default_factory=list)
    first: float | None = None  # when the first token came
    read: int = 0  # tokens of the prompts, each counted once

    @classmethod
    async def to(cls, service: Service, served: NamedModel, requests: Sequence[Request], n: int) -> Answers:
        """Submit each request n times; all or none."""
        if len(requests) * n > service.bounds.choices:
            most = f"at most {service.bounds.choices} are given to one request"
            raise Refusal(400, f"{len(requests)} prompts with n = {n} are {len(requests) * n} answers; {most}", "n")
        if service.draining:
            raise Refusal(503, "the server is ending", code="draining", headers={"retry-after": "10"})
        found = cls(service, served, [])
        try:
            for number in range(len(requests) * n):
                request = seeded(requests[number // n], number)
                found.all.append(await service.prepared(partial(service.engine.submit, request)))
        except BaseException:
            found.cancel()
            raise
        found.read = sum(len(answer.prompt) for answer in found.all[::n])
        return found

    def cancel(self) -> None:
        """End all of them."""
        for answer in self.all:
            answer.cancel()

    async def events(self) -> AsyncGenerator[Came, None]:
        """What comes, with the number of its answer; None when nothing came for a while."""
        queue: asyncio.Queue[tuple[int, Event | Exception]] = asyncio.Queue(AHEAD)
        tasks = [asyncio.ensure_future(_pumped(number, one, queue)) for number, one in enumerate(self.all)]
        try:
            left = len(tasks)
            while left:
                try:
                    async with asyncio.timeout(QUIET):
                        number, event = await queue.get()
                except TimeoutError:
                    yield None
                    continue
                if isinstance(event, Exception):
                    raise event
                left -= event.reason is not None
                self._note(event)
                yield number, event
            self._observe()
        finally:
            for task in tasks:
                task.cancel()
            self.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def usage(self) -> TokenUsage:
        """Of all answers, when they have ended; a prompt that is answered several times was read once."""
        written = sum(usage.completion_tokens for usage in self.usages)
        cached = min(sum(usage.cached_tokens for usage in self.usages), self.read)
        held = sum(self.served.state_bytes(one.prompt_tokens + one.completion_tokens) for one in self.usages)
        return TokenUsage(
            prompt_tokens=self.read,
            completion_tokens=written,
            total_tokens=self.read + written,
            prompt_tokens_details=PromptDetails(cached_tokens=cached),
            state_bytes=held,
        )

    def _note(self, event: Event) -> None:
        if self.first is None and event.token is not None:
            self.first = time.perf_counter()
            self.service.metrics.first.labels(self.served.name).observe(self.first - self.begun)
        if event.usage is not None:
            self.usages.append(event.usage)

    def _observe(self) -> None:
        metrics, name, usage, now = self.service.metrics, self.served.name, self.usage, time.perf_counter()
        metrics.read.labels(name).inc(usage.prompt_tokens)
        metrics.cached.labels(name).inc(usage.prompt_tokens_details.cached_tokens)
        metrics.written.labels(name).inc(usage.completion_tokens)
        metrics.whole.labels(name).observe(now - self.begun)
        longest = max((one.completion_tokens for one in self.usages), default=0)
        if self.first is not None and longest > 1:
            metrics.between.labels(name).observe((now - self.first) / (longest - 1))


def finish_of(event: Event) -> Finish | None:
    """Why an answer ended, in OpenAI's words; ends that were not asked for are refusals."""
    match event.reason:
        case None:
            return None
        case "end" | "stop":
            return "stop"
        case "limit":
            return "length"
        case "deadline":
            raise Refusal(504, "the answer took longer than this server allows", code="deadline")
        case _:
            raise Refusal(503, "the answer was ended by the server", code="cancelled")


async def _pumped(number: int, answer: Answer, queue: asyncio.Queue[tuple[int, Event | Exception]]) -> None:
    try:
        async for event in answer:
            await queue.put((number, event))
    except HeedError as error:
        await queue.put((number, error))
