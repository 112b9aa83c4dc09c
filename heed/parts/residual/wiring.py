"""How the parts of a block are wired into the stream: where the norms sit and what is added to what.

A wiring belongs to one block and is handed its parts as plain functions. `enter` and `leave` stand at the two ends of
the whole stack: a final norm, or a second stream that runs beside the first.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

import torch
from torch import nn

from ...core.config import Config, Count, Flag, Number, OneOf, Positive, Size
from ..layers.norms import LayerNorm, NormConfig
from .wired import (
    Both,
    Ends,
    NormedWired,
    ParallelWired,
    PostWired,
    PreWired,
    RescaledWired,
    ResiDualWired,
    SandwichWired,
    TurnsWired,
    TwoStreams,
    UnrolledWired,
    Wiring,
)


class WiringConfig(Config):
    """How to build a wiring for each block and the ends of the stack."""

    @abstractmethod
    def build(self, width: int, parts: int, norm: NormConfig, dropout: float) -> Wiring:
        """The wiring of a block of so many parts."""

    def at(self, block: int) -> WiringConfig:
        """As the block of this number in a stack has it: most are alike."""
        return self

    def ends(self, width: int, norm: NormConfig) -> Ends:
        """The two ends of a stack of such blocks."""
        return Ends()

    def leaves(self, width: int) -> int:
        """How wide the stream is after the last block."""
        return width

    def temper(self, part: nn.Module) -> None:
        """Adapt the first weights of a part to this wiring."""


class PostNorm(WiringConfig):
    """x ← norm(x + part(x)): the original Transformer. `final` adds the last norm that torch.nn.Transformer has."""

    kind: Literal["post"] = "post"
    final: Flag = False

    def build(self, width: int, parts: int, norm: NormConfig, dropout: float) -> Wiring:
        return PostWired([norm.build(width) for _ in range(parts)], dropout)

    def ends(self, width: int, norm: NormConfig) -> Ends:
        return Ends(norm.build(width) if self.final else None)


class PreNorm(WiringConfig):
    """x ← alpha · x + part(norm(x)), and a norm at the end of the stack (Wang et al. 2019; GPT-2)."""

    kind: Literal["pre"] = "pre"
    final: Flag = True
    alpha: Positive = 1.0  # of the stream; not 1 only in torchscale's decoders, where DeepNorm joins pre-norm

    def build(self, width: int, parts: int, norm: NormConfig, dropout: float) -> Wiring:
        return PreWired([norm.build(width) for _ in range(parts)], dropout, self.alpha)

    def ends(self, width: int, norm: NormConfig) -> Ends:
        return Ends(norm.build(width) if self.final else None)


class Normed(WiringConfig):
    """x ← norm(x) + part(norm(x)), and a norm at the end of the stack: what is added to is normed, too (in BLOOM)."""

    kind: Literal["normed"] = "normed"

    def build(self, width: int, parts: int, norm: NormConfig, dropout: float) -> Wiring:
        return NormedWired([norm.build(width) for _ in range(parts)], dropout)

    def ends(self, width: int, norm: NormConfig) -> Ends:
        return Ends(norm.build(width))


class Sandwich(WiringConfig):
    """x ← x + norm'(part(norm(x))), and a norm at the end of the stack (Ding et al. 2021; Gemma 2)."""

    kind: Literal["sandwich"] = "sandwich"

    def build(self, width: int, parts: int, norm: NormConfig, dropout: float) -> Wiring:
        return SandwichWired([norm.build(width) for _ in range(2 * parts)], dropout)

    def ends(self, width: int, norm: NormConfig) -> Ends:
        return Ends(norm.build(width))


class Parallel(WiringConfig):
    """x ← x + Σ part(norm(x)): all parts read the same stream (GPT-J; with `own_norms` each its own norm, GPT-NeoX)."""

    kind: Literal["parallel"] = "parallel"
    own_norms: Flag = False  # each part has a norm of its own (GPT-NeoX)

    def build(self, width: int, parts: int, norm: NormConfig, dropout: float) -> Wiring:
        return ParallelWired([norm.build(width) for _ in range(parts if self.own_norms else 1)], dropout)

    def ends(self, width: int, norm: NormConfig) -> Ends:
        return Ends(norm.build(width))


