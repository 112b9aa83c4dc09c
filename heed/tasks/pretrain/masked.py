"""Masked language modelling: some tokens are hidden, and predicted from all others (BERT)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np
import torch
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Flag, Fraction, Share, Size, kind_of
from ...core.errors import ConfigError, InputError
from ...core.interfaces import Asked
from ...data.base import Examples
from ...parts.layers.norms import LayerNorm
from ...parts.outputs.heads import HeadConfig, Masked, Pooled
from ...parts.outputs.loss import NO_LABEL, Loss, cross_entropy, headed_cross_entropy
from ...pipelines.base import AnyModel, Ids, Padded, Pipeline
from ...pipelines.encoder import EncoderPipeline
from ...pipelines.settings import GenerationConfig
from ...pipelines.streams import stream_of
from ...text.kinds import framing, knowing
from ..base import Batch, Corpus, Item, Notify, TextTask, places, proposed, some
from ..feed import bucketed
from ..metrics import BUDGET, Metrics, perplexity
from .documents import Documents, Flags

if TYPE_CHECKING:
    from ...core.state import Seen
    from ...text import Framed, Tokenizer

MASK = "<mask>"
NEXT = ("follows", "other")  # what a pair of texts is, by the number of the class


class Hiding(TextTask):
    """Texts in which tokens are hidden: which of them is drawn anew for every text in every round."""

    context: Size = 128  # tokens of a text, or of a pair of them, special ones included; longer texts are cut
    rate: Fraction = 0.15  # share of tokens that are hidden and predicted, one at least
    first_rate: Fraction | None = None  # the share at the first step, from which it goes to `rate` along a line
    whole_words: Flag = False  # all tokens of a word are hidden, or none
    masked: Fraction = 0.8  # share of hidden tokens in whose place <mask> stands
    random: Share = 0.1  # share in whose place any token stands; the others stay as they are

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.masked + self.random > 1 + 1e-9:
            raise ValueError(
                f"masked {self.masked} and random {self.random} are shares of one whole: at most 1 together"
            )
        return self

    def equip(self, tokenizer: Tokenizer) -> Tokenizer:
        tokenizer = framing(super().equip(tokenizer))
        return knowing(tokenizer, MASK) if tokenizer.mask is None else tokenizer

    def at(self, progress: float) -> Self:
        if self.first_rate is None:
            return self
        rate = self.first_rate + (self.rate - self.first_rate) * progress
        return self.model_copy(update={"rate": rate})

    def corpus(self, examples: Examples, tokenizer: Tokenizer) -> Hidden:
        return Hidden(self, examples, tokenizer)

    def cost(self, item: Item) -> int:
        return len(item[0])

    def hidden(self, items: Sequence[Item]) -> tuple[Padded, Tensor]:
        """The texts as they are read, [B, T, 2], and what is to be predicted, [B, T]."""
        inputs, labels = list[Ids](), list[Ids]()
        for fields, order, instead, *_ in items:
            chosen = _chosen(order, max(1, round(self.rate * int((order >= 0).sum()))))
            ids = fields[:, 0]
            inputs.append(np.stack([np.where(chosen, instead, ids), fields[:, 1]], -1))
            labels.append(np.where(chosen, ids, NO_LABEL))
        return Padded.of(inputs), Padded.of(labels, NO_LABEL).tokens

    def fits(self, model: AnyModel, heads: Sequence[str]) -> bool:
        """Whether it reads both ways and can be asked by these heads."""
        return isinstance(model, Asked) and not model.streams and all(head in model.heads for head in heads)

    def must_have_places(self, model: AnyModel) -> None:
        """Raise if the model has fewer positions than a text may have tokens."""
        longest = places(model)
        if longest is not None and longest < self.context:
            raise ConfigError(
                f"task.context is {self.context} tokens, the model has places for {longest}; set task.context={longest}"
            )

    @staticmethod
    def no_generation(config: GenerationConfig | None) -> None:
        if config is not None:
            raise InputError("nothing is generated to evaluate this: leave --beam, --temperature ... out")


class MaskedTokens(Hiding):
    """Hidden tokens are predicted from all others: -Σ_t log p( x_t | x with some hidden ), over the hidden ones.

    Devlin et al. 2019: 15 % of the tokens of a text are hidden; of these 80 % are read as <mask>, 10 % as any token,
    10 % as what they are. With `next_sentence` texts are pairs, and a second head tells whether one follows the other;
    the loss is the mean over hidden tokens plus the mean over pairs.
    """

    kind: Literal["masked"] = "masked"
    next_sentence: Flag = False  # pairs of texts, half of which belong together, which a second head tells

    def head(self) -> tuple[HeadConfig, ...]:
        masked = Masked.Config(vocabulary=1, activation="gelu", norm=LayerNorm())  # as many as the model has tokens
        return (masked, Pooled.Config(activation="tanh", labels=len(NEXT))) if self.next_sentence else (masked,)

    def must_fit(self, model: AnyModel) -> None:
        if not self.fits(model, [kind_of(type(head)) for head in self.head()]):
            raise ConfigError(
                f"to predict hidden tokens, a model must read a text both ways, {type(model).__name__} does not; use "
                f"model.kind=encoder or model.kind=bert{proposed(model)}"
            )
        self.must_have_places(model)

    def batch(self, items: Sequence[Item]) -> Batch:
        inputs, labels = self.hidden(items)
        follows = np.concatenate([item[3] for item in items]).astype(np.int64) if self.next_sentence else None
        beside = None if follows is None else torch.from_numpy(follows)
        return Batch(inputs, labels, tokens=int((labels != NO_LABEL).sum()), beside=beside)

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        seen, heads = read(model, batch.inputs)
        loss = masked_loss(seen, heads["masked"], batch.labels)
        if batch.beside is None:
            return loss
        return replace(loss, beside=cross_entropy(heads["pooled"](seen.parts[0], seen), batch.beside).total)

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> EncoderPipeline:
        return EncoderPipeline(model, tokenizer, NEXT if self.next_sentence else (), longest=self.context)

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        """The same tokens are hidden each time. `accuracy`: of hidden tokens, in percent."""
        self.no_generation(config)
        batches = bucketed(self.corpus(examples, pipeline.tokenizer).once(), self.cost, BUDGET)
        tokens, pairs = Tally(), Tally()
        for number, items in enumerate(batches, 1):
            self._measure(pipeline.model, self.batch(items), tokens, pairs)
            if notify is not None:
                notify(number, len(batches))
        loss = tokens.nats / tokens.count
        found: Metrics = {"perplexity": perplexity(tokens.nats, tokens.count), "accuracy": tokens.accuracy}
        if not self.next_sentence:
            return {"loss": loss, **found, "tokens": tokens.count}
        after = pairs.nats / pairs.count
        told = {"masked_loss": loss, "next_loss": after, "next_accuracy": pairs.accuracy, "pairs": pairs.count}
        return {"loss": loss + after, **found, "tokens": tokens.count, **told}

    @torch.no_grad()
    def _measure(self, model: AnyModel, batch: Batch, tokens: Tally, pairs: Tally) -> None:
        batch = batch.to(model.device or torch.device("cpu"))
        seen, heads = read(model, batch.inputs)
        asked = batch.labels != NO_LABEL
        tokens.add(heads["masked"](seen.parts[0][asked], seen), batch.labels[asked])
        if batch.beside is not None:
            pairs.add(heads["pooled"](seen.parts[0], seen), batch.beside)


class Tally:
    """Nats and right answers, counted."""

    def __init__(self) -> None:
        self.nats, self.right, self.count = 0.0, 0, 0

    def add(self, logits: Tensor, labels: Tensor) -> None:
        self.nats += float(cross_entropy(logits, labels).nats)
        self.right += int((logits.argmax(-1) == labels).sum())
        self.count += labels.numel()

    @property
    def accuracy(self) -> float:
        return 100 * self.right / self.count


def read(model: AnyModel, inputs: Padded) -> tuple[Seen, nn.ModuleDict]:
    """What the model made of texts, a hidden state for every token, and the heads that it is asked by."""
    seen = stream_of(model, inputs.tokens, inputs.where)
    if not isinstance(model, Asked) or seen.parts[0].shape[1] != inputs.tokens.shape[1]:
        raise ConfigError(
            f"{type(model).__name__} does not give a hidden state for every token, so that none can be predicted; a "
            "funnel does with model.upper=1 or more"
        )
    return seen, model.heads


def masked_loss(seen: Seen, head: nn.Module, labels: Tensor) -> Loss:
    """How badly hidden tokens are predicted; logits are made of those alone."""
    if not isinstance(head, Masked):
        raise ConfigError(f"hidden tokens are predicted by a masked head, not by {type(head).__name__}")
    asked = labels != NO_LABEL
    return headed_cross_entropy(head.transformed(seen.parts[0][asked]), head.scores, labels[asked])


def _chosen(order: Ids, budget: int) -> Flags:
    """The tokens that are hidden: those of the first words, by their rank, that fit the budget; one word at least."""
    lengths = np.bincount(order[order >= 0])
    if lengths.max(initial=1) == 1:
        return (order >= 0) & (order < budget)
    taken, room = list[int](), budget
    for rank, length in enumerate(lengths.tolist()):
        if length <= room:
            taken.append(rank)
            room -= length
        if not room:
            break
    return np.isin(order, taken or [0])


class Row(NamedTuple):
    """A text in its frame, before anything is hidden."""

    framed: Framed
    own: Flags  # which tokens are none of the frame
    begins: Flags  # at which of those a word begins
    follows: bool


class Hidden(Corpus):
    """Windows of texts, or pairs of stretches, with an order in which tokens are hidden; other ones in every round.

    An item: ids and segments [T, 2], the rank of each token's word in the order [T] (-1: never hidden), what stands in
    its place if it is [T], whether the second text follows the first [1], and a number to draw by [T].
    """

    def __init__(self, task: Hiding, examples: Examples, tokenizer: Tokenizer) -> None:
        self._task, self._mask = task, tokenizer.need("mask")
        self._pairs = isinstance(task, MaskedTokens) and task.next_sentence
        self._frame = tokenizer.frame(pair=self._pairs)
        self._room = task.context - self._frame.size
        if self._room < 2:
            raise ConfigError(
                f"task.context is {task.context}; the frame alone takes {self._frame.size}: make it longer"
            )
        self._usual = np.array(tokenizer.usual(), np.int32)
        self._documents = Documents.of(task.every(examples), tokenizer, cut=self._pairs, words=task.whole_words)
        draw = np.random.default_rng(0)
        some(self._hidden(self._rows(draw, 0)[:1], draw), self.report())

    def round(self, number: int, seed: int) -> list[Item]:
        draw = np.random.default_rng((seed, number, 3))
        rows = self._rows(draw, int(draw.integers(self._room)))
        return self._hidden([rows[place] for place in draw.permutation(len(rows))], draw)

    def once(self) -> list[Item]:
        draw = np.random.default_rng(0)
        return self._hidden(self._rows(draw, 0), draw)

    def report(self) -> str:
        return self._documents.report(self._room)

    def _rows(self, draw: np.random.Generator, first: int) -> list[Row]:
        if self._pairs:
            return [self._row(one, other, follows) for one, other, follows in self._documents.pairs(self._room, draw)]
        return [self._row(slice(*window)) for window in self._documents.windows(self._room, first)]

    def _row(self, one: slice, other: slice | None = None, follows: bool = True) -> Row:
        documents, parts = self._documents, [one] if other is None else [one, other]
        framed = self._frame.around(*(documents.tokens[part] for part in parts))
        own, begins = np.zeros(len(framed.ids), bool), np.ones(len(framed.ids), bool)
        at = len(self._frame.before.ids)
        for part in parts:
            end = at + part.stop - part.start
            own[at:end] = True
            if documents.begins is not None:
                begins[at + 1 : end] = documents.begins[part][1:]  # a word that was cut begins where it was
            at = end + len(self._frame.between.ids)
        return Row(framed, own, begins, follows)

    def _hidden(self, rows: Sequence[Row], draw: np.random.Generator) -> list[Item]:
        """All rows at once, which is quicker than one by one."""
        if not rows:
            return []
        ends = np.cumsum([len(row.own) for row in rows])
        ids = np.concatenate([np.array(row.framed.ids, np.int32) for row in rows])
        segments = np.concatenate([np.array(row.framed.segments, np.int32) for row in rows])
        chance, task = draw.random(len(ids)), self._task
        instead = np.where(chance < task.masked, self._mask, ids)
        anything = (chance >= task.masked) & (chance < task.masked + task.random)
        instead[anything] = self._usual[draw.integers(len(self._usual), size=int(anything.sum()))]
        number = draw.integers(np.iinfo(np.int32).max, size=len(ids), dtype=np.int32)
        whole = np.stack([ids, segments], -1), _ranks(rows, draw), instead.astype(np.int32)
        follows = [np.array([not row.follows], np.int32) for row in rows]
        parts = *(np.split(part, ends[:-1]) for part in whole), follows, np.split(number, ends[:-1])
        return list(zip(*parts, strict=True))


def _ranks(rows: Sequence[Row], draw: np.random.Generator) -> Ids:
    """The rank of every token's word in an order that is drawn for each row; -1 for the frame. [tokens of all rows]"""
    own = np.concatenate([row.own for row in rows])
    begins = own & np.concatenate([row.begins for row in rows])
    row = np.repeat(np.arange(len(rows)), [len(row.own) for row in rows])[begins]  # of each word
    order = np.lexsort((draw.random(len(row)), row))
    rank = np.empty(len(row), np.int32)
    rank[order] = np.arange(len(row)) - np.searchsorted(row, row[order])
    return np.where(own, rank[np.cumsum(begins) - 1], -1).astype(np.int32)
