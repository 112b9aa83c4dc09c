"""The feed-forward of one token by itself: plain or gated. Token by token it is two convolutions of width one."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Literal, TypeAlias, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...core.config import Flag, Share, Size
from ...core.contract import Mixer, MixerConfig, Reach, Where
from ..layers.dropout import Dropout
from ..layers.norms import AnyNorm, LayerNorm, RMSNorm

Activation: TypeAlias = Literal[
    "relu",
    "gelu",
    "gelu_tanh",
    "gelu_sigmoid",
    "gelu_clipped",
    "silu",
    "relu_squared",
    "relu6",
    "leaky_relu",
    "hardswish",
    "tanh",
    "sigmoid",
    "mish",
    "elu",
    "laplace",
    "identity",
]
Nothing: TypeAlias = "tuple[()]"


def activate(name: Activation, x: Tensor) -> Tensor:
    """The named activation."""
    match name:
        case "relu":
            return F.relu(x)
        case "gelu":
            return F.gelu(x)
        case "gelu_tanh":
            return F.gelu(x, approximate="tanh")
        case "gelu_sigmoid":  # x·σ(1.702 x): the quick form of CLIP
            return x * torch.sigmoid(1.702 * x)
        case "gelu_clipped":  # at most 10: 8-bit numbers reach no farther (Wu et al. 2020, arXiv 2004.09602)
            return F.gelu(x).clamp(max=10.0)
        case "silu":
            return F.silu(x)
        case "relu_squared":
            return F.relu(x).square()
        case "relu6":  # at most 6 (Howard et al. 2017)
            return F.relu6(x)
        case "leaky_relu":  # x / 100 below 0 (Maas et al. 2013)
            return F.leaky_relu(x)
        case "hardswish":  # x · relu6(x + 3) / 6 (Howard et al. 2019)
            return F.hardswish(x)
        case "tanh":
            return torch.tanh(x)
        case "sigmoid":
            return torch.sigmoid(x)
        case "mish":
            return F.mish(x)
        case "elu":
            return F.elu(x)
        case "laplace":  # the normal distribution whose curve is nearest to a squared ReLU (Ma et al. 2022, Mega)
            return 0.5 + 0.5 * torch.erf((x - 0.707107) / (0.282095 * math.sqrt(2)))
        case "identity":
            return x


class Positionwise(Mixer[Nothing]):
    """What a token makes of itself, and of nothing else."""

    reach = Reach(0, 0)

    @abstractmethod
    def alone(self, x: Tensor) -> Tensor:
        """Tokens, each by itself. [..., width] -> [..., width]"""

    def spec(self) -> Nothing:
        return ()

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        return self.alone(x), state


class PositionwiseConfig(MixerConfig):
    """How to build one."""

    @abstractmethod
    def build(self, width: int) -> Positionwise: ...


class FeedForward(Positionwise):
    """down( act( up x ) ): the position-wise network of Vaswani et al. 2017, eq. 2.

    `norm` normalises the hidden channels before `down` (SubLN, Wang et al. 2022).
    """

    class Config(PositionwiseConfig):
        kind: Literal["feedforward"] = "feedforward"
        hidden: Size | None = None  # channels inside; None: four times the width
        activation: Activation = "relu"
        bias: Flag = True
        dropout: Share = 0.0
        norm: AnyNorm | None = None  # of the hidden channels, before `down`

        def build(self, width: int) -> FeedForward:
            return FeedForward(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            others = (cls(activation=name, hidden=31) for name in get_args(Activation))
            return (cls(), *others, cls(bias=False, norm=LayerNorm(), dropout=0.5))

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        hidden = config.hidden or 4 * width
        self.activation = config.activation
        self.up = nn.Linear(width, hidden, bias=config.bias)
        self.norm = None if config.norm is None else config.norm.build(hidden)
        self.dropout = Dropout(config.dropout)
        self.down = nn.Linear(hidden, width, bias=config.bias)

    def alone(self, x: Tensor) -> Tensor:
        hidden = activate(self.activation, self.up(x))
        hidden = hidden if self.norm is None else self.norm(hidden)
        y: Tensor = self.down(self.dropout(hidden))
        return y


class Gated(Positionwise):
    """down( act( gate x ) ⊙ up x ): a gated linear unit as feed-forward (Shazeer 2020; SwiGLU with silu).

    `norm` normalises the hidden channels before `down` (BitNet b1.58).
    """

    class Config(PositionwiseConfig):
        kind: Literal["gated"] = "gated"
        hidden: Size | None = None  # channels inside; None: 8/3 of the width, as many weights as an ungated one
        activation: Activation = "silu"
        bias: Flag = False
        dropout: Share = 0.0
        norm: AnyNorm | None = None  # of the hidden channels, before `down`

        def build(self, width: int) -> Gated:
            return Gated(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return cls(), cls(hidden=31, activation="relu_squared", bias=True, norm=RMSNorm(), dropout=0.5)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        hidden = config.hidden or 8 * width // 3
        self.activation = config.activation
        self.gate = nn.Linear(width, hidden, bias=config.bias)
        self.up = nn.Linear(width, hidden, bias=config.bias)
        self.norm = None if config.norm is None else config.norm.build(hidden)
        self.dropout = Dropout(config.dropout)
        self.down = nn.Linear(hidden, width, bias=config.bias)

    def alone(self, x: Tensor) -> Tensor:
        hidden = activate(self.activation, self.gate(x)) * self.up(x)
        hidden = hidden if self.norm is None else self.norm(hidden)
        y: Tensor = self.down(self.dropout(hidden))
        return y


class Absent(Positionwise):
    """No feed-forward: a block is its mixer alone, with one norm (Mamba, gated attention units). Adds nothing."""

    class Config(PositionwiseConfig):
        kind: Literal["absent"] = "absent"

        def build(self, width: int) -> Absent:
            return Absent()

    def alone(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)
