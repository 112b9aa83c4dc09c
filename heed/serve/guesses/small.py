"""Guesses of a small model that goes along: it reads what the request holds, and goes on greedily.

Its rows step together as those of the large one do. What it guessed and what did not come is forgotten by going back to
what was remembered before, which costs nothing: entries are written over, cells were never changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.contract import NOTHING, Mixer
from ...core.errors import InputError
from ...core.interfaces import LanguageModel
from ..batch import PAGE, ROWS, Seat, batch_of
from ..executor import Row
from ..pool import Prices
from ..served import Limits

USUAL = 1024  # tokens of a request, by which memory is shared between the two models


class Follower:
    """One request in the small model: what of it was read and stepped."""

    def __init__(self, model: Mixer[Any], prompt: Sequence[int], pages: int) -> None:
        self.row, self.pages = Row(model, NOTHING), pages
        self.prompt, self.written = list(prompt), list[int]()
        self.done = 0  # tokens that are in its state
        self.seat: Seat | None = None

    @property
    def coming(self) -> list[int]:
        """Tokens of the answer that it has not stepped yet."""
        return self.written[self.done - len(self.prompt) :]


class Small:
    """A small model that guesses for a large one, in memory of its own."""

    def __init__(self, model: Mixer[Any], limits: Limits, budget: int) -> None:
        batch = batch_of(model.eval(), budget, limits.rows)
        if batch is None:
            raise InputError(
                f"a {type(model).__name__} cannot guess ahead: a step of it has no program, or it does not remember by "
                "entries that grow by one a token, or a fixed size"
            )
        self._model, self._batch, self._chunk, self.bytes = model, batch, limits.chunk, budget
        self._context = model.longest if isinstance(model, LanguageModel) else None
        self._free = batch.arena.free if batch.arena.logs else None  # pages that no follower counts on

    @classmethod
    def beside(cls, large: Mixer[Any], model: Mixer[Any], limits: Limits, budget: int) -> Small:
        """One that guesses for a large model, and takes as much of their memory as a request takes in it."""
        known, needed = (one.vocabulary if isinstance(one, LanguageModel) else 0 for one in (model, large))
        if not known or known != needed:
            raise InputError(
                f"a model that guesses ahead has {known} tokens, the one that it guesses for {needed}; they must have "
                "the same vocabulary"
            )
        own, other = (Prices.of(one.spec(), limits.page).bytes(USUAL) for one in (model, large))
        return cls(model, limits, budget * own // (own + other))

    def follow(self, prompt: Sequence[int], limit: int) -> Follower | None:
        """Somebody to guess for, who will hold so many tokens; None if there is no room, or no place so far."""
        tokens = len(prompt) + limit
        if self._context is not None and tokens + ROWS > self._context:
            return None
        pages = 0 if self._free is None else tokens // PAGE + 2
        if self._free is not None:
            if pages > self._free:
                return None
            self._free -= pages
        return Follower(self._model, prompt, pages)

    def leave(self, follower: Follower) -> None:
        """It is done with."""
        follower.row.close()
        if self._free is not None:
            self._free += follower.pages

    def ready(self, follower: Follower) -> bool:
        """Whether it can guess at once; if not, it reads some of its prompt, or steps some of what it missed."""
        if follower.done < len(follower.prompt):
            some = follower.prompt[follower.done : follower.done + self._chunk]
            follower.row.read(some)
            follower.done += len(some)
            if follower.done < len(follower.prompt):
                return False
        if follower.seat is None:
            follower.seat = follower.row.seat(self._batch)
        while len(follower.coming) > ROWS:
            self._step([follower], [follower.coming[:ROWS]])
        return bool(follower.coming)

    def guess(self, followers: Sequence[Follower], most: int) -> list[list[int]]:
        """So many tokens for each of these, which are ready."""
        found = list[list[int]]()
        for follower in followers:
            found.append([self._step([follower], [follower.coming])[0]])
        seats = [_seat(follower) for follower in followers]
        before = [(seat.length, seat.cells) for seat in seats]
        for place in range(most - 1):
            tokens = [[guesses[-1]] for guesses in found]
            orders = [follower.done + place for follower in followers]
            for seat, guesses, logits in zip(seats, found, self._batch.step(seats, tokens, orders), strict=True):
                guesses.append(int(logits[-1].argmax()))
                seat.keep(1)
        for seat, (length, cells) in zip(seats, before, strict=True):
            seat.length, seat.cells = length, cells
        return found

    def _step(self, followers: Sequence[Follower], tokens: Sequence[list[int]]) -> list[int]:
        """These are certain: what is likeliest after them."""
        seats = [_seat(follower) for follower in followers]
        logits = self._batch.step(seats, tokens, [follower.done for follower in followers])
        for follower, seat, several in zip(followers, seats, tokens, strict=True):
            seat.keep(len(several))
            follower.done += len(several)
        return [int(one[-1].argmax()) for one in logits]


def _seat(follower: Follower) -> Seat:
    assert follower.seat is not None  # it is ready
    return follower.seat
