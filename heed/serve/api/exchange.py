"""One request on its way: what was asked, by whom, and what is to be told of it when it has been answered."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from starlette.requests import Request

from ...core.errors import HeedError
from .wire.refusal import refusal_of

if TYPE_CHECKING:
    from .answers import Answers
    from .service import Service

A = TypeVar("A")


@dataclass
class Exchange(Generic[A]):
    """A request of a route that asks for an A."""

    service: Service
    request: Request
    owner: str  # of the key
    asked: A
    facts: dict[str, Any] = field(default_factory=dict)  # for the log
    failure: HeedError | None = None  # of a stream
    _answers: Answers | None = None

    def owner_of(self, user: str) -> str:
        """The owner of prefixes and of a turn in the queue: a user of a key."""
        return f"{self.owner}/{user}"

    async def telling(self, source: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
        """The events of a stream; what goes wrong in it is the last of them, as its status has been sent."""
        try:
            async with aclosing(source) as pieces:
                async for piece in pieces:
                    yield piece
        except HeedError as error:
            self.failure = error
            yield f"data: {json.dumps(refusal_of(error).data())}\n\n"

    def answered(self, answers: Answers) -> None:
        """These are its answers."""
        self._answers = answers

    def ended(self) -> None:
        """Nothing is sent any more: whatever is still being written ends; the log hears of numbers, not of texts."""
        if self._answers is not None:
            self._answers.cancel()
            written = sum(usage.completion_tokens for usage in self._answers.usages)
            told = {"model": self._answers.served.name, "prompt_tokens": self._answers.read, "tokens": written}
            self.facts.update(told)
