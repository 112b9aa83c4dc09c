"""Replaced token detection: a generator fills masks, a discriminator tells which tokens it put in (ELECTRA)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ...core.config import Fraction, Positive, Share
from ...core.errors import ConfigError
from ...core.interfaces import Detects
from ...data.base import Examples
from ...parts.outputs.heads import Replaced
from ...parts.outputs.loss import NO_LABEL, Loss
from ...pipelines.base import AnyModel, Padded, Pipeline
from ...pipelines.encoder import EncoderPipeline
from ...pipelines.settings import GenerationConfig
from ..base import Batch, Item, Notify, proposed
from ..feed import bucketed
from ..metrics import BUDGET, Metrics
from .masked import Hiding, masked_loss, read

if TYPE_CHECKING:
    from ...text import Tokenizer

FINEST = float(np.iinfo(np.int32).max)


class ReplacedTokens(Hiding):
    """Tokens that a generator put in the place of hidden ones are told from those that stood there.

        L = mean_hidden -log p_G(x_t) + weight · mean_all -log p_D( x̂_t = x_t? )

    Clark et al. 2020. The generator learns to fill masks, as a masked language model does; its tokens x̂ are drawn from
    what it predicts, without a gradient. A token that happens to be the right one counts as original.
    """

    kind: Literal["electra"] = "electra"
    masked: Fraction = 1.0  # share of hidden tokens in whose place <mask> stands
    random: Share = 0.0  # share in whose place any token stands; the others stay as they are
    weight: Positive = 50.0  # of the discriminator's loss

    def head(self) -> Replaced.Config:
        return Replaced.Config()

    def must_fit(self, model: AnyModel) -> None:
        if not isinstance(model, Detects):
            raise ConfigError(
                f"replaced tokens are told by a discriminator beside a generator, and {type(model).__name__} has none; "
                f"use model.kind=electra{proposed(model)}"
            )
        self.must_have_places(model.discriminator)

    def batch(self, items: Sequence[Item]) -> Batch:
        """The second question is about every token: its labels are what the tokens were, and a number to draw by."""
        inputs, labels = self.hidden(items)
        original = Padded.of([item[0][:, 0] for item in items], NO_LABEL).tokens
        chance = Padded.of([item[4] for item in items]).tokens
        tokens = torch.cat([inputs.tokens, chance[..., None]], -1)  # ids, segments, numbers: [B, T, 3]
        return Batch(replace(inputs, tokens=tokens), labels, tokens=int((labels != NO_LABEL).sum()), beside=original)

    def loss(self, model: AnyModel, batch: Batch) -> Loss:
        generated, fake = self.generated(model, batch)
        return replace(generated, beside=self.weight * self.detected(model, batch, fake)[1])

    def generated(self, model: AnyModel, batch: Batch) -> tuple[Loss, Tensor]:
        """The generator's loss, and the texts with its tokens in the place of hidden ones. [B, T]"""
        generator = self._pair(model).generator
        seen, heads = read(generator, _without_chance(batch.inputs))
        loss, asked = masked_loss(seen, heads["masked"], batch.labels), batch.labels != NO_LABEL
        fake = torch.where(asked, batch.labels, batch.inputs.tokens[..., 0])
        with torch.no_grad():
            logits = heads["masked"](seen.parts[0][asked], seen)
            fake[asked] = sampled(logits, batch.inputs.tokens[..., 2][asked] / FINEST)
        return loss, fake

    def detected(self, model: AnyModel, batch: Batch, fake: Tensor) -> tuple[Tensor, Tensor]:
        """The logits that tokens were put in, and how wrong they are, summed. [B, T]"""
        discriminator = self._pair(model).discriminator
        original = fake if batch.beside is None else batch.beside
        tokens = torch.stack([fake, batch.inputs.tokens[..., 1]], -1)
        seen, heads = read(discriminator, replace(batch.inputs, tokens=tokens))
        logits: Tensor = heads["replaced"](seen.parts[0], seen)
        real = original != NO_LABEL
        each = F.binary_cross_entropy_with_logits(logits, (fake != original).to(logits), reduction="none")
        return logits, each.masked_fill(~real, 0).sum()

    def pipeline(self, model: AnyModel, tokenizer: Tokenizer) -> EncoderPipeline:
        return EncoderPipeline(model, tokenizer, longest=self.context)

    def evaluate(
        self,
        pipeline: Pipeline,
        examples: Examples,
        config: GenerationConfig | None = None,
        notify: Notify | None = None,
    ) -> Metrics:
        """`accuracy`: of telling tokens apart, `found`: of those put in, how many were told, in percent."""
        self.no_generation(config)
        batches = bucketed(self.corpus(examples, pipeline.tokenizer).once(), self.cost, BUDGET)
        sums = np.zeros(7)
        for number, items in enumerate(batches, 1):
            sums += self._measured(pipeline.model, self.batch(items))
            if notify is not None:
                notify(number, len(batches))
        nats, tokens, wrong, every, right, fakes, found = sums.tolist()
        return {
            "loss": nats / tokens + self.weight * wrong / every,
            "generator_loss": nats / tokens,
            "discriminator_loss": wrong / every,
            "accuracy": 100 * right / every,
            "found": 100 * found / max(fakes, 1),
            "replaced": 100 * fakes / every,
            "tokens": int(every),
        }

    @torch.no_grad()
    def _measured(self, model: AnyModel, batch: Batch) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Of the generator nats, tokens; of the discriminator nats, tokens, right answers; fakes, and those found."""
        batch = batch.to(model.device or torch.device("cpu"))
        loss, fake = self.generated(model, batch)
        logits, wrong = self.detected(model, batch, fake)
        original = fake if batch.beside is None else batch.beside
        every = original != NO_LABEL
        told, fakes = (logits > 0) & every, (fake != original) & every
        counts = (every, (told == fakes) & every, fakes, told & fakes)
        return np.array([float(loss.nats), batch.tokens, float(wrong), *(int(some.sum()) for some in counts)])

    def _pair(self, model: AnyModel) -> Detects:
        if not isinstance(model, Detects):
            self.must_fit(model)
            raise ConfigError(f"{type(model).__name__} has no generator")
        return model


def sampled(logits: Tensor, chance: Tensor) -> Tensor:
    """A token for each row, drawn by a number from 0 to 1: the first at which the probabilities add up to it.

    What is drawn depends on its row alone, however rows are put into batches. [M, V], [M] -> [M]
    """
    sums = logits.double().softmax(-1).cumsum(-1)
    return torch.searchsorted(sums, (chance.double() * sums[:, -1])[:, None]).squeeze(1).clamp(max=logits.shape[1] - 1)


def _without_chance(inputs: Padded) -> Padded:
    return replace(inputs, tokens=inputs.tokens[..., :2])
