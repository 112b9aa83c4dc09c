"""The text of an answer as it grows: whole characters only, and nothing that may still become a stop string.

Every token costs the same short time: only what is held back is searched, which is shorter than the longest stop string
and one token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from ..text.stream import Stream
from .answer import Event


class GrowingText:
    """Events of tokens go in, and come out as soon as their text is certain."""

    def __init__(self, stream: Stream | None, stops: Sequence[str] = ()) -> None:
        self._stream, self._stops = stream, tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""  # text that was not given out
        self._waiting: deque[tuple[Event, int]] = deque()  # tokens, and how many characters of `_held` end with each
        self._open = 0  # the last of them, whose character is not whole
        self.stopped = False  # whether a stop string has appeared

    def push(self, event: Event) -> list[Event]:
        """One more token: those that are certain now."""
        assert event.token is not None
        piece = "" if self._stream is None else self._stream.push(event.token)
        if not self._stops:
            return [replace(event, text=piece)]
        self._add(event, piece)
        return self._released(self._safe())

    def finish(self) -> tuple[list[Event], str]:
        """No more comes: tokens that waited and are no part of a stop string, and text that no token is left for."""
        if not self.stopped:
            rest = "" if self._stream is None else self._stream.rest()
            if not self._stops:
                return [], rest
            self._waiting = deque((event, min(end, len(self._held + rest))) for event, end in self._waiting)
            self._held, self._open = self._held + rest, 0
            begin = self._found()
            self.stopped = begin is not None
            self._held = self._held[:begin]
        events = self._released(len(self._held))
        return events, self._held

    def _add(self, event: Event, piece: str) -> None:
        """The next token. Those without text are bytes of the character that comes next: they stay or go with it."""
        end = len(self._held)
        if piece:
            for place in range(len(self._waiting) - self._open, len(self._waiting)):
                self._waiting[place] = self._waiting[place][0], end + 1
        self._held += piece
        self._waiting.append((event, len(self._held) if piece else end + 1))
        self._open = 0 if piece else self._open + 1

    def _safe(self) -> int:
        """How many characters may be given out; cuts what is held before a stop string."""
        begin = self._found()
        if begin is not None:
            self.stopped, self._held = True, self._held[:begin]
            return begin
        for start in range(max(0, len(self._held) - self._longest + 1), len(self._held)):
            if any(stop.startswith(self._held[start:]) for stop in self._stops):
                return start
        return len(self._held)

    def _found(self) -> int | None:
        return min((at for stop in self._stops if (at := self._held.find(stop)) >= 0), default=None)

    def _released(self, safe: int) -> list[Event]:
        """Tokens that end within so many characters, with their text."""
        events, begun = list[Event](), 0
        while self._waiting and self._waiting[0][1] <= safe:
            event, end = self._waiting.popleft()
            events.append(replace(event, text=self._held[begun:end]))
            begun = end
        self._open = min(self._open, len(self._waiting))
        self._held = self._held[begun:]
        self._waiting = deque((event, end - begun) for event, end in self._waiting)
        return events
