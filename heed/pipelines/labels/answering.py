"""Answers by a part of a text: the best span over all windows, by the logits of where it begins and where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ...text.alignment import Asking, Span
from ..results import Response

WINDOW = 384  # tokens that are read at once, if nothing is said: as many as models of SQuAD are trained on


@dataclass(frozen=True)
class Reading:
    """How a question is read with its context."""

    longest: int = WINDOW  # tokens of a window, question and frame included
    stride: int = 128  # tokens that two windows share
    question: int = 64  # tokens of a question; longer ones are cut
    limit: int = 30  # tokens of an answer, at most
    no_answer: bool = False  # whether a question may have none

    @classmethod
    def within(cls, places: int | None) -> Self:
        """As usual, for a model with so many places."""
        longest = WINDOW if places is None else min(WINDOW, places)
        return cls(longest, stride=min(128, longest // 4), question=min(64, longest // 4))


@dataclass(frozen=True)
class Answer:
    """A part of the context and its probability among all parts that could be one; no text: there is no answer."""

    text: str
    start: int  # the first character, in the context
    end: int  # the one after the last
    probability: float

    def __bool__(self) -> bool:
        return bool(self.text)

    def data(self) -> dict[str, Any]:
        """For machines."""
        return {"answer": self.text, "start": self.start, "end": self.end, "p": self.probability}

    def told(self) -> Response:
        """For people."""
        return Response(f"{self.text or '(no answer)'}\t{self.probability:.1%}", self.data())


class Best(NamedTuple):
    """Tokens of the context, None if the question has no answer there; and how probable that is."""

    tokens: Span | None
    probability: float


def best(asking: Asking, logits: Sequence[Tensor], reading: Reading) -> Best:
    """The most probable answer: s_i + e_j is largest over i <= j < i + limit, and over all windows.

    A span that several windows hold counts once, by its largest score. That there is no answer is as probable as the
    least of the windows, by their first tokens, says (Devlin et al. 2019, sec. 4.3). [T, 2] for each window
    """
    scores = torch.full((len(asking.spans), reading.limit), -inf, dtype=torch.float64)  # [tokens, length - 1]
    empty = torch.tensor([begin == end for begin, end in asking.spans])
    for window, found in zip(asking.windows, logits, strict=True):
        held = slice(window.begin, window.begin + window.size)
        context = found[window.first : window.first + window.size].double().cpu()
        begin, end = context.masked_fill(empty[held, None], -inf).unbind(-1)
        ahead = torch.nn.functional.pad(end, (0, reading.limit - 1), value=-inf).unfold(0, reading.limit, 1)
        scores[held] = torch.maximum(scores[held], begin[:, None] + ahead)
    nothing = min(float(found[0].double().sum()) for found in logits)
    every = scores.flatten()
    every = torch.cat([every, every.new_tensor([nothing])]) if reading.no_answer else every
    chosen = int(every.argmax())
    probability = float(every.softmax(0)[chosen])
    if chosen == scores.numel() or not torch.isfinite(every[chosen]):
        return Best(None, probability)
    first, more = divmod(chosen, reading.limit)
    return Best((first, first + more), probability)


def answered(asking: Asking, context: str, found: Best) -> Answer:
    """In words."""
    if found.tokens is None:
        return Answer("", 0, 0, found.probability)
    begin, end = asking.spans[found.tokens[0]][0], asking.spans[found.tokens[1]][1]
    return Answer(context[begin:end], begin, end, found.probability)
