"""Involution (Li et al. 2021) along a sequence: every token generates a kernel that the channels of a group share."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from ..core.config import Size
from ..core.contract import MixerConfig, Where
from ..core.errors import ConfigError
from ..core.state import Log
from ..parts.convolution.sliding import Sliding, SlidingConfig, dynamic
from ..parts.layers.norms import AnyNorm, LayerNorm, RMSNorm
from ..parts.look import Look


class Involution(Sliding):
    """A depthwise convolution whose kernel every token generates from itself; the channels of a group share it.

        y_ic = Σ_k H_g(c)(x_i)_k x_(i - (K - 1 - k), c),   H(x) = W₁ relu( norm( W₀ x ) ) + b

    Li et al. 2021, along one axis instead of two (`parts/convolution/involution.py` is over planes). Where a dynamic
    convolution weighs by a softmax what it has projected, this weighs the stream itself, by any number. Centred kernels
    see x_(i + k - K // 2). Costs O(n·(K + (d + K·d / group) / reduction)·d) time over n tokens; remembers the
    last K - 1 inputs.
    """

    class Config(SlidingConfig):
        paper: ClassVar[str] = "Li et al. 2021, Involution: Inverting the Inherence of Convolution, arXiv 2103.06255"

        kind: Literal["involution"] = "involution"
        kernel: Size = 7
        group: Size | None = None  # channels that share a kernel; None: all
        reduction: Size = 4  # of the channels that kernels are made from
        norm: AnyNorm = LayerNorm()  # of what kernels are made from

        def build(self, width: int) -> Involution:
            return Involution(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(kernel=1), cls(kernel=4, group=8, reduction=1), cls(kernel=30, group=1, norm=RMSNorm())),
                *(cls(kernel=3, causal=False), cls(kernel=9, group=4, causal=False)),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        group, narrow = config.group or width, width // config.reduction
        if width % group:
            raise ConfigError(f"{width} channels do not divide into groups of {group}; set group to a divisor")
        if not narrow:
            raise ConfigError(f"a reduction of {config.reduction} leaves nothing of {width} channels")
        self.groups = width // group
        self.reduce = nn.Linear(width, narrow, bias=False)
        self.norm = config.norm.build(narrow)
        self.spread = nn.Linear(narrow, self.groups * config.kernel)
        self.kernels = Look()

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        x = where.blank(x)
        line, state = self.line(x, where, state)
        narrow = self.reduce(x)
        narrow = F.relu(self.norm(narrow))
        kernels = self.spread(narrow).unflatten(2, (self.groups, self.kernel))  # [B, T, G, K]
        self.kernels(lambda: kernels)
        return line.take(dynamic(line.values, line.spread(kernels))), state
