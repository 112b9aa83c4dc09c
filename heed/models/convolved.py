"""A block with a convolution beside it, so that the first layer knows its neighbourhood (DeBERTa v2)."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator
from torch import Tensor, nn

from ..core.config import Config as Tree
from ..core.config import Size
from ..core.contract import Reach, Where
from ..core.errors import ConfigError
from ..parts.feedforward import Activation, activate
from ..parts.layers.norms import NormConfig
from .block import Block, States


class Convolved(Block):
    """x ← norm( block(x) + act( conv(x) ) ), where `conv` sees kernel // 2 tokens to either side (He et al. 2021)."""

    class Config(Tree):
        kernel: Size = 3  # tokens that it sees
        groups: Size = 1  # parts of the channels, each convolved alone
        activation: Activation = "tanh"

        @model_validator(mode="after")
        def _odd(self) -> Self:
            if self.kernel % 2 == 0:
                raise ValueError(f"a kernel of {self.kernel} has no middle; use an odd one")
            return self

    def __init__(self, block: Block, config: Config, width: int, norm: NormConfig) -> None:
        super().__init__(block.mixer, block.cross, block.feedforward, block.wiring)
        if width % config.groups:
            raise ConfigError(f"width {width} does not divide into {config.groups} groups of a convolution")
        far = config.kernel // 2
        self.activation = config.activation
        self.convolution = nn.Conv1d(width, width, config.kernel, padding=far, groups=config.groups)
        self.norm = norm.build(width)
        self.reach = self.reach.beside(Reach(far, far))

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        y, state = super().forward(x, where, state)
        near = self.wiring.dropout(self.convolution(where.blank(x).mT).mT)
        return self.norm(y + activate(self.activation, near)), state
