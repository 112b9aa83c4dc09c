"""Codes that add a term to the scores: softmax_j( scale · q_i·k_j + term_ij )."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Flag, Size
from ...core.stamps import Stamps, one_row
from ..attention.sdpa import Term
from .added import must_be_even
from .base import How, Relates, RelativeConfig, distinct, gaps
from .waves import Base, angles, frequencies


class Alibi(Relates):
    """Attention with linear biases (Press et al. 2021): term_ij = -slope_h · |i - j|.

    For keys of the past this is the paper's slope·(j - i); keys ahead, where a mask shows them, fade alike.
    """

    class Config(RelativeConfig):
        """The paper's, or as Falcon was trained: (q·k + term) / √d with a term that bfloat16 rounded."""

        how: ClassVar[How] = "scores"
        paper: ClassVar[str] = "Press et al. 2021, arXiv 2108.12409"
        kind: Literal["alibi"] = "alibi"
        scaled: Flag = False  # the term is scaled like the scores, by size^-1/2 (Falcon)
        rounded: Flag = False  # slope, position and their product are rounded to bfloat16 (Falcon)

        def build(self, heads: int, size: int) -> Alibi:
            return Alibi(slopes(heads), size**-0.5 if self.scaled else 1.0, rounded=self.rounded)

        @classmethod
        def samples(cls) -> tuple[Self, ...]:
            return cls(), cls(scaled=True), cls(scaled=True, rounded=True)

    def __init__(self, slope: tuple[float, ...], scale: float = 1.0, *, rounded: bool = False) -> None:
        super().__init__()
        self.slope, self.scale, self.rounded = slope, scale, rounded

    @property
    def bias(self) -> Term:
        return self.term

    def term(self, query: Tensor, key: Tensor, where: Stamps, seen: Stamps) -> Tensor:
        """-scale · slope_h · |i - j|. [B|1, H, T, N]"""
        exact = torch.promote_types(query.dtype, torch.float32)  # a half-precision distance would be wrong from 257 on
        if self.rounded:
            here, there = (self._fallen(position).to(exact) for position in one_row(where.position, seen.position))
            return ((here[..., None] - there[..., None, :]).abs() * -self.scale).to(query.dtype)
        slope = self.scale * torch.tensor(self.slope, dtype=exact, device=query.device)[:, None, None]
        return (gaps(where, seen).abs().to(exact)[:, None] * -slope).to(query.dtype)

    def _fallen(self, position: Tensor) -> Tensor:
        """slope_h · p, rounded at every step: so it depends on the places themselves. [B|1, N] -> [B|1, H, N]"""
        slope = torch.tensor(self.slope, dtype=torch.bfloat16, device=position.device)
        return slope[:, None] * position.to(torch.bfloat16)[:, None]


