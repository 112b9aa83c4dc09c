"""Which tokens are stepped by which call: those that are certain, and guesses in rows that nobody else needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import NamedTuple

from ..batch import ROWS
from .gain import Gain, Rate
from .small import Follower, Small

SIZES = (3, 2)  # tokens that must be the same; more of them first
WINDOW = 1 << 14  # tokens of a prompt that are looked through: its last ones


class Lookup:
    """The tokens of a request, and where each few of them stood last: what followed is a guess (prompt lookup)."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._ids = list[int]()
        self._after: dict[tuple[int, ...], int] = {}
        self.extend(prompt[-WINDOW:])

    def extend(self, tokens: Sequence[int]) -> None:
        """More of them, one after the other."""
        ids = self._ids
        for token in tokens:
            end = len(ids)
            for size in SIZES:
                if end >= size:
                    self._after[tuple(ids[end - size :])] = end
            ids.append(token)

    def guess(self, most: int) -> list[int]:
        """So many tokens that may come. A text that repeats itself is taken to go on so."""
        ids = self._ids
        for size in SIZES:
            begin = self._after.get(tuple(ids[-size:]))
            if begin is not None:
                return [ids[begin + place % (len(ids) - begin)] for place in range(most)]
        return []


class Guesser:
    """The guesses for one request: by its own text, or by a small model."""

    def __init__(self, prompt: Sequence[int], limit: int, small: Small | None) -> None:
        self._lookup, self._small = Lookup(prompt), small
        self._follower = None if small is None else small.follow(prompt, limit)
        self._rates = {True: Rate(), False: Rate()}  # by lookup; by the small model
        self._found: list[int] = []  # by lookup

    def write(self, token: int) -> None:
        """A token that was written."""
        self._lookup.extend([token])
        if self._follower is not None:
            self._follower.written.append(token)

    def chances(self, most: int) -> list[float]:
        """Of so many guesses, or of as many as there are: how probable it is that each is right."""
        self._found = self._lookup.guess(most)
        able = bool(self._found) or (self._follower is not None and self._ready(self._follower))
        share = self._rates[bool(self._found)].share
        return [share**place for place in range(1, most + 1)] if able else []

    def by_text(self, count: int) -> list[int]:
        """Guesses by lookup, if there are any."""
        return self._found[:count]

    @property
    def follower(self) -> Follower | None:
        return self._follower

    def note(self, looked: int, right: int) -> None:
        """So many of the guesses were looked at, of which so many were right."""
        self._rates[bool(self._found)].note(looked, right)

    def close(self) -> None:
        """The request is done with."""
        if self._follower is not None and self._small is not None:
            self._small.leave(self._follower)
            self._follower = None

    def _ready(self, follower: Follower) -> bool:
        assert self._small is not None
        return self._small.ready(follower)


@dataclass
class Wish:
    """What a request is to step: tokens that are certain, at least one; and how many it may at most."""

    number: int
    certain: list[int]
    room: int
    guesser: Guesser | None


class Turn(NamedTuple):
    """What a request steps in a call."""

    number: int
    tokens: list[int]
    guesses: int  # of them, the last ones


@dataclass
class Ahead:
    """The calls of a tick. At most `most` guesses for a request; 0: none at all."""

    most: int
    small: Small | None = None
    gain: Gain = field(default_factory=Gain)

    def guesser(self, prompt: Sequence[int], limit: int) -> Guesser | None:
        """For a request that begins."""
        return Guesser(prompt, limit, self.small) if self.most else None

    def calls(self, wishes: Sequence[Wish]) -> list[list[Turn]]:
        """Who steps what, call by call. Guesses go where rows are left, and never make a call more."""
        some = len(wishes) % ROWS
        found = {wish.number: self._chances(wish, ROWS - some) for wish in wishes} if some else {}
        ranked = sorted(wishes, key=lambda wish: -max(found.get(wish.number, [0.0]), default=0.0)) if some else wishes
        first = self._shared(ranked[:some], found)
        rest = [Turn(wish.number, wish.certain[:1], 0) for wish in ranked[some:]]
        calls = [rest[begin : begin + ROWS] for begin in range(0, len(rest), ROWS)]
        return [first, *calls] if first else calls

    def _chances(self, wish: Wish, spare: int) -> list[float]:
        """Of the tokens that may go along with the first."""
        more = min(spare, wish.room - 1)
        if len(wish.certain) > 1:
            return [1.0] * min(more, len(wish.certain) - 1)
        more = min(more, self.most)
        return wish.guesser.chances(more) if wish.guesser is not None and more > 0 else []

    def _shared(self, wishes: Sequence[Wish], chances: dict[int, list[float]]) -> list[Turn]:
        """One call, whose other rows are shared by how probable it is that they are of use."""
        ranked = sorted(
            ((chance, wish.number) for wish in wishes for chance in chances[wish.number]), key=lambda one: -one[0]
        )[: ROWS - len(wishes)]
        taken = [number for _, number in ranked[: self.gain.count(len(wishes), [chance for chance, _ in ranked])]]
        counts = {wish.number: taken.count(wish.number) for wish in wishes}
        guesses = self._guesses([wish for wish in wishes if counts[wish.number] and len(wish.certain) == 1], counts)
        turns = list[Turn]()
        for wish in wishes:
            more = guesses.get(wish.number, [])
            turns.append(Turn(wish.number, [*wish.certain[: 1 + counts[wish.number]], *more], len(more)))
        return turns

    def _guesses(self, wishes: Sequence[Wish], counts: dict[int, int]) -> dict[int, list[int]]:
        """So many for each of these: by its text, else by the small model, for all of them together."""
        begun, found, asked = monotonic(), dict[int, list[int]](), dict[int, Follower]()
        for wish in wishes:
            assert wish.guesser is not None
            found[wish.number] = wish.guesser.by_text(counts[wish.number])
            if not found[wish.number] and wish.guesser.follower is not None:
                asked[wish.number] = wish.guesser.follower
        if asked and self.small is not None:
            most = max(counts[number] for number in asked)
            for number, guesses in zip(asked, self.small.guess([*asked.values()], most), strict=True):
                found[number] = guesses[: counts[number]]
        total = sum(map(len, found.values()))
        if total:
            self.gain.guessed(total, monotonic() - begun)
        return found
