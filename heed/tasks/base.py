"""What a task is: how examples become batches, what is minimised, how a model is evaluated, which pipeline it gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

import torch
from torch import Tensor

from ..core.config import Config
from ..core.contract import Where
from ..core.errors import ConfigError, InputError
from ..core.interfaces import Asked, Detects, Encodes, LanguageModel, Permutes, Rehearses, Retrieves
from ..data.base import Example, Examples
from ..decode import AnyStrategy, Greedy
from ..parts.inputs.tokens import TokenEmbeddings
from ..parts.outputs.heads import Wanted
from ..parts.outputs.loss import NO_LABEL, Loss, cross_entropy, headed_cross_entropy
from ..pipelines.base import AnyModel, Ids, Padded
from . import AnyTask

if TYPE_CHECKING:
    from ..pipelines import GenerationConfig, GenerationPipeline, Pipeline
    from ..text import Tokenizer
    from .metrics import Metrics

Item: TypeAlias = "tuple[Any, ...]"  # an encoded example: ids, special ones included; of a file, where it lies
Notify: TypeAlias = Callable[[int, int], None]  # so many are done, of so many


@dataclass(frozen=True)
class Batch:
    """What one call of the model is about."""

    inputs: Padded  # ids; or numbers: images (`Pixels`), sounds (`Frames`)
    labels: Tensor  # [B, T], or [B, ...] where texts are labelled; NO_LABEL where nothing is predicted
    source: Padded | None = None  # what the encoder takes
    tokens: int = 0  # labels to predict: what losses are divided by
    progress: float = 1.0  # how much of the training is done
    beside: Tensor | None = None  # labels of a second question, such as whether one text follows another
    shares: Tensor | None = None  # how much each label of a row counts, where two examples were mixed into one

    @classmethod
    def shifted(cls, rows: Sequence[Ids], source: Padded | None = None) -> Self:
        """Each token predicts the next one."""
        inputs, labels = Padded.of([row[:-1] for row in rows]), Padded.of([row[1:] for row in rows], NO_LABEL)
        return cls(inputs, labels.tokens, source, sum(len(row) - 1 for row in rows))

    @property
    def asides(self) -> int:
        """Labels of the second question: what its loss is divided by."""
        return 0 if self.beside is None else int((self.beside != NO_LABEL).sum())

    def silent(self) -> Self:
        """The same with nothing to predict: its loss is zero, its gradients are zero."""
        beside = None if self.beside is None else torch.full_like(self.beside, NO_LABEL)
        return replace(self, labels=torch.full_like(self.labels, NO_LABEL), tokens=0, beside=beside)

    def to(self, device: torch.device) -> Self:
        source = None if self.source is None else self.source.to(device)
        beside = None if self.beside is None else self.beside.to(device)
        shares = None if self.shares is None else self.shares.to(device)
        inputs, labels = self.inputs.to(device), self.labels.to(device)
        return replace(self, inputs=inputs, labels=labels, source=source, beside=beside, shares=shares)


def next_token_loss(model: AnyModel, batch: Batch, where: Where, smoothing: float = 0.0) -> Loss:
    """How badly the model predicts the labels of a batch."""
    tokens = batch.inputs.tokens
    if isinstance(model, Rehearses) and model.training:
        return _rehearsed(model, batch, where, smoothing)
    if isinstance(model, LanguageModel):
        return headed_cross_entropy(model.hidden_states(tokens, where)[0], model.lm_head, batch.labels, smoothing)
    return cross_entropy(model(tokens, where)[0], batch.labels, smoothing)


def _rehearsed(model: Rehearses, batch: Batch, where: Where, smoothing: float) -> Loss:
    """All that the model is asked in training is minimised; what it is there for is reported."""
    total = torch.zeros((), device=batch.labels.device)
    nats = total
    for stream, head, ahead, weight in model.rehearse(batch.inputs.tokens, where, batch.progress):
        loss = headed_cross_entropy(stream, head, _ahead(batch, ahead), smoothing)
        total, nats = total + weight * loss.total, loss.nats
    return Loss(total, nats)


def _ahead(batch: Batch, steps: int) -> Tensor:
    """The tokens so many steps ahead, as labels, or so many back. [B, T]"""
    if steps > 0:
        return torch.nn.functional.pad(batch.labels[:, steps - 1 :], (0, steps - 1), value=NO_LABEL)
    before = torch.nn.functional.pad(batch.inputs.tokens[:, :steps], (-steps, 0), value=NO_LABEL)
    return before.masked_fill(batch.labels == NO_LABEL, NO_LABEL)  # nothing is asked at padding


def must_learn(task: Task, model: AnyModel) -> None:
    """Raise unless the model has the shape that a task needs, and the task gives it all that it learns from."""
    if isinstance(model, Retrieves):
        raise ConfigError(
            f"{type(model).__name__} learns to look at neighbours, and no task retrieves any: its cross-attention and "
            "the encoder of neighbours would never learn; train model.kind=decoder, or write the loop yourself and "
            "pass where.give(neighbours=neighbours(ids)) with every batch"
        )
    task.must_fit(model)


class Corpus(ABC):
    """The encoded examples of a split, in rounds."""

    endless: bool = False  # then a round is as much as is sorted together, not all there is

    @abstractmethod
    def round(self, number: int, seed: int) -> list[Item]:
        """The items of a round, in an order that depends on nothing but number and seed."""

    @abstractmethod
    def once(self) -> list[Item]:
        """Every item once, in the order of the data: what is evaluated."""

    @abstractmethod
    def report(self) -> str:
        """One line for people: how many tokens, and what was left out and why."""


class Task(Config):
    """What is learnt from what."""

    wordless: ClassVar[bool] = False  # whether it needs no tokenizer
    loads: ClassVar[bool] = False  # whether its items must be loaded from files before they make a batch
    unit: ClassVar[str] = "token"  # what losses count
    costs: ClassVar[str] = "token"  # what `cost` counts
    even: ClassVar[bool] = False  # whether every batch holds as many items: each has one label, whatever its length

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """What it needs of every example."""

    def texts(self, example: Example) -> Sequence[str]:
        """What of an example is text: what a tokenizer is made from."""
        return example

    def equip(self, tokenizer: Tokenizer) -> Tokenizer:
        """A tokenizer with what this task needs beside: special tokens, a frame."""
        return tokenizer

    def informed(self, examples: Examples) -> Self:
        """With what only the data can tell, such as the names of classes."""
        return self

    def noticed(self, examples: Examples) -> Sequence[str]:
        """What people should know of the training data, although it can be learnt from."""
        return ()

    def fitted(self, model: AnyModel, beside: Path | None) -> Self:
        """With what only the model can tell, such as the size of its images. `beside`: the files of its base."""
        return self

    def fetch(self, item: Item) -> Item:
        """An item as a batch needs it: what was a place on the disk is decoded. It follows from the item alone."""
        return item

    def head(self) -> Wanted | None:
        """What the model is asked by, one head or several; None: what it is asked by anyway."""
        return None

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of what the head tells apart, in the order of its logits; none: it tells no classes."""
        return ()

    def at(self, progress: float) -> Self:
        """The task as it is when so much of the training is done, from 0 to 1; evaluations take it as it is."""
        return self

    @property
    def strategy(self) -> AnyStrategy | None:
        """How texts are generated, unless a call names another strategy; None: none are."""
        return None

    @abstractmethod
    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> Corpus:
        """The examples, encoded."""

    @abstractmethod
    def batch(self, items: Sequence[Item]) -> Batch:
        """Items, loaded, side by side."""

    @abstractmethod
    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        """What is minimised, summed over the batch."""

    @abstractmethod
    def must_fit(self, model: AnyModel) -> None:
        """Raise unless the model has the shape that this task needs."""

    @abstractmethod
    def cost(self, item: Item) -> int:
        """Tokens that an item takes in a batch."""

    @abstractmethod
    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> Pipeline:
        """The model in use."""

    @abstractmethod
    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        """How good a model is on these examples; what it has to generate for that, it generates by `config`."""

    @property
    def main(self) -> str:
        """The metric, the higher the better, that a model is compared with its floors by."""
        return ""

    def floors(self, train: Examples, examples: Examples) -> dict[str, Metrics]:
        """What is reached on these examples without any attention, by name (`floors.py`): what a model must beat."""
        return {}