class Buckets(Relates):
    """Relative position buckets (Raffel et al. 2020, T5): term_ij = table[bucket(j - i), h].

    Near distances have a bucket each, farther ones share logarithmically wider buckets, and everything from `distance`
    on shares the last. Looking `both_ways`, half of the buckets is for keys ahead (of an odd number one is not used);
    otherwise keys ahead are bucket 0.
    """

    class Config(RelativeConfig):
        """How many buckets, and how far they tell distances apart."""

        how: ClassVar[How] = "scores"
        paper: ClassVar[str] = "Raffel et al. 2020, arXiv 1910.10683"
        kind: Literal["buckets"] = "buckets"
        buckets: Size = 32  # of distances that are told apart
        distance: Size = 128  # from which on all are alike
        both_ways: Flag = False  # keys ahead have buckets of their own

        @model_validator(mode="after")
        def _fits(self) -> Self:
            fewest = 4 if self.both_ways else 2
            if self.buckets < fewest:
                way = "both ways" if self.both_ways else "back"
                raise ValueError(f"buckets is {self.buckets}; looking {way} needs at least {fewest} buckets")
            if self.distance <= self.exact:
                raise ValueError(
                    f"distance {self.distance} must be greater than {self.exact}, the distances that have a bucket each"
                )
            return self

        @property
        def each_way(self) -> int:
            """Buckets for one direction."""
            return self.buckets // 2 if self.both_ways else self.buckets

        @property
        def exact(self) -> int:
            """Distances that have a bucket of their own."""
            return self.each_way // 2

        def build(self, heads: int, size: int) -> Buckets:
            return Buckets(self, heads, size)

        @classmethod
        def samples(cls) -> tuple[Self, ...]:
            return cls(), cls(buckets=8, distance=20, both_ways=True), cls(buckets=7, distance=9, both_ways=True)

    def __init__(self, config: Config, heads: int, size: int) -> None:
        super().__init__()
        self.config = config
        self.table = nn.Parameter(torch.empty(config.buckets, heads))
        nn.init.normal_(self.table, std=(heads * size) ** -0.5)  # as T5 does

    @property
    def bias(self) -> Term:
        return self.term

    def bucket(self, gap: Tensor) -> Tensor:
        """The bucket of a key that stands `gap` = j - i after the query.

        The logarithm is taken in float32 and cut, in the order of T5's own code: so the borders fall where its
        checkpoints learnt them.
        """
        each, exact = self.config.each_way, self.config.exact
        far = gap.abs() if self.config.both_ways else (-gap).clamp(min=0)
        share = (far.clamp(min=exact).float() / exact).log() / math.log(self.config.distance / exact)
        coarse = (exact + (share * (each - exact)).long()).clamp(max=each - 1)
        ahead = (gap > 0) * each if self.config.both_ways else 0
        return torch.where(far < exact, far, coarse) + ahead

    def term(self, query: Tensor, key: Tensor, where: Stamps, seen: Stamps) -> Tensor:
        """table[bucket(j - i), h]. [B|1, H, T, N]"""
        most = self.config.distance  # from here on all is in the last bucket: few distances are to be told apart
        known = self.bucket(torch.arange(-most, most + 1, device=query.device))
        index = known[gaps(where, seen).neg().clamp(-most, most) + most]  # [B|1, T, N]
        return F.embedding(index, self.table).movedim(-1, 1).to(query.dtype)


