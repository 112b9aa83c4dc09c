"""Funnel-Transformer (Dai et al. 2020): an encoder that pools the sequence between blocks, and upsamples at the end."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from ...core.config import Count, Flag, Parts, Size
from ...core.contract import Where
from ...core.state import Seen
from ...mixers import FunnelAttention, SomeMixers
from ...parts.residual.wiring import AnyWiring, PostNorm
from ..block import States
from ..encoder import Encoder
from .xlnet import Segmented, with_segments

DEEPEST = 1 << 16  # layers, as `Parts` has it
Pooling = Literal["mean", "max", "min"]


class Funnel(Encoder):
    """Blocks of layers, each over half as many tokens as the one before, then layers over all tokens again.

        h ← layers( pool(h); h ),  ...,  y = layers( up(h_last) + h_first )

    Dai et al. 2020. `sizes` tells how many layers each block has: the queries of the first layer of every later block
    are pairs of tokens pooled into one, its keys the unpooled ones. `upper` layers then take the last block, every
    token of it repeated as often as there were tokens in its place, plus what the first block gave (`skip`: after that
    many layers instead, as the reference counts them). Without upper layers the model gives the short sequence itself.
    With `separate` the first token is not pooled; with `truncate` the last one is then left out instead, so that
    lengths that are powers of two stay so. A row is pooled by its own length, whatever the batch; a token at its end
    without a partner is pooled alone. Costs what its mixers cost over n, n/2, n/4 ... tokens, and over n again in upper
    layers.
    """

    class Config(Encoder.Config):
        kind: Literal["funnel"] = "funnel"  # type: ignore[assignment]  # a shape of its own
        mixer: SomeMixers = (FunnelAttention.Config(),)
        wiring: AnyWiring = PostNorm()
        sizes: tuple[Size, ...] = (1, 1)  # layers of each block
        repeats: tuple[Size, ...] | None = None  # how often each layer of a block is applied; None = once
        upper: Count = 1  # layers over all tokens again
        depth: Parts = 1  # follows from these three, and so does `order`
        pool: Pooling = "mean"  # how two tokens become one
        separate: Flag = True  # the first token is not pooled
        truncate: Flag = True  # leave the last token out where the first stands apart
        queries_only: Flag = True  # the first layer of a block looks at unpooled tokens
        skip: Count | None = None  # layer whose output is added; None: the end of the first block

        @model_validator(mode="before")
        @classmethod
        def _counted(cls, given: Any) -> Any:
            """Depth and order."""
            if not isinstance(given, dict):
                return given
            sizes = tuple(given.get("sizes", (1, 1)))
            repeats = tuple(given.get("repeats") or (1,) * len(sizes))
            upper = given.get("upper", 1)
            numbers = (*sizes, *repeats, upper)
            if len(sizes) != len(repeats) or not all(type(number) is int and number >= 0 for number in numbers):
                return given  # which is refused field by field
            depth = sum(size * again for size, again in zip(sizes, repeats, strict=True)) + upper
            if depth > DEEPEST:
                return {**given, "depth": depth}  # which is refused, before any list is that long
            first = list(accumulate(sizes, initial=0))
            order = [
                first[block] + layer
                for block, (size, again) in enumerate(zip(sizes, repeats, strict=True))
                for layer in range(size)
                for _ in range(again)
            ]
            order += range(first[-1], first[-1] + upper)
            return {**given, "depth": max(depth, 1), "order": tuple(order)}

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if not self.sizes or len(self.sizes) != len(self.repeats or self.sizes):
                raise ValueError(
                    f"sizes {self.sizes} and repeats {self.repeats} must name the same blocks, at least one"
                )
            if (self.skip or 0) > self.layers[0]:
                raise ValueError(f"skip is {self.skip}, but the first block has {self.layers[0]} layers")
            mixers = self.mixer if isinstance(self.mixer, tuple) else (self.mixer,)
            if not all(
                isinstance(mixer, FunnelAttention.Config) and mixer.separate == self.separate for mixer in mixers
            ):
                raise ValueError(f"a funnel needs mixers of kind funnel with separate = {self.separate}")
            if self.cross is not None or self.segments is not None or self.boxes is not None:
                raise ValueError("a funnel compares segments in its mixers; leave cross, segments and boxes out")
            return self

        @property
        def layers(self) -> tuple[int, ...]:
            """Layers of each block, as often as they are applied."""
            repeats = self.repeats or (1,) * len(self.sizes)
            return tuple(size * again for size, again in zip(self.sizes, repeats, strict=True))

        def build(self) -> Funnel:
            return Funnel(self)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.embeddings = Segmented.like(self.embeddings)

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return self.mix(self.embeddings.embed(x, where), with_segments(x, where), state)

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return self.levels(self.embeddings.place(x, where), where)[-1].x, state

    def encode(self, tokens: Tensor, where: Where | None = None) -> Seen:
        """The hidden states of these tokens; without upper layers, of fewer, and stamped so."""
        where = with_segments(tokens, self.default_where(tokens) if where is None else where)
        last = self.levels(self.embeddings(tokens, where), where)[-1]
        return Seen.of(last.where, last.x)

    def levels(self, x: Tensor, where: Where, added: Tensor | None = None) -> list[Level]:
        """The stream before the first layer and after each; and, where there are upper layers, what they begin with.

        `added` [B, T] is added to the attention scores of every key; of a pair the lower one counts.
        """
        config, layers = self.config, iter(self.stack.layers)
        made = [Level(self.stack.ends.enter(where.blank(x)), where, added, torch.zeros_like(where.order[:, 0]))]
        for block, depth in enumerate(config.layers):
            for number in range(depth):
                before = made[-1]
                level = before.pooled(config) if block and not number else before
                keys = before if config.queries_only else level
                made.append(level.through(next(layers), keys))
        if config.upper:
            first = made[config.layers[0] if config.skip is None else config.skip]
            made.append(first.plus(made[-1].spread(first, config)))
            for layer in layers:
                made.append(made[-1].through(layer, made[-1]))
        return [*made[:-1], made[-1].replaced(self.stack.ends.leave(made[-1].x))]


@dataclass(frozen=True, eq=False)
class Level:
    """A text at one length."""

    x: Tensor  # [B, T, D]
    where: Where
    added: Tensor | None  # [B, T] to the scores of keys
    halvings: Tensor  # [B] how often a row was pooled: short ones are not

    def replaced(self, x: Tensor) -> Level:
        """With another stream."""
        return Level(x, self.where, self.added, self.halvings)

    def plus(self, x: Tensor) -> Level:
        """With another stream added."""
        return self.replaced(self.x + x)

    def through(self, layer: Any, keys: Level) -> Level:
        """After a layer that looks at these keys."""
        where = self.where
        if keys is not self or self.added is not None:
            segment = keys.where.given.segment
            segment = torch.zeros_like(keys.where.order) if segment is None else segment
            added = () if keys.added is None else (keys.added,)
            parts = keys.where.blank(keys.x), keys.where.blank(segment), *added
            where = where.give(shared=Seen.of(keys.where, *parts))
        return self.replaced(layer(self.x, where)[0])

    def pooled(self, config: Funnel.Config) -> Level:
        """Pairs of tokens as one, each standing where its first token stands."""
        count = self.where.real.sum(1)  # [B]
        pools = count > 1 + int(config.separate)
        place = torch.arange(self.where.shape[1], device=count.device).expand(self.where.shape)
        last = (count - 1 - int(config.separate and config.truncate))[:, None]
        first = (2 * place - int(config.separate)).clamp(min=0)
        second = torch.where(place == 0, first, first + 1) if config.separate else first + 1
        there = first <= last
        first, second, there = (
            torch.where(pools[:, None], new, old)
            for new, old in ((first, place), (second, place), (there, self.where.real))
        )
        second = torch.where(second <= torch.where(pools, last[:, 0], count - 1)[:, None], second, first)
        long = max(int(there.sum(1).max()) if there.numel() else 0, 1)
        first, second, there = (index[:, :long] for index in (first, second, there))
        first, second = (index.clamp(max=self.where.shape[1] - 1) for index in (first, second))
        x = self.where.blank(self.x)
        one, two = (x.take_along_dim(index[..., None], 1) for index in (first, second))
        mixed = {"mean": (one + two) / 2, "max": torch.maximum(one, two), "min": torch.minimum(one, two)}[config.pool]
        return Level(mixed, self._stamped(first, there), self._lower(first, second), self.halvings + pools)

    def spread(self, onto: Level, config: Funnel.Config) -> Tensor:
        """Every token as often as a row was halved says, a separate first one once; zeros behind. [B, T, D]"""
        stride = (2**self.halvings)[:, None]
        place = torch.arange(onto.where.shape[1], device=stride.device)
        place = torch.where(place == 0, 0, (place - 1) // stride + 1) if config.separate else place // stride
        inside = place < self.where.real.sum(1)[:, None]
        x = self.x.take_along_dim(place.clamp(max=self.x.shape[1] - 1)[..., None], 1)
        return x.masked_fill(~inside[..., None], 0)

    def _stamped(self, first: Tensor, there: Tensor) -> Where:
        order = torch.arange(first.shape[1], device=first.device).expand(first.shape).masked_fill(~there, -1)
        position = self.where.position.gather(1, first).masked_fill(~there, 0)
        where, segment = Where(order, position), self.where.given.segment
        return where if segment is None else where.give(segment=segment.gather(1, first))

    def _lower(self, first: Tensor, second: Tensor) -> Tensor | None:
        if self.added is None:
            return None
        return torch.minimum(self.added.gather(1, first), self.added.gather(1, second))
