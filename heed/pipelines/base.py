"""What every pipeline is: a model in use behind verbs, and the predictions and responses that it gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..core.config import Data, read_data
from ..core.contract import Mixer, Where
from ..core.errors import ConfigError, InputError
from ..core.stamps import Span

if TYPE_CHECKING:
    from ..parts.outputs.heads import Pool
    from ..weights import Opened
    from ..weights.home.fit import Trained
    from .text import GenerationConfig

V = TypeVar("V")

AnyModel: TypeAlias = "Mixer[Any]"
Ids: TypeAlias = "np.ndarray[Any, np.dtype[np.int32]]"
Message: TypeAlias = Mapping[str, Any]  # role and content
Problem: TypeAlias = Literal["single_label_classification", "multi_label_classification", "regression"]  # a config's


@dataclass(frozen=True)
class Padded:
    """Sequences side by side, padded at their ends."""

    tokens: Tensor  # [B, T]
    where: Where

    @classmethod
    def of(cls, rows: Sequence[Ids], fill: int = 0) -> Self:
        lengths = [len(row) for row in rows]
        width = max(lengths)
        tokens = np.full((len(rows), width), fill, dtype=np.int64)
        for row, ids in enumerate(rows):
            tokens[row, : len(ids)] = ids
        if min(lengths) == width:
            return cls(torch.from_numpy(tokens), Where.run(len(rows), width))
        where = Where.ragged(lengths)
        where.known(Span(0, width - 1, run=True, padded=True))
        return cls(torch.from_numpy(tokens), where)

    def to(self, device: torch.device) -> Self:
        if self.tokens.device == device:
            return self
        where = Where(self.where.order.to(device), self.where.position.to(device))
        where.known(self.where.span)
        return type(self)(self.tokens.to(device), where)


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


class Pipeline(ABC):
    """A model in use. What it can do is a matter of its kind; asked for anything else, it says so."""

    model: AnyModel
    opened: Opened | None = None  # the checkpoint that it is of, for whoever writes it back
    trained: Trained | None = None  # or what heed trained
    beside: Path | None = None  # where the files lie that go along with the weights

    @property
    @abstractmethod
    def what(self) -> str:
        """What it is, in words."""

    def generate(self, text: str = "", config: GenerationConfig | None = None) -> str:
        """What the model generates after this prompt."""
        raise self._cannot("generate")

    def chat(self, messages: Sequence[Message], config: GenerationConfig | None = None) -> str:
        """What the model says next in a conversation: [{"role": "user", "content": "..."}, ...]."""
        raise self._cannot("chat")

    def translate(self, texts: Sequence[str], config: GenerationConfig | None = None) -> list[str]:
        """The best target for each source."""
        raise self._cannot("translate")

    def embed(self, texts: Sequence[str], *, pool: Pool | None = None, unit: bool | None = None) -> Tensor:
        """One embedding per text: [texts, channels]."""
        raise self._cannot("embed")

    def fill(self, text: str, best: int = 5) -> list[list[Prediction]]:
        """For each mask in the text: the most probable tokens."""
        raise self._cannot("fill")

    def classify(self, given: Sequence[str | tuple[str, str]], labels: Sequence[str] = ()) -> list[list[Prediction]]:
        """For each text, pair of texts or path of an image: all classes, the most probable first."""
        raise self._cannot("classify")

    def tag(self, texts: Sequence[str]) -> list[list[tuple[str, Prediction]]]:
        """For each text: its tokens, each with its most probable class."""
        raise self._cannot("tag")

    def transcribe(self, sound: Path | str, *, language: str | None = None) -> str:
        """What is said in a sound file."""
        raise self._cannot("transcribe")

    @abstractmethod
    def respond(self, text: str) -> Response:
        """What the model has to say to a text, or to the file of that name, whatever it can do."""

    def save(self, folder: Path | str) -> None:
        """Write it as a new folder that Hugging Face's libraries load: config, safetensors, tokenizer, generation."""
        from .save import save  # who only uses a model needs none of it

        save(self, folder)

    def _cannot(self, verb: str) -> InputError:
        return InputError(f"this model cannot {verb}: it is {self.what}")


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


def several(given: Iterable[V], what: str) -> list[V]:
    """What was given, which must be a list of things, not one of them."""
    if isinstance(given, str | bytes | Path):
        raise InputError(f"a list of {what}s is needed, and this is one {what}; write [{what}]")
    if not isinstance(given, Iterable):
        raise InputError(f"a list of {what}s is needed, not {type(given).__name__}")
    return list(given)


def sidecar(path: Path) -> Data:
    """A JSON file beside the weights, which may be missing."""
    if not path.is_file():
        return {}
    try:
        return read_data(path)
    except ConfigError as error:
        raise InputError(str(error)) from None
