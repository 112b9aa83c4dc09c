"""Codes that rotate queries and keys by their position, so that q_i·k_j depends on i - j only."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import model_validator
from torch import Tensor

from ...core.config import Flag, Fraction, Positive
from ...core.errors import ConfigError, InputError
from ...core.stamps import Stamps, one_row
from .base import How, Relates, RelativeConfig, must_fit
from .scaling import AnyScaling, Dynamic, Linear, Llama3, LongRope, Yarn
from .waves import Base, Spread, angles, frequencies, shared_waves

Layout = Literal["pairs", "halves"]


class Rotation(NamedTuple):
    """Two channels at a time are turned by the angle p·ω_c, and stretched by `amplitude`:

        y_a = x_a cos(p·ω_c) - x_b sin(p·ω_c),   y_b = x_b cos(p·ω_c) + x_a sin(p·ω_c)

    with (a, b) = (2c, 2c+1) for the layout "pairs" and (c, c + n/2) for "halves".
    """

    layout: Layout
    frequency: tuple[float, ...]
    amplitude: float = 1.0

    def __call__(self, x: Tensor, position: Tensor) -> Tensor:
        """`x` [B, T, H, n], every token turned by its position [B, T]."""
        if self.layout == "halves" or torch.compiler.is_compiling():  # a compiler fuses sums, but not complex numbers
            return self.written_out(x, position)
        return self._as_numbers(x, position)

    def written_out(self, x: Tensor, position: Tensor) -> Tensor:
        """The equation as it stands: x cos + (x with a and b swapped) (∓sin)."""
        cos, sin = shared_waves(position, (self, x.dtype), lambda place: self._waves(place, x.dtype))
        swapped = _paired(x).flip(-1).flatten(-2) if self.layout == "pairs" else x.roll(len(self.frequency), -1)
        return torch.addcmul(x * cos, swapped, sin)

    def _as_numbers(self, x: Tensor, position: Tensor) -> Tensor:
        """A pair is a complex number and turning it is one product, several times faster than sums over every second
        channel. There is no complex bfloat16: half precision is turned in float32 and rounded once.
        """
        kind = torch.promote_types(x.dtype, torch.complex64)
        (phase,) = shared_waves(position, (self, kind), lambda place: (self._phase(place).to(kind),))
        wide = _aligned(x.to(torch.promote_types(x.dtype, torch.float32)))
        return torch.view_as_real(torch.view_as_complex(_paired(wide)) * phase).flatten(-2).to(x.dtype)

    def _waves(self, position: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and ∓sin for every channel. [...] -> [..., 1, n] twice"""
        phase = self._phase(position)
        cos, sin = (phase.real, phase.real), (-phase.imag, phase.imag)
        if self.layout == "pairs":
            return torch.stack(cos, -1).flatten(-2).to(dtype), torch.stack(sin, -1).flatten(-2).to(dtype)
        return torch.cat(cos, -1).to(dtype), torch.cat(sin, -1).to(dtype)

    def _phase(self, position: Tensor) -> Tensor:
        """amplitude · e^(i·p·ω_c), with an axis for the heads. [...] -> [..., 1, n/2]"""
        angle = angles(position, self.frequency).unsqueeze(-2)
        return torch.polar(torch.full_like(angle, self.amplitude), angle)


