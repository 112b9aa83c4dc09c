"""Metrics of classes, as scikit-learn computes them, in percent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.errors import MissingExtra
from ..metrics import Metrics

SHOWN = 20  # classes that are told one by one
Numbers = np.ndarray[Any, np.dtype[Any]]


def single_class(wanted: Numbers, found: Numbers, labels: Sequence[str]) -> Metrics:
    """Accuracy, the mean of the F1 of all classes that occur or are predicted, and the F1 of each. [texts], [texts]"""
    metrics = _metrics()
    each = {**_overall(metrics, wanted, found), **_by_class(metrics, wanted, found, labels, range(len(labels)))}
    return {"accuracy": 100 * float((wanted == found).mean()), **each, "examples": len(wanted)}


def several_classes(wanted: Numbers, found: Numbers, labels: Sequence[str]) -> Metrics:
    """The share of texts with all classes right, micro and macro F1, and the F1 of each. [texts, classes], twice"""
    metrics = _metrics()
    micro = 100 * float(metrics.f1_score(wanted, found, average="micro", zero_division=0))
    each = {**_overall(metrics, wanted, found), **_by_class(metrics, wanted, found, labels, None)}
    exact = 100 * float((wanted == found).all(1).mean())  # of several classes that is the accuracy, too
    return {"accuracy": exact, "micro_f1": micro, **each, "examples": len(wanted)}


def _overall(metrics: Any, wanted: Numbers, found: Numbers) -> Metrics:
    return {"macro_f1": 100 * float(metrics.f1_score(wanted, found, average="macro", zero_division=0))}


def _by_class(metrics: Any, wanted: Numbers, found: Numbers, labels: Sequence[str], numbers: range | None) -> Metrics:
    if len(labels) > SHOWN:
        return {}
    scores = metrics.f1_score(wanted, found, labels=numbers, average=None, zero_division=0)
    return {f"f1 of {name}": 100 * float(score) for name, score in zip(labels, scores, strict=True)}


def _metrics() -> Any:
    try:
        import sklearn.metrics
    except ImportError:
        raise MissingExtra.of("scikit-learn", "train") from None
    return sklearn.metrics


def spearman(wanted: Numbers, found: Numbers) -> float:
    """Spearman's rank correlation, in percent: that of the ranks, ties in the middle. [pairs], [pairs]"""
    try:
        from scipy.stats import rankdata
    except ImportError:
        raise MissingExtra.of("scikit-learn", "train") from None
    one, other = rankdata(wanted), rankdata(found)
    if len(one) < 2 or one.std() == 0 or other.std() == 0:
        return float("nan")  # it is not defined where all are equal
    return 100 * float(np.corrcoef(one, other)[0, 1])
