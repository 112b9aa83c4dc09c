"""What a request gives: events while it goes on, read by a loop, an `async for`, or at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from threading import Condition
from typing import Literal, TypeAlias

from ..core.errors import HeedError

# An end token, a stop string, as many tokens as were allowed, by whoever asked, its deadline, or an error.
Reason: TypeAlias = Literal["end", "stop", "limit", "cancelled", "deadline", "error"]
Top: TypeAlias = tuple[tuple[int, float], ...]  # tokens and their log p, the largest first


class ServeError(HeedError, RuntimeError):
    """The engine cannot do it, or not now."""


class Busy(ServeError):
    """The queue is full: ask again after `retry_after` seconds."""

    def __init__(self, text: str, retry_after: float) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class EngineStopped(ServeError):
    """The engine's thread has ended; nothing is answered any more."""


class RequestFailed(ServeError):
    """This request ended by an error, which is the cause; others go on."""


@dataclass(frozen=True)
class Usage:
    """Tokens of a request."""

    prompt_tokens: int
    completion_tokens: int  # written, an end token and those of a stop string counted
    cached_tokens: int  # of the prompt, found in the prefix tree
    preemptions: int = 0  # how often it was put off in favour of an older one, and retraced


@dataclass(frozen=True)
class Event:
    """One token and the text that it brings, or the end.

    Joined, the texts are the answer: whole characters only, nothing of a stop string. A token whose text may still
    become a stop string waits; one that belongs to a stop string never comes. The last event has a `reason` and the
    usage, and text that was held back; it has no token.
    """

    token: int | None = None
    text: str = ""
    logprob: float | None = None  # by the model itself: before bias, penalties, temperature and constraints
    top: Top = ()
    reason: Reason | None = None
    usage: Usage | None = None
    prompt_logprobs: tuple[tuple[float, Top] | None, ...] | None = None  # in the first event, if asked; None: the first


@dataclass(frozen=True)
class Completed:
    """A whole answer."""

    tokens: tuple[int, ...]
    text: str
    reason: Reason
    usage: Usage
    logprobs: tuple[float, ...] = ()
    top: tuple[Top, ...] = ()
    prompt_logprobs: tuple[tuple[float, Top] | None, ...] | None = None
    seed: int | None = None


class Answer:
    """The events of one request, in order, each once. `cancel` ends it within a tick; so does leaving it unread
    inside `with answer:`.

    Events wait here unread, one for each token at most. Read it from any thread, or from one event loop.
    """

    def __init__(self, cancel: Callable[[], None], *, seed: int | None = None, prompt: tuple[int, ...] = ()) -> None:
        self.seed, self.prompt = seed, prompt  # of the draws, if it draws; and the ids that are continued
        self._cancel = cancel
        self._events: deque[Event] = deque()
        self._ready = Condition()
        self._ended = False  # nothing comes any more
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: asyncio.Event | None = None

    def cancel(self) -> None:
        """End it. The last event says so; a request that has ended stays as it is."""
        self._cancel()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.cancel()

    def __iter__(self) -> Iterator[Event]:
        while (event := self.next()) is not None:
            yield event

    async def __aiter__(self) -> AsyncIterator[Event]:
        self._loop, self._woken = asyncio.get_running_loop(), asyncio.Event()
        while True:
            self._woken.clear()
            event, ended = self._taken()
            if event is not None:
                yield event
            elif ended:
                self._must_not_have_failed()
                return
            else:
                await self._woken.wait()

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event, None after the last; TimeoutError if none comes within so many seconds."""
        with self._ready:
            if not self._ready.wait_for(lambda: self._events or self._ended, timeout):
                raise TimeoutError(f"no event within {timeout} s")
            if self._events:
                return self._events.popleft()
        self._must_not_have_failed()
        return None

    def result(self, timeout: float | None = None) -> Completed:
        """The whole answer. For an answer that nobody has read from yet."""
        return completed((event for event in iter(lambda: self.next(timeout), None)), self.seed)

    async def collect(self) -> Completed:
        """The same for an event loop."""
        return completed(iter([event async for event in self]), self.seed)

    @property
    def ended(self) -> bool:
        """Whether all events are there."""
        return self._ended

    # --- the engine's side ---

    def put(self, event: Event) -> None:
        """One more event; after one with a reason nothing comes."""
        with self._ready:
            if self._ended:
                return
            self._events.append(event)
            self._ended = event.reason is not None
            self._ready.notify_all()
        self._wake()

    def fail(self, failure: BaseException) -> None:
        """It ends by an error, raised when all events before it were read."""
        with self._ready:
            if self._ended:
                return
            self._failure, self._ended = failure, True
            self._ready.notify_all()
        self._wake()

    def _wake(self) -> None:
        loop, woken = self._loop, self._woken
        if loop is not None and woken is not None:
            try:
                loop.call_soon_threadsafe(woken.set)
            except RuntimeError:  # the loop is closed: nobody reads any more
                self._loop = None

    def _taken(self) -> tuple[Event | None, bool]:
        with self._ready:
            return (self._events.popleft() if self._events else None), self._ended

    def _must_not_have_failed(self) -> None:
        if isinstance(self._failure, ServeError):
            raise self._failure
        if self._failure is not None:
            raise RequestFailed(f"this request failed: {self._failure}") from self._failure


def completed(events: Iterator[Event], seed: int | None = None) -> Completed:
    """All events of an answer in one."""
    seen = list(events)
    tokens = [event for event in seen if event.token is not None]
    last = seen[-1]
    assert last.reason is not None  # or reading would have raised
    assert last.usage is not None
    return Completed(
        tokens=tuple(event.token for event in tokens if event.token is not None),
        text="".join(event.text for event in seen),
        reason=last.reason,
        usage=last.usage,
        logprobs=tuple(event.logprob for event in tokens if event.logprob is not None),
        top=tuple(event.top for event in tokens if event.top),
        prompt_logprobs=next((event.prompt_logprobs for event in seen if event.prompt_logprobs is not None), None),
        seed=seed,
    )
