"""Stop strings: an answer ends where one of some texts appears, wherever the borders of its tokens are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core.errors import InputError
from .generated import Generated

UNFINISHED = "\ufffd"  # what decoders show for the first bytes of a character whose last bytes are still to come


@dataclass(frozen=True)
class Stop:
    """The answer ends before the first of these texts; how ids become text is told by `decode`.

    Tokens are cut whole: what stays are the tokens that end before the stop string. If a token straddles its beginning,
    the token goes, and its part before the stop string with it; `text` gives the text cut exactly, that part included.
    Only what was written is searched, not the prompt.
    """

    texts: Sequence[str]
    decode: Callable[[Sequence[int]], str]

    def __post_init__(self) -> None:
        if isinstance(self.texts, str) or not self.texts or "" in self.texts:
            raise InputError(f"stop strings must be a list of texts, none of them empty, not {self.texts!r}")

    def find(self, text: str) -> int | None:
        """Where the first stop string begins."""
        return min((begin for stop in self.texts if (begin := text.find(stop)) >= 0), default=None)

    def cut(self, text: str) -> str:
        """What stands before the first stop string; everything, if there is none."""
        return text[: self.find(text)]

    def safe(self, text: str) -> str:
        """What may be shown while more is to come: nothing of a stop string, and nothing that may still become one.

        An unfinished character at the end is held back too. What is safe stays safe: the safe part of a text is a
        prefix of the safe part of every continuation.
        """
        begin = self.find(text)
        if begin is not None:
            return text[:begin]
        ready = text.rstrip(UNFINISHED)
        longest = max(map(len, self.texts)) - 1  # a whole stop string was not found, so only beginnings are left
        for start in range(max(0, len(ready) - longest), len(ready)):
            if any(stop.startswith(ready[start:]) for stop in self.texts):
                return ready[:start]
        return ready

    def text(self, written: Generated) -> str:
        """The text of an answer, cut exactly before the stop string."""
        return self.cut(self.decode((*written.tokens, *written.cut)))


class Watch:
    """The text of one row as it grows, and how many of its tokens are certain to stay."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self._ends: list[int] = []  # characters of text after each token
        self.kept = 0  # so many tokens stay

    def stopped(self, tokens: Sequence[int]) -> bool:
        """Whether a stop string has appeared with the last of these tokens; to be asked after every token."""
        text = self._stop.decode(tokens)
        self._ends.append(len(text))
        shown = len(self._stop.safe(text))
        fitting = (count for count in range(len(tokens), self.kept, -1) if self._ends[count - 1] <= shown)
        self.kept = next(fitting, self.kept)
        return self._stop.find(text) is not None


def kept(stop: Stop, tokens: Sequence[int]) -> int:
    """How many of these tokens stay."""
    watch = Watch(stop)
    for count in range(1, len(tokens) + 1):
        watch.stopped(tokens[:count])
    return watch.kept
