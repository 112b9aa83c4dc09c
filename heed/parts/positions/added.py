"""Codes that are added to the input: x_t + code(p), p the position of token t.

`Learned` and `Sinusoid` are what models use. `Unit`, `Integer` and `Binary` are the first ideas one has, kept for
comparison: each shows one thing that a good code must do better.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from ...core.config import Count, Size
from ...core.errors import ConfigError
from .base import AddedConfig, Adds, must_fit
from .waves import Base, Spread, angles, frequencies


class Learned(Adds):
    """One trained vector per position: code(p) = table[p + offset] (Gehring et al. 2017).

    `offset` puts rows before that of position 0, as checkpoints of BART, OPT and torchscale have them (2). They are
    those of the positions -offset to -1, which no text has; RoBERTa places padding at -1.
    """

    class Config(AddedConfig):
        """How many positions there are, and how many rows come before them."""

        paper: ClassVar[str] = "Gehring et al. 2017, arXiv 1705.03122"
        kind: Literal["learned"] = "learned"
        length: Size  # positions there are
        offset: Count = 0  # rows of the table before that of position 0 (BART, OPT: 2)

        def build(self, width: int) -> Learned:
            return Learned(self, width)

        @classmethod
        def samples(cls) -> tuple[Self, ...]:
            return cls(length=96), cls(length=96, offset=2)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.longest = self.length = config.length
        self.offset = config.offset
        self.table = nn.Parameter(torch.empty(config.length + config.offset, width))
        nn.init.normal_(self.table, std=0.02)  # small beside the tokens, as in BERT and GPT-2

    def code(self, position: Tensor) -> Tensor:
        remedy = "give the config a greater length and train it, or use a code without a table (sinusoid, rope, alibi)"
        must_fit(position, self.length, f"a learned table of length {self.length}", remedy, lowest=-self.offset)
        return nn.functional.embedding(position + self.offset, self.table)


class Sinusoid(Adds):
    """Waves of geometric frequencies: sin(p·ω_c) and cos(p·ω_c) for c = 0 .. width/2-1 (Vaswani et al. 2017, sec. 3.5).

    `layout`: "interleaved" puts the two side by side, channels 2c and 2c+1 (the paper); "concatenated" puts all sines
    before all cosines (tensor2tensor, fairseq, Marian). `spread` says how the frequencies end, see `frequencies`;
    `offset` is added to every position (fairseq counts from the padding id + 1, which is 2).
    """

    class Config(AddedConfig):
        """Layout and frequencies."""

        paper: ClassVar[str] = "Vaswani et al. 2017, arXiv 1706.03762"
        kind: Literal["sinusoid"] = "sinusoid"
        layout: Literal["interleaved", "concatenated"] = "interleaved"  # sines beside cosines, or before them
        spread: Spread = "paper"  # how the frequencies end
        base: Base = 10000.0
        offset: Count = 0  # added to every position (fairseq: 2)

        def build(self, width: int) -> Sinusoid:
            return Sinusoid(self, width)

        @classmethod
        def samples(cls) -> tuple[Self, ...]:
            return cls(), cls(layout="concatenated", spread="inclusive", base=1000.0, offset=2)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        must_be_even(width, "sinusoids", "a width")
        self.interleaved, self.offset = config.layout == "interleaved", config.offset
        self.frequency = frequencies(width // 2, config.base, config.spread)

    def code(self, position: Tensor) -> Tensor:
        angle = angles(position + self.offset, self.frequency)
        if self.interleaved:
            return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)
        return torch.cat((angle.sin(), angle.cos()), -1)


class Unit(Adds):
    """The place as a share of the length, in every channel: p / (length - 1), from 0 to 1.

    One step means something else in every length, and all channels say the same.
    """

    class Config(AddedConfig):
        """The length that is scaled to 1."""

        kind: Literal["unit"] = "unit"
        length: Size  # tokens that are scaled to 1

        def build(self, width: int) -> Unit:
            return Unit(self, width)

        @classmethod
        def samples(cls) -> tuple[Self, ...]:
            return (cls(length=96),)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.longest = self.length = config.length
        self.width = width

    def code(self, position: Tensor) -> Tensor:
        must_fit(position, self.length, f"a unit code of length {self.length}", "give the config a greater length")
        return in_every_channel(position.double() / max(self.length - 1, 1), self.width)


class Integer(Adds):
    """The bare number, in every channel: p. It soon drowns the token it is added to."""

    class Config(AddedConfig):
        """Nothing to choose."""

        kind: Literal["integer"] = "integer"

        def build(self, width: int) -> Integer:
            return Integer(width)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def code(self, position: Tensor) -> Tensor:
        return in_every_channel(position.double(), self.width)


class Binary(Adds):
    """The bits of the number, the lowest in channel 0: floor(p / 2^c) mod 2.

    Bounded and distinct, with channels that alternate ever more slowly; sinusoids make that smooth.
    """

    class Config(AddedConfig):
        """Nothing to choose."""

        kind: Literal["binary"] = "binary"

        def build(self, width: int) -> Binary:
            return Binary(width)

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def code(self, position: Tensor) -> Tensor:
        must_fit(position, 2 ** min(self.width, 63), f"{self.width} bits", "use a greater width")
        bit = torch.arange(self.width, device=position.device).clamp(max=63)  # bits from 63 on are 0 in a position
        return (position[..., None] >> bit & 1).double()


def in_every_channel(number: Tensor, width: int) -> Tensor:
    """[B, T] -> [B, T, width]"""
    return number[..., None].expand(*number.shape, width)


def must_be_even(channels: int, what: str, name: str) -> None:
    """Raise unless the channels come in pairs."""
    if channels % 2 or channels < 1:
        raise ConfigError(
            f"{what} come in pairs, one sine and one cosine, but {channels} is odd; use {name} of "
            f"{max(channels - 1, 2)} or {channels + 1}"
        )