class Rope(Relates):
    """Rotary position embedding (Su et al. 2021, eq. 34): channels are turned two by two by the angle p·base^(-2c/n).

    `layout` says which two: "pairs" is 2c and 2c+1 (RoFormer, GPT-J), "halves" is c and c + n/2 (Llama, GPT-NeoX).
    `share` turns only the first n = share·size channels (GPT-J, GPT-NeoX). `spread` "inclusive" is the one of RetNet
    and YOCO. `scaling` stretches the context.
    """

    class Config(RelativeConfig):
        """Which channels turn, and how fast."""

        how: ClassVar[How] = "rotates"
        paper: ClassVar[str] = "Su et al. 2021, arXiv 2104.09864"
        kind: Literal["rope"] = "rope"
        layout: Layout = "halves"  # which channels turn together: pairs (GPT-J) or halves (Llama)
        base: Base = 10000.0
        share: Fraction = 1.0  # of the channels that turn
        spread: Spread = "paper"  # how the frequencies end; inclusive: RetNet, YOCO
        scaling: AnyScaling | None = None  # stretches the context
        values: Flag = False  # values turn, too (an option of RoFormer)

        @model_validator(mode="after")
        def _as_in_the_paper(self) -> Self:
            if isinstance(self.scaling, Yarn | Dynamic) and self.spread != "paper":
                name = self.scaling.kind
                raise ValueError(f"{name} is defined for the frequencies of the paper only; leave spread at 'paper'")
            return self

        def build(self, heads: int, size: int) -> Rope:
            return Rope(self, size)

        @classmethod
        def samples(cls) -> tuple[Self, ...]:
            return (
                cls(),
                cls(layout="pairs", spread="inclusive"),
                cls(layout="pairs", share=2 / 3, base=100.0),
                cls(share=1 / 3, values=True),
                cls(scaling=Linear(factor=2.0)),
                cls(scaling=Llama3(factor=8.0, original=32)),
                cls(layout="pairs", scaling=Yarn(factor=4.0, original=16, fast=2.0)),
                cls(scaling=Yarn(factor=4.0, original=16, fast=2.0, slow=0.5, attention=1.25, whole=False)),
                cls(scaling=Dynamic(factor=2.0, original=2048)),
                cls(scaling=Dynamic(factor=2.0, original=32, length=2048)),
                cls(scaling=LongRope(short=(1.0, 1.5, 2.0), long=(2.0, 4.0, 8.0), factor=4.0, original=2048)),
                cls(scaling=LongRope(short=(1.0, 1.1, 1.2), long=(2.0, 4.0, 8.0), factor=4.0, original=16, length=64)),
            )

    def __init__(self, config: Config, size: int) -> None:
        super().__init__()
        self.turned, self.values = rotated_channels(size, config.share), config.values
        frequency, amplitude = frequencies(self.turned // 2, config.base, config.spread), 1.0
        self.covers: int | None = None
        if config.scaling is not None:
            frequency, amplitude = config.scaling.apply(frequency, config.base), config.scaling.amplitude
            self.covers = config.scaling.covers
        self.rotation = Rotation(config.layout, frequency, amplitude)

    def turn(self, x: Tensor, where: Stamps) -> Tensor:
        if self.covers is not None:
            what = f"a rotation scaled for {self.covers} positions"
            must_fit(where.blank(where.position), self.covers, what, "declare the length that you need: scaling.length")
        if self.turned == x.shape[-1]:
            return self.rotation(x, where.position)
        return torch.cat((self.rotation(x[..., : self.turned], where.position), x[..., self.turned :]), -1)

    def turn_value(self, x: Tensor, where: Stamps) -> Tensor:
        return self.turn(x, where) if self.values else x


class XPos(Relates):
    """xPos (Sun et al. 2022): a rotation whose products also fade with the distance.

        score_ij = Σ_c ζ_c^((i-j)/scale_base) · Re( q_c conj(k_c) e^(i(i-j)ω_c) ),   ζ_c = (2c + 0.4d) / 1.4d

    Only the product of the two scales means something; each alone grows without bound. So keys are remembered turned
    but unscaled, and `meet` scales both sides about a position in the middle of the queries at hand.
    """

    class Config(RelativeConfig):
        """How fast it turns and fades."""

        how: ClassVar[How] = "rotates"
        paper: ClassVar[str] = "Sun et al. 2022, arXiv 2212.10554"
        kind: Literal["xpos"] = "xpos"
        base: Base = 10000.0
        scale_base: Positive = 512.0  # distance over which products fade: the larger, the slower

        def build(self, heads: int, size: int) -> XPos:
            return XPos(self, size)

        @classmethod
        def samples(cls) -> tuple[Self, ...]:
            return cls(), cls(base=100.0, scale_base=32.0)

    def __init__(self, config: Config, size: int) -> None:
        super().__init__()
        turned = rotated_channels(size, 1.0)
        self.rotation = Rotation("pairs", frequencies(turned // 2, config.base))
        # ln ζ_c / scale_base: what the logarithm of the scale loses per position
        self.fading = tuple(math.log((2 * c + 0.4 * size) / (1.4 * size)) / config.scale_base for c in range(size // 2))

    def turn(self, x: Tensor, where: Stamps) -> Tensor:
        return self.rotation(x, where.position)

    def meet(self, query: Tensor, key: Tensor, where: Stamps, seen: Stamps) -> tuple[Tensor, Tensor]:
        if not query.shape[1] or not key.shape[1]:
            return query, key
        middle = self._middle(where, seen, query.dtype)
        up = self._scale(one_row(where.position)[0] - middle, query.dtype)
        down = self._scale(middle - one_row(seen.position)[0], key.dtype)
        return query * up, key * down

    def up(self, x: Tensor, where: Stamps) -> Tensor:
        """The authors' query: turned and scaled by ζ^(p/scale_base), p = position - ceil(tokens/2).

        For calls that start at position 0; `down` must get the same number of tokens.
        """
        return self.turn(x, where) * self._scale(self._shifted(where), x.dtype)

    def down(self, x: Tensor, where: Stamps) -> Tensor:
        """The authors' key: turned and scaled by ζ^(-p/scale_base)."""
        return self.turn(x, where) * self._scale(-self._shifted(where), x.dtype)

    def _shifted(self, where: Stamps) -> Tensor:
        return where.position + -where.shape[1] // 2  # // rounds down: floor(-L/2)

    def _scale(self, gap: Tensor, dtype: torch.dtype) -> Tensor:
        """ζ_c^(gap/scale_base), twice for the two channels of c. [B|1, N] -> [B|1, N, 1, d]

        Padding stands at position 0, however far that is from the rest: its scale is bounded, and keys that far back
        fade to zero.
        """
        return angles(gap, self.fading).clamp(max=_room(dtype)).exp().repeat_interleave(2, -1).unsqueeze(-2).to(dtype)

    def _middle(self, where: Stamps, seen: Stamps, dtype: torch.dtype) -> Tensor:
        """The middle of each row's queries, about which both sides are scaled. [B|1, 1]

        Refuses a call in which some key stands so far ahead of some query that their scale leaves the dtype. Even
        where a mask hides such a pair, an infinite score would make NaN of it.
        """
        first, last = _ends(where)
        asked = one_row(where.order)[0].amax(1, keepdim=True) >= 0  # a row without a token asks nothing
        span = (torch.maximum(last, _ends(seen)[1]) - first) * asked
        most = int(_room(dtype) / -self.fading[0])
        if bool((span > most).any()):
            raise InputError(
                f"the tokens of this call lie up to {int(span.max())} positions apart; in {dtype} xPos can scale at "
                f"most {most} without overflow. Cut the call into pieces of at most {most} tokens and carry the state "
                "from one to the next: the result is the same"
            )
        return (first + last) // 2


def rotated_channels(size: int, share: float) -> int:
    """How many channels of a head turn: share·size, which must be an even number."""
    turned = round(share * size)
    if turned < 1 or turned % 2 or abs(turned - share * size) > 1e-6 * size:  # a share is rounded
        possible = ", ".join(f"{n}/{size}" for n in range(2, size + 1, 2)[-4:])
        raise ConfigError(
            f"share {share:.6g} of a head of size {size} is {share * size:.6g} channels, but channels turn two by two; "
            + (f"use a share such as {possible}" if possible else "use a head size of at least 2")
        )
    return turned


def _paired(x: Tensor) -> Tensor:
    """Neighbouring channels two by two. [..., n] -> [..., n/2, 2]"""
    return x.reshape(*x.shape[:-1], x.shape[-1] // 2, 2)


def _aligned(x: Tensor) -> Tensor:
    """`x` itself if two neighbouring channels can be seen as one complex number, else a copy that can."""
    even = x.stride(-1) == 1 and not x.storage_offset() % 2 and not any(step % 2 for step in x.stride()[:-1])
    return x if even else x.clone(memory_format=torch.contiguous_format)


def _room(dtype: torch.dtype) -> float:
    """The greatest exponent of a scale: half of what the dtype can hold, the rest is for the scores themselves."""
    return math.log(torch.finfo(dtype).max) / 2


def _ends(stamps: Stamps) -> tuple[Tensor, Tensor]:
    """First and last position of each row's tokens, padding aside; 0 and 0 where there are none. [B|1, 1] each"""
    position, order = one_row(stamps.position, stamps.order)
    hidden = order < 0
    last = position.masked_fill(hidden, 0).amax(1, keepdim=True)
    return torch.minimum(
        position.masked_fill(hidden, torch.iinfo(position.dtype).max).amin(1, keepdim=True), last
    ), last
