"""Convolution along tokens (TDNN, Waibel et al. 1989), and depthwise separable (Kaiser, Gomez & Chollet 2018)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ..core.config import Flag, Size
from ..core.contract import MixerConfig, Where
from ..core.errors import ConfigError
from ..core.state import Log
from ..parts.convolution.sliding import Sliding, SlidingConfig, depthwise


class Convolution(Sliding):
    """A convolution along the tokens, causal or centred, with dilation and groups.

        y_i = b + Σ_k W_k x_(i - (K - 1 - k)·r)             causal; centred: x_(i + (k - K // 2)·r)

    Waibel et al. 1989; with dilation r (every r-th neighbour) van den Oord et al. 2016; with groups, channels in as
    many parts that do not mix (Krizhevsky et al. 2012). What lies outside the text is zero. Costs O(n·K·d² / groups)
    time over n tokens; remembers the last (K - 1)·r inputs.
    """

    class Config(SlidingConfig):
        paper: ClassVar[str] = "Waibel et al. 1989, Phoneme Recognition Using Time-Delay Neural Networks"

        kind: Literal["convolution"] = "convolution"
        dilation: Size = 1  # tokens from one tap to the next
        groups: Size = 1  # parts of the channels, each convolved alone
        bias: Flag = True

        def build(self, width: int) -> Convolution:
            return Convolution(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(kernel=1, bias=False), cls(kernel=4, groups=3), cls(kernel=3, dilation=2, groups=24)),
                *(cls(causal=False), cls(kernel=5, dilation=2, groups=2, causal=False), cls(kernel=30)),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width, config.dilation)
        if width % config.groups:
            near = [groups for groups in range(1, width + 1) if width % groups == 0]
            raise ConfigError(f"width {width} does not divide into {config.groups} groups; use one of {near}")
        self.taps = nn.Conv1d(width, width, config.kernel, 1, 0, config.dilation, config.groups, config.bias)
        nn.init.kaiming_uniform_(self.taps.weight, nonlinearity="linear")  # keeps the variance
        if self.taps.bias is not None:
            nn.init.zeros_(self.taps.bias)

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        line, state = self.line(where.blank(x), where, state)
        return line.take(self.taps(line.values.mT).mT), state


class Separable(Sliding):
    """A depthwise convolution along the tokens, then a pointwise one that mixes the channels.

        y_i = b + W Σ_k w_k ⊙ x_(i - (K - 1 - k)·r)         causal; centred: x_(i + (k - K // 2)·r)

    Sifre 2014; Chollet 2017; for sequences Kaiser et al. 2018. Costs O(n·(K + d)·d) time over n tokens instead of a
    convolution's O(n·K·d²); remembers the last (K - 1)·r inputs.
    """

    class Config(SlidingConfig):
        paper: ClassVar[str] = "Kaiser et al. 2018, Depthwise Separable Convolutions for Neural Machine Translation"

        kind: Literal["separable"] = "separable"
        dilation: Size = 1  # tokens from one tap to the next
        bias: Flag = True

        def build(self, width: int) -> Separable:
            return Separable(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(kernel=1, bias=False), cls(kernel=4, dilation=3), cls(kernel=14)),
                *(cls(causal=False), cls(kernel=3, dilation=2, causal=False)),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width, config.dilation)
        self.taps = nn.Parameter(torch.empty(width, config.kernel))
        nn.init.kaiming_uniform_(self.taps, nonlinearity="linear")  # keeps the variance
        self.out = nn.Linear(width, width, bias=config.bias)

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        line, state = self.line(where.blank(x), where, state)
        return self.out(line.take(depthwise(line.values, self.taps, self.dilation))), state
