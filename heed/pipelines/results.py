"""What pipelines give beside text: predictions of classes, values of regressions, and responses for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch import Tensor

Problem: TypeAlias = Literal["single_label_classification", "multi_label_classification", "regression"]  # a config's


@dataclass(frozen=True)
class Response:
    """What a model has to say: for people, and for machines."""

    text: str
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Prediction:
    """One of several labels to choose from, and its probability."""

    label: str
    probability: float

    @property
    def p(self) -> float:
        """The probability, for short."""
        return self.probability

    def told(self) -> str:
        """For people: in percent."""
        return f"{self.probability:6.1%}"

    def data(self) -> dict[str, str | float]:
        """For machines."""
        return {"label": self.label, "p": self.probability}


@dataclass(frozen=True)
class Regression(Prediction):
    """What a regression says: `probability` is the value itself, not how likely it is."""

    def told(self) -> str:
        return f"{self.probability:.4f}"

    def data(self) -> dict[str, str | float]:
        return {"label": self.label, "value": self.probability}


def predictions(logits: Tensor, labels: Sequence[str], problem: Problem | None = None) -> list[Prediction]:
    """Every class with its probability, the most probable first; of a regression every value, as it is. [classes]

    One class alone is a regression, if nothing else is said. Classes without names have numbers.
    """
    names = labels if len(labels) == len(logits) else [f"LABEL_{number}" for number in range(len(logits))]
    logits = logits.double()
    if problem == "regression" or (problem is None and len(logits) == 1):
        return [Regression(name, one) for name, one in zip(names, logits.tolist(), strict=True)]
    p = logits.sigmoid() if problem == "multi_label_classification" else logits.softmax(-1)
    found = (Prediction(name, one) for name, one in zip(names, p.tolist(), strict=True))
    return sorted(found, key=lambda one: -one.probability)


def classes_told(found: Sequence[Prediction], most: int | None = None) -> Response:
    """The classes of one text or image; people are told so many."""
    told = "\n".join(f"{one.told()}  {one.label}" for one in found[:most])
    return Response(told, {"classes": [one.data() for one in found]})


def vector_told(vector: Tensor) -> Response:
    """An embedding, number by number."""
    numbers = vector.tolist()
    return Response(" ".join(f"{number:.4f}" for number in numbers), {"vector": numbers})
