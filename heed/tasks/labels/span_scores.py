"""Metrics of parts of texts, in percent: labels of words and the entities they spell, answers to questions."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ...core.errors import MissingExtra
from ...pipelines.labels.tagging import Scheme
from ..metrics import Metrics

SHOWN = 20  # types of entities that are told one by one

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARKS = str.maketrans("", "", string.punctuation)


def word_metrics(wanted: Sequence[Sequence[str]], found: Sequence[Sequence[str]], scheme: Scheme | None) -> Metrics:
    """The share of words with the right label and, by a scheme, F1 of entities: strictly, as seqeval computes it."""
    right = [a == b for some, other in zip(wanted, found, strict=True) for a, b in zip(some, other, strict=True)]
    accuracy: Metrics = {"accuracy": 100 * sum(right) / len(right)}
    counts: Metrics = {"words": len(right), "sentences": len(wanted)}
    return {**(_entities(wanted, found, scheme) if scheme else {}), **accuracy, **counts}


def _entities(wanted: Sequence[Sequence[str]], found: Sequence[Sequence[str]], scheme: Scheme) -> Metrics:
    metrics, kind = _seqeval(scheme)
    given = [list(some) for some in wanted], [list(some) for some in found]
    report = metrics.classification_report(*given, mode="strict", scheme=kind, output_dict=True, zero_division=0)
    names = {"precision": "precision", "recall": "recall", "f1": "f1-score"}
    overall: Metrics = {name: 100 * float(report["micro avg"][theirs]) for name, theirs in names.items()}
    types = [name for name in report if not name.endswith(" avg")]
    each = {f"f1 of {name}": 100 * float(report[name]["f1-score"]) for name in types} if len(types) <= SHOWN else {}
    return {"f1": overall.pop("f1"), **overall, **each, "entities": int(report["micro avg"]["support"])}


def must_have_seqeval() -> None:
    """Raise unless entities can be counted: before a model is asked, not after that."""
    _seqeval("iob2")


def _seqeval(scheme: Scheme) -> tuple[Any, Any]:
    try:
        import seqeval.metrics
        import seqeval.scheme
    except ImportError:
        raise MissingExtra.of("seqeval", "train") from None
    return seqeval.metrics, {"iob2": seqeval.scheme.IOB2, "iobes": seqeval.scheme.IOBES}[scheme]


# --- answers, as the script of SQuAD 2.0 compares them, which takes data of 1.1, too ---


def plain(text: str) -> str:
    """In lower case, without punctuation and articles, with single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_MARKS)).split())


def exact(found: str, wanted: str) -> float:
    """Whether two answers are the same, but for what does not matter."""
    return float(plain(found) == plain(wanted))


def f1(found: str, wanted: str) -> float:
    """The harmonic mean of precision and recall of words; if one answer has none, whether the other has none, too."""
    here, there = plain(found).split(), plain(wanted).split()
    if not here or not there:
        return float(here == there)
    shared = (Counter(here) & Counter(there)).total()
    return 2 * shared / (len(here) + len(there))  # 2pr / (p + r), p = shared / here, r = shared / there


def answer_metrics(found: Sequence[str], references: Sequence[Sequence[str]]) -> Metrics:
    """EM and F1, each the best of a question's references; a question without references is to have no answer."""
    wanted = [[one for one in some if plain(one)] or [""] for some in references]
    answerable = [some != [""] for some in wanted]

    def mean(compare: Callable[[str, str], float], kept: Sequence[bool]) -> float:
        each = [
            max(compare(one, reference) for reference in some)
            for one, some, keep in zip(found, wanted, kept, strict=True)
            if keep
        ]
        return 100 * sum(each) / len(each)

    every = [True] * len(wanted)
    overall: Metrics = {"exact": mean(exact, every), "f1": mean(f1, every)}
    if not all(answerable) and any(answerable):
        nothing = [not some for some in answerable]
        overall |= {
            "f1 where there is an answer": mean(f1, answerable),
            "exact where there is none": mean(exact, nothing),
        }
    return {**overall, "questions": len(found)}