class Relative(Relates):
    """The relative attention of Transformer-XL (Dai et al. 2019, sec. 3.3):

        score_ij = scale · ( (q_i + u)·k_j + (q_i + v)·W_r R(i - j) ),   R(k) = [ sin(k·ω) | cos(k·ω) ]

    with trained u and v per head and ω_c = base^(-2c/width). The term holds all but scale·q·k. Layers that share their
    code (`one_position`) share u and v; W_r is each layer's own.
    Distances above `clamp`, if given, count as `clamp`; looking `both_ways`, those below -`clamp` as -`clamp`.
    """

    class Config(RelativeConfig):
        """The waves of the distance."""

        how: ClassVar[How] = "scores"
        paper: ClassVar[str] = "Dai et al. 2019, arXiv 1901.02860"
        kind: Literal["relative"] = "relative"
        base: Base = 10000.0
        clamp: Size | None = None  # distances above it count as it
        both_ways: Flag = False  # keys ahead are clamped, too (XLNet)
        width: Size | None = None  # channels of R; None: heads · size

        def build(self, heads: int, size: int) -> Relative:
            return Relative(self, heads, size)

        @classmethod
        def samples(cls) -> tuple[Self, ...]:
            return cls(), cls(base=100.0, clamp=9, width=10), cls(clamp=3, both_ways=True)

    def __init__(self, config: Config, heads: int, size: int) -> None:
        super().__init__()
        width = config.width or heads * size
        must_be_even(width, "the waves of a distance", "heads · size" if config.width is None else "a width")
        self.clamp, self.both_ways = config.clamp, config.both_ways
        self.frequency = frequencies(width // 2, config.base)
        self.u = nn.Parameter(torch.empty(heads, size))
        self.v = nn.Parameter(torch.empty(heads, size))
        for start in (self.u, self.v):
            nn.init.normal_(start, std=0.02)
        self.distance = nn.Linear(width, heads * size, bias=False)  # W_r

    @property
    def bias(self) -> Term:
        return self.term

    def term(self, query: Tensor, key: Tensor, where: Stamps, seen: Stamps) -> Tensor:
        """scale · ( u·k_j + (q_i + v)·W_r R(i - j) ). [B, H, T, N]"""
        size = self.u.shape[1]
        groups = self.u.reshape(key.shape[2], -1, size)  # query heads by the key head they read
        content = torch.einsum("kgd,bnkd->bkgn", groups, key).flatten(1, 2).unsqueeze(2)  # [B, H, 1, N]

        return content * float(size**-0.5) + self.place(query, where, seen)

    def place(self, query: Tensor, where: Stamps, seen: Stamps) -> Tensor:
        """What of the term is about places alone, scale · (q_i + v)·W_r R(i - j). [B, H, T, N]"""
        gap, index = self._distances(where, seen)
        place = self._products(query + self.v, _waves(gap, self.frequency, query.dtype))  # [B, H, T, D]
        place = place.gather(-1, index[:, None].expand(*place.shape[:3], -1))
        return place * float(self.u.shape[1] ** -0.5)

    def beside(self, first: Relates) -> Relative:
        if isinstance(first, Relative):
            self.u, self.v = first.u, first.v
        return self

    def _products(self, query: Tensor, waves: Tensor) -> Tensor:
        """q_i·W_r R for every distance, in whichever order is cheaper. [B, T, H, d], [D, width] -> [B, H, T, D]"""
        heads, size = self.u.shape
        count, width = waves.shape
        vectors = query.shape[0] * query.shape[1] * heads
        # One token beside many distances (decoding): (q W_r) R never forms W_r R. A W_r that was edited from outside
        # (LoRA, quantised) is only called.
        few = vectors * width * (size + count) < count * width * width + vectors * size * count
        if few and type(self.distance) is nn.Linear:
            weight = self.distance.weight.reshape(heads, size, width)
            return torch.einsum("bthd,hdw->bhtw", query, weight) @ waves.mT
        code: Tensor = self.distance(waves)
        return torch.einsum("bthd,ghd->bhtg", query, code.reshape(count, heads, size))

    def _distances(self, where: Stamps, seen: Stamps) -> tuple[Tensor, Tensor]:
        """The distances that occur, and which of them every pair has. A pair with padding gets any: it is masked."""
        gap = gaps(where, seen)
        if self.clamp is not None:
            gap = gap.clamp(-self.clamp if self.both_ways else None, self.clamp)
        if where.span.padded or seen.span.padded:
            gap = gap.masked_fill(~(where.real[:, :, None] & seen.real[:, None, :]), 0)
        return distinct(gap, room=2 * (gap.shape[1] + gap.shape[2]))


def slopes(heads: int) -> tuple[float, ...]:
    """ALiBi's slopes: 2^(-8/H), 2^(-16/H), ..., 2^-8 if the number of heads H is a power of two.

    Otherwise those of the power of two below, then every second one of twice that many heads. MPT words it differently
    (the power of two above, every second one first) and arrives at the same slopes.
    """
    below = 2 ** (heads.bit_length() - 1)
    return (*_geometric(below), *_geometric(2 * below)[::2])[:heads]


def _geometric(count: int) -> tuple[float, ...]:
    return tuple(2.0 ** (-8 * (h + 1) / count) for h in range(count))


def _waves(gap: Tensor, frequency: tuple[float, ...], dtype: torch.dtype) -> Tensor:
    """R(k) = [ sin(k·ω) | cos(k·ω) ] of ascending distances. [D] -> [D, width]"""
    count = gap.numel()
    if count and int(gap[-1] - gap[0]) + 1 == count:
        return _run_of_waves(int(gap[0]), count, frequency, dtype, gap.device)
    angle = angles(gap, frequency)
    return torch.cat((angle.sin(), angle.cos()), -1).to(dtype)


@lru_cache(maxsize=4)  # all layers of a model ask for the same distances
def _run_of_waves(
    first: int, count: int, frequency: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():  # a later call may want gradients
        angle = angles(torch.arange(first, first + count, device=device), frequency)
        return torch.cat((angle.sin(), angle.cos()), -1).to(dtype)
