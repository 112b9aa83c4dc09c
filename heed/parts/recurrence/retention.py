"""What retentions have in common: their projections, a rotation, a norm over each head, and a gate."""

from __future__ import annotations

from typing import Annotated, Self

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Flag, OneOf, Size
from ...core.contract import Mixer, MixerConfig, Reach, Where
from ...core.spec import Dim
from ...core.state import S
from ..attention.multihead import per_head
from ..layers.norms import AnyNorm, LayerNorm
from ..look import Look
from ..positions import NoPosition, RelativeConfig, Rope

AnyTurn = Annotated[
    RelativeConfig, OneOf(lambda: (Rope.Config, NoPosition.Config))
]  # keys are not kept: they only turn


class RetentionBaseConfig(MixerConfig):
    """Sizes, and what stands around the recurrence."""

    heads: Size = 4
    head_size: Size | None = None  # of queries and keys; width / heads
    value_size: Size | None = None  # of values; as head_size
    bias: Flag = False
    position: AnyTurn = Rope.Config(layout="pairs")
    norm: AnyNorm = LayerNorm(gain=False)  # over each head; its gain would be W_o's

    @model_validator(mode="after")
    def _values_stay(self) -> Self:
        if isinstance(self.position, Rope.Config) and self.position.values:
            raise ValueError("values that turn would be added up at different angles; leave position.values off")
        return self

    def size(self, width: int) -> int:
        """Channels per head of queries and keys."""
        return self.head_size or per_head(width, self.heads, "; or set head_size")


class RetentionBase(Mixer[S]):
    """Queries, keys and values by heads; then  W_o ( silu(W_g x) ⊙ norm_h(y) )."""

    reach = Reach(None, 0)

    def __init__(self, config: RetentionBaseConfig, width: int) -> None:
        super().__init__()
        self.heads, self.head_size = Dim("heads", config.heads), Dim("head_size", config.size(width))
        self.value_size = Dim("value_size", config.value_size or self.head_size)
        self.scale = self.head_size**-0.5
        inner = self.heads * self.value_size
        self.query, self.key = (nn.Linear(width, self.heads * self.head_size, bias=config.bias) for _ in range(2))
        self.value, self.gate = (nn.Linear(width, inner, bias=config.bias) for _ in range(2))
        self.position = config.position.build(self.heads, self.head_size)
        self.norm = config.norm.build(self.value_size)
        self.out = nn.Linear(inner, width, bias=config.bias)
        self.weights = Look()

    @property
    def precision(self) -> torch.dtype:
        """Long sums need at least float32."""
        return torch.promote_types(self.out.weight.dtype, torch.float32)

    def asked(self, x: Tensor, where: Where) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys / √d and values, which are zeros at padding. [B, T, H, d] twice, [B, T, H, e]"""
        query, key, value = (
            project(x).unflatten(-1, (self.heads, -1)).to(self.precision)
            for project in (self.query, self.key, self.value)
        )
        key = where.blank(self.position.turn(key, where)) * self.scale
        return self.position.turn(query, where), key, where.blank(value)

    def merge(self, y: Tensor, x: Tensor) -> Tensor:
        """Each head normed, all of them gated by the token itself, and back into the stream. [B, T, H, e]"""
        normed = self.norm(y.to(x.dtype)).flatten(2)
        mixed: Tensor = self.out(F.silu(self.gate(x)) * normed)
        return mixed