class DeepNorm(WiringConfig):
    """x ← norm(alpha · x + part(x)), with first weights shrunk by beta: hundreds of layers (Wang et al. 2022).

    The paper's numbers for N encoder and M decoder layers come from `alone`, `encoder` and `decoder`.
    """

    kind: Literal["deepnorm"] = "deepnorm"
    alpha: Positive  # what the stream is multiplied by
    beta: Positive  # what first weights are multiplied by

    @classmethod
    def alone(cls, depth: int) -> DeepNorm:
        """Encoder-only or decoder-only."""
        return cls(alpha=(2 * depth) ** 0.25, beta=(8 * depth) ** -0.25)

    @classmethod
    def encoder(cls, depth: int, decoder_depth: int) -> DeepNorm:
        """The encoder of an encoder-decoder."""
        root = (depth**4 * decoder_depth) ** (1 / 16)
        return cls(alpha=0.81 * root, beta=0.87 / root)

    @classmethod
    def decoder(cls, depth: int) -> DeepNorm:
        """The decoder of an encoder-decoder."""
        return cls(alpha=(3 * depth) ** 0.25, beta=(12 * depth) ** -0.25)

    def build(self, width: int, parts: int, norm: NormConfig, dropout: float) -> Wiring:
        return PostWired([norm.build(width) for _ in range(parts)], dropout, self.alpha)

    def temper(self, part: nn.Module) -> None:
        for name, layer in part.named_modules():
            if isinstance(layer, nn.Linear) and name.rpartition(".")[2] in ("value", "out", "gate", "up", "down"):
                with torch.no_grad():
                    layer.weight.mul_(self.beta)


class ResiDual(WiringConfig):
    """Two streams: x ← norm(x + part(x)) and r ← r + scale · part(x); at the end alpha · x + norm(r) (Xie et al. 2023).

    Post-norm's features with pre-norm's gradients. The second stream rides beside the first, in channels of its own.
    """

    kind: Literal["residual"] = "residual"
    scale: Positive = 1.0  # of what is added to the second stream
    alpha: Number = 1.0  # of the first stream at the end
    eps: Positive = 1e-7  # of the final norm

    def build(self, width: int, parts: int, norm: NormConfig, dropout: float) -> Wiring:
        return ResiDualWired([norm.build(width) for _ in range(parts)], dropout, self.scale)

    def ends(self, width: int, norm: NormConfig) -> Ends:
        return TwoStreams(LayerNorm(eps=self.eps).build(width), self.scale, self.alpha)


class Reversible(WiringConfig):
    """x ← x + part(norm(y)), then y ← y + next(norm(x)): two streams in turn, both of which begin as the embedding.

    Gomez et al. 2017; Kitaev et al. 2020, sec. 3. In training a block keeps its two streams and nothing that its parts
    compute inside; that is computed again backwards, with the same dropout. At the end of the stack stands the "mean"
    of both, as wide as the embedding, or both "beside" one another in twice the channels, as the authors of the
    Reformer have it; then a norm, if `final` says so.
    """

    kind: Literal["reversible"] = "reversible"
    joined: Literal["mean", "beside"] = "mean"  # the two streams at the end
    final: Flag = True

    def build(self, width: int, parts: int, norm: NormConfig, dropout: float) -> Wiring:
        return TurnsWired([norm.build(width) for _ in range(parts)], dropout)

    def ends(self, width: int, norm: NormConfig) -> Ends:
        return Both(norm.build(self.leaves(width)) if self.final else None, mean=self.joined == "mean")

    def leaves(self, width: int) -> int:
        return width if self.joined == "mean" else 2 * width


class Unrolled(WiringConfig):
    """x ← x + part(norm(x)), and the last part replaces the stream: x ← part(norm(x)) (Yu et al. 2023, CRATE).

    For blocks that are steps of an optimisation: the last one, `ista`, keeps what it was given by itself.
    """

    kind: Literal["unrolled"] = "unrolled"
    final: Flag = True

    def build(self, width: int, parts: int, norm: NormConfig, dropout: float) -> Wiring:
        return UnrolledWired([norm.build(width) for _ in range(parts)], dropout)

    def ends(self, width: int, norm: NormConfig) -> Ends:
        return Ends(norm.build(width) if self.final else None)


class Rescaled(WiringConfig):
    """x ← x + part(norm(x)) / 2^k, and after every `every`-th block x ← x / 2, k of them before this one; then a norm.

    So does RWKV in transformers, for half precision. All but the eps of a norm is as without; the last has its own.
    """

    kind: Literal["rescaled"] = "rescaled"
    every: Size | None = None  # blocks until the stream is halved again; None: never
    eps: Positive = 1e-5  # of the last norm
    block: Count = 0  # which one it is; a stack says so

    def at(self, block: int) -> WiringConfig:
        return self.model_copy(update={"block": block})

    def build(self, width: int, parts: int, norm: NormConfig, dropout: float) -> Wiring:
        norms = [norm.build(width) for _ in range(parts)]
        if self.every is None:
            return PreWired(norms, dropout)
        return RescaledWired(
            norms, dropout, 0.5 ** (self.block // self.every), halves=(self.block + 1) % self.every == 0
        )

    def ends(self, width: int, norm: NormConfig) -> Ends:
        return Ends(LayerNorm(eps=self.eps).build(width))


WIRINGS: tuple[type[WiringConfig], ...] = (
    PostNorm,
    PreNorm,
    Normed,
    Sandwich,
    Parallel,
    DeepNorm,
    ResiDual,
    Reversible,
    Unrolled,
    Rescaled,
)
AnyWiring = Annotated[WiringConfig, OneOf(lambda: WIRINGS)]
