"""Audio embeddings: from samples, or from a spectrogram, to a stream that has fewer frames than the audio.

Rows of different lengths are padded at their end like texts. What a convolution gives for a row does not depend on what
stands beside it: before each one the padding is zero, which is what it would see at the end of the row alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self, TypeAlias, cast

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Config, Flag, OneOf, Size
from ...core.contract import Reach, Where
from ...core.errors import ConfigError, InputError
from ..feedforward import Activation, activate
from ..layers.dropout import Dropout
from ..layers.norms import AnyNorm
from ..positions import AnyAdded, Learned
from .tokens import Embeddings

ConvolutionNorm: TypeAlias = Literal["group", "layer"]
EPS = 1e-5  # of the norms between convolutions


class FrameStep(NamedTuple):
    """A convolution that makes fewer frames of many."""

    kernel: int
    stride: int
    padding: int

    def frames(self, length: int) -> int:
        """⌊(n + 2·padding - kernel) / stride⌋ + 1"""
        return max(0, (length + 2 * self.padding - self.kernel) // self.stride + 1)


class SoundConfig(Config):
    """How to build the embeddings of audio."""

    @property
    @abstractmethod
    def strided(self) -> tuple[FrameStep, ...]:
        """The convolutions that make frames, in their order."""

    @property
    @abstractmethod
    def bands(self) -> int | None:
        """Numbers of a frame of a spectrogram; None: it takes bare samples."""

    @property
    def longest(self) -> int | None:
        """Frames that there are positions for; None: any number."""
        return None

    @abstractmethod
    def build(self, width: int, dropout: float) -> AudioEmbeddings:
        """The embeddings of a stream of this width."""


class AudioEmbeddings(Embeddings):
    """From a sound to a stream. A call is told which samples there are; the stream has the stamps of its frames."""

    reach: Reach = Reach(0, 0)  # of `place`, in frames

    @abstractmethod
    def frames(self, where: Where) -> Where:
        """The stamps of the frames that samples with these stamps become."""

    @abstractmethod
    def embed(self, sound: Tensor, where: Where) -> Tensor:
        """Bare frames of a sound, whose samples have these stamps. [B, N, ...] -> [B, T, D]"""

    def forward(self, sound: Tensor, where: Where) -> Tensor:
        return self.place(self.embed(sound, where), self.frames(where))


class Mels(AudioEmbeddings):
    """gelu(conv(gelu(conv x))) + position, the second convolution of stride 2 (Radford et al. 2022, Whisper).

    The sound is a log-mel spectrogram, [rows, frames, bins]; two of its frames become one of the stream.
    """

    class Config(SoundConfig):
        kind: Literal["mels"] = "mels"
        bins: Size = 80  # of the mel spectrogram
        position: AnyAdded | None = None

        @property
        def strided(self) -> tuple[FrameStep, ...]:
            return FrameStep(3, 1, 1), FrameStep(3, 2, 1)

        @property
        def bands(self) -> int | None:
            return self.bins

        @property
        def longest(self) -> int | None:
            return self.position.length if isinstance(self.position, Learned.Config) else None

        def build(self, width: int, dropout: float) -> Mels:
            return Mels(self, width, dropout)

    def __init__(self, config: Config, width: int, dropout: float) -> None:
        super().__init__()
        self.first = nn.Conv1d(config.bins, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.position = None if config.position is None else config.position.build(width)
        self.dropout = Dropout(dropout)

    def frames(self, where: Where) -> Where:
        return strided(where, kernel=3, stride=2, padding=1)

    def embed(self, sound: Tensor, where: Where) -> Tensor:
        bins = self.first.in_channels
        if sound.dim() != 3 or sound.shape[2] != bins or not sound.is_floating_point():
            raise InputError(
                f"a sound must be a log-mel spectrogram of shape [rows, frames, {bins}], got {sound.dtype} of shape "
                f"{tuple(sound.shape)}"
            )
        x = F.gelu(self.first(where.blank(sound).mT)).mT
        return F.gelu(self.second(where.blank(x).mT)).mT

    def place(self, x: Tensor, where: Where) -> Tensor:
        x = x if self.position is None else self.position(x, where.blank(where.position))
        placed: Tensor = self.dropout(x)
        return placed


class Waves(AudioEmbeddings):
    """x = W norm( convolutions of the samples ), then norm'( x + act(convolution of x) ) (Baevski et al. 2020).

    The sound is its samples, [rows, samples]. The second convolution tells a frame where it is by what is around it.
    """

    class Config(SoundConfig):
        kind: Literal["waves"] = "waves"
        channels: tuple[Size, ...] = (512,) * 7  # of each convolution
        kernels: tuple[Size, ...] = (10, 3, 3, 3, 3, 2, 2)  # samples or frames that each convolution sees
        strides: tuple[Size, ...] = (5, 2, 2, 2, 2, 2, 2)  # of each convolution
        bias: Flag = False  # of the convolutions
        between: ConvolutionNorm = "group"  # over the time after the first convolution, or over channels after each
        activation: Activation = "gelu"
        inner: AnyNorm | None = None  # of what the convolutions give
        around: Size = 128  # kernel of the convolution that tells the position
        groups: Size = 16  # of it
        norm: AnyNorm | None = None  # of the sum
        hides: Flag = False  # there is a vector that stands for hidden frames; only pre-training uses it

        @model_validator(mode="after")
        def _as_many(self) -> Self:
            if not self.channels or not len(self.channels) == len(self.kernels) == len(self.strides):
                raise ValueError(
                    f"channels, kernels and strides must say as much as each other, for one convolution at least; they "
                    f"have {len(self.channels)}, {len(self.kernels)} and {len(self.strides)} entries"
                )
            return self

        @property
        def strided(self) -> tuple[FrameStep, ...]:
            pairs = zip(self.kernels, self.strides, strict=True)
            return tuple(FrameStep(kernel, stride, 0) for kernel, stride in pairs)

        @property
        def bands(self) -> int | None:
            return None

        def build(self, width: int, dropout: float) -> Waves:
            return Waves(self, width, dropout)

    def __init__(self, config: Config, width: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_convolutions(config))
        self.inner = None if config.inner is None else config.inner.build(config.channels[-1])
        self.project = nn.Linear(config.channels[-1], width)
        self.around = Around(width, config.around, config.groups, config.activation)
        self.norm = None if config.norm is None else config.norm.build(width)
        self.hidden = nn.Parameter(torch.rand(width)) if config.hides else None
        self.dropout = Dropout(dropout)
        self.reach = Reach(config.around // 2, (config.around - 1) // 2)
        self.least = _least(config)

    def frames(self, where: Where) -> Where:
        for layer in self.layers:
            where = cast(Convolution, layer).frames(where)
        return where

    def embed(self, sound: Tensor, where: Where) -> Tensor:
        projected: Tensor = self.project(self.features(sound, where))
        return projected

    def features(self, sound: Tensor, where: Where) -> Tensor:
        """What the convolutions make of the samples, normed. [B, N] -> [B, T, C]"""
        if sound.dim() != 2 or not sound.is_floating_point():
            raise InputError(
                f"a sound must be samples of shape [rows, samples], got {sound.dtype} of shape {tuple(sound.shape)}"
            )
        if sound.shape[1] < self.least:
            raise InputError(f"a sound of {sound.shape[1]} samples is too short; one frame needs {self.least}")
        x = where.blank(sound)[:, None]
        for layer in self.layers:
            x, where = layer(x, where)
        normed: Tensor = x.mT if self.inner is None else self.inner(x.mT)
        return normed

    def place(self, x: Tensor, where: Where) -> Tensor:
        x = where.blank(x)
        x = x + self.around(x)
        placed: Tensor = self.dropout(x if self.norm is None else self.norm(x))
        return placed


class Convolution(nn.Module):
    """act( norm( convolution of x ) ), of whole windows only: n samples become ⌊(n - kernel) / stride⌋ + 1 frames."""

    def __init__(self, inner: nn.Conv1d, norm: OverTime | nn.LayerNorm | None, activation: Activation) -> None:
        super().__init__()
        self.inner, self.norm, self.activation = inner, norm, activation

    def frames(self, where: Where) -> Where:
        """The stamps of the frames."""
        return strided(where, self.inner.kernel_size[0], self.inner.stride[0])

    def forward(self, x: Tensor, where: Where) -> tuple[Tensor, Where]:
        """[B, C, N] -> [B, C', T]"""
        x, where = self.inner(x), self.frames(where)
        match self.norm:
            case OverTime():
                x = self.norm(x, where)
            case nn.LayerNorm():
                x = self.norm(x.mT).mT
        return activate(self.activation, x), where


class OverTime(nn.Module):
    """γ ⊙ (x - mean) / sqrt(var + eps) + β, mean and variance of each channel over the frames of its row.

    Wu & He 2018 with one channel per group. Padding does not count.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, where: Where) -> Tensor:
        """[B, C, T]"""
        if not where.span.padded:
            return F.group_norm(x, len(self.weight), self.weight, self.bias, EPS)
        real, count = where.real[:, None], where.real.sum(1).clamp(min=1)[:, None, None]
        mean = (x * real).sum(-1, keepdim=True) / count
        centred = (x - mean) * real
        variance = centred.square().sum(-1, keepdim=True) / count
        return self.weight[:, None] * centred * (variance + EPS).rsqrt() + self.bias[:, None]

    if TYPE_CHECKING:  # nn.Module's own __call__ is untyped

        def __call__(self, x: Tensor, where: Where) -> Tensor: ...


class Around(nn.Module):
    """act( convolution of x ), whose weights are w_k = g_k v_k / ‖v_k‖ for each k of its kernel (Mohamed et al. 2019).

    Frame t sees t - ⌊K/2⌋ to t + ⌊(K-1)/2⌋. The weights are held as gain and direction (Salimans & Kingma 2016).
    """

    def __init__(self, width: int, kernel: int, groups: int, activation: Activation) -> None:
        super().__init__()
        if width % groups:
            raise ConfigError(f"width {width} does not divide into {groups} groups; use a divisor of {width}")
        self.groups, self.activation = groups, activation
        self.direction = nn.Parameter(torch.empty(width, width // groups, kernel))
        nn.init.normal_(self.direction, std=2 * (kernel * width) ** -0.5)
        self.gain = nn.Parameter(self.direction.detach().norm(dim=(0, 1), keepdim=True))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D]"""
        weight = self.gain * (self.direction / self.direction.norm(dim=(0, 1), keepdim=True))
        y = F.conv1d(x.mT, weight, self.bias, padding=weight.shape[2] // 2, groups=self.groups)
        return activate(self.activation, y[..., : x.shape[1]].mT)


def strided(where: Where, kernel: int, stride: int, padding: int = 0) -> Where:
    """The stamps of what a convolution gives: n samples become ⌊(n + 2·padding - kernel) / stride⌋ + 1 frames."""
    if not where.span.run or where.span.first:
        raise InputError("a sound is heard whole, from its first sample on; give it the stamps of a run from 0")

    def shrunk(length: Tensor) -> Tensor:
        return ((length + 2 * padding - kernel).div(stride, rounding_mode="floor") + 1).clamp(min=0)

    rows, width = where.shape
    frames = int(shrunk(torch.tensor(width)))
    if not where.span.padded:
        return Where.run(rows, frames, device=where.order.device)
    return Where.ragged(shrunk(where.real.sum(1)), width=frames)


def _convolutions(config: Waves.Config) -> Iterator[Convolution]:
    before = 1
    for layer, (channels, kernel, stride) in enumerate(
        zip(config.channels, config.kernels, config.strides, strict=True)
    ):
        norm: OverTime | nn.LayerNorm | None = nn.LayerNorm(channels, eps=EPS) if config.between == "layer" else None
        if config.between == "group" and layer == 0:
            norm = OverTime(channels)
        inner = nn.Conv1d(before, channels, kernel, stride, bias=config.bias)
        nn.init.kaiming_normal_(inner.weight)
        yield Convolution(inner, norm, config.activation)
        before = channels


def _least(config: Waves.Config) -> int:
    """Samples that one frame is made of."""
    samples = 1
    for kernel, stride in zip(reversed(config.kernels), reversed(config.strides), strict=True):
        samples = (samples - 1) * stride + kernel
    return samples


SOUNDS: tuple[type[SoundConfig], ...] = (Mels.Config, Waves.Config)
AnySound = Annotated[SoundConfig, OneOf(lambda: SOUNDS)]
