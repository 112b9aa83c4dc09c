"""From the logits of frames to labels (CTC, Graves et al. 2006): the best path, or the best labels over all paths."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from math import exp, inf, log1p
from typing import NamedTuple, TypeAlias

from torch import Tensor

from ..core.errors import InputError

Labels: TypeAlias = "tuple[int, ...]"


class Labelled(NamedTuple):
    """Labels and their log p."""

    labels: Labels
    score: float


def collapsed(path: Sequence[int], blank: int) -> Labels:
    """What a path reads as: of a run of equal names one stays, then blanks go."""
    return tuple(name for name, _ in groupby(path) if name != blank)


def best_path(logits: Tensor, blank: int) -> Labels:
    """The labels of the most probable path of one sequence. [T, V]"""
    return collapsed(logits.argmax(-1).tolist(), blank)


class _Sums(NamedTuple):
    """log p of all paths so far that read as some labels, by how they end."""

    blank: float  # with a blank
    label: float  # with the last label

    @property
    def total(self) -> float:
        return _plus(self.blank, self.label)


NONE = _Sums(-inf, -inf)


def prefix_beam(logits: Tensor, blank: int, beams: int) -> list[Labelled]:
    """The most probable labels of one sequence, the best first: p(labels) = Σ over all their paths. [T, V]

    After each frame the `beams` most probable beginnings live on (Hannun et al. 2014, algorithm 1, without a language
    model), so that p is exact with as many beams as there are beginnings, and else a lower bound. Of the names of a
    frame only those go on a beginning that can lead to one of the best.
    """
    if beams < 1:
        raise InputError(f"{beams} beams find nothing; use 1 or more")
    logs = logits.double().log_softmax(-1)
    live: dict[Labels, _Sums] = {(): _Sums(0.0, -inf)}
    # Of one beginning, so many names are better than any other, but for the blank and its last label, which go on
    # otherwise; and a name that leads to what lives already adds to it.
    tops = logs.topk(min(beams + 2, logs.shape[-1])).indices.tolist()
    for frame, best in zip(logs.tolist(), tops, strict=True):
        names = {*best, *(labels[-1] for labels in live if labels)} - {blank}
        live = _moved(live, frame, sorted(names), blank)
        live = dict(sorted(live.items(), key=lambda pair: (-pair[1].total, pair[0]))[:beams])
    return [Labelled(labels, sums.total) for labels, sums in live.items()]


def _moved(live: dict[Labels, _Sums], frame: list[float], names: list[int], blank: int) -> dict[Labels, _Sums]:
    """All beginnings after one more frame."""
    found: dict[Labels, _Sums] = defaultdict(lambda: NONE)
    for labels, sums in live.items():
        last = labels[-1] if labels else None
        old = found[labels]
        stays = -inf if last is None else sums.label + frame[last]  # the same label goes on
        found[labels] = _Sums(_plus(old.blank, sums.total + frame[blank]), _plus(old.label, stays))
        for name in names:
            before = sums.blank if name == last else sums.total  # equal neighbours need a blank between them
            if before > -inf:
                longer = (*labels, name)
                old = found[longer]
                found[longer] = old._replace(label=_plus(old.label, before + frame[name]))
    return found


def _plus(a: float, b: float) -> float:
    """log(e^a + e^b)"""
    low, high = sorted((a, b))
    return high if low == -inf else high + log1p(exp(low - high))