class TextTask(Task):
    """A task that learns from texts alone: from a column of them, or from whatever texts another task has."""

    of: AnyTask | None = None  # a task whose texts are learnt from, before that task is; None: those of a column

    @property
    def columns(self) -> tuple[str, ...]:
        return ("text",) if self.of is None else self.of.columns

    def texts(self, example: Example) -> Sequence[str]:
        return example if self.of is None else self.of.texts(example)

    def equip(self, tokenizer: Tokenizer) -> Tokenizer:
        return tokenizer if self.of is None else self.of.equip(tokenizer)

    def every(self, examples: Examples) -> Iterator[str]:
        """All texts of these examples."""
        return (text for example in examples for text in self.texts(example))


class GeneratingTask(Task):
    """A task whose answers are generated token by token."""

    decode: AnyStrategy = Greedy()  # how texts are generated, unless a call names another strategy

    @property
    def strategy(self) -> AnyStrategy | None:
        return self.decode

    @abstractmethod
    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> GenerationPipeline: ...


def proposed(model: AnyModel) -> str:
    """What may be learnt by a model that does not fit a task."""
    match model:
        case Detects():
            kinds = "electra"
        case Permutes():
            kinds = "permute or causal"
        case Encodes() if isinstance(model, LanguageModel):
            kinds = "translate or denoise"
        case LanguageModel() if model.streams:
            kinds = "causal or classify"
        case Asked():
            kinds = "masked or classify"
        case _:
            return ""
    return f". {type(model).__name__} learns by task.kind={kinds}"


def places(model: AnyModel) -> int | None:
    """Tokens that the embeddings of a model have positions for; None: any number, or nobody knows."""
    for part in model.modules():
        if isinstance(part, TokenEmbeddings) and part.position is not None and part.position.longest is not None:
            return part.position.longest
    return None


def some(items: list[Item], report: str) -> list[Item]:
    """The items, of which there must be one at least."""
    if not items:
        raise InputError(f"nothing is left to learn from: {report}")
    return items
