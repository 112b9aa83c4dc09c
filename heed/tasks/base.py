"""What a task is: how examples become batches, what is minimised, how a model is evaluated, which pipeline it gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

import torch
from torch import Tensor

from ..core.config import Config
from ..core.contract import Where
from ..core.errors import InputError
from ..core.interfaces import LanguageModel, Rehearses
from ..data.base import Examples
from ..decode import AnyStrategy, Greedy
from ..parts.outputs.loss import NO_LABEL, Loss, cross_entropy, headed_cross_entropy
from ..pipelines.base import AnyModel, Ids, Padded

if TYPE_CHECKING:
    from ..pipelines import GenerationConfig, GenerationPipeline
    from ..text import Tokenizer
    from .metrics import Metrics

Item: TypeAlias = "tuple[Ids, ...]"  # an encoded example: token ids, special ones included
Notify: TypeAlias = Callable[[int, int], None]  # so many are done, of so many


@dataclass(frozen=True)
class Batch:
    """What one call of the model is about."""

    inputs: Padded
    labels: Tensor  # [B, T], NO_LABEL where nothing is predicted
    source: Padded | None = None  # what the encoder takes
    tokens: int = 0  # labels to predict: what losses are divided by
    progress: float = 1.0  # how much of the training is done

    @classmethod
    def shifted(cls, rows: Sequence[Ids], source: Padded | None = None) -> Self:
        """Each token predicts the next one."""
        inputs, labels = Padded.of([row[:-1] for row in rows]), Padded.of([row[1:] for row in rows], NO_LABEL)
        return cls(inputs, labels.tokens, source, sum(len(row) - 1 for row in rows))

    def silent(self) -> Self:
        """The same with nothing to predict: its loss is zero, its gradients are zero."""
        return replace(self, labels=torch.full_like(self.labels, NO_LABEL), tokens=0)

    def to(self, device: torch.device) -> Self:
        source = None if self.source is None else self.source.to(device)
        return replace(self, inputs=self.inputs.to(device), labels=self.labels.to(device), source=source)


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

    columns: ClassVar[tuple[str, ...]]  # what it needs of every example
    decode: AnyStrategy = Greedy()  # how texts are generated, unless a call names another strategy

    @abstractmethod
    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> Corpus:
        """The examples, encoded."""

    @abstractmethod
    def batch(self, items: Sequence[Item]) -> Batch:
        """Items side by side."""

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
    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> GenerationPipeline:
        """The model in use."""

    @abstractmethod
    def evaluate(
        self,
        pipeline: GenerationPipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        """How good a model is on these examples; what it has to generate for that, it generates by `config`."""


def some(items: list[Item], report: str) -> list[Item]:
    """The items, of which there must be one at least."""
    if not items:
        raise InputError(f"nothing is left to learn from: {report}")
    return items
