"""Modern, typed, keyword-only, with a protocol for positions and a frozen configuration."""
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol, final

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel


class MaskKind(Enum):
    NONE = auto()
    CAUSAL = auto()


class Positions(Protocol):
    def __call__(self, x: Tensor, /) -> Tensor: ...


class Output(NamedTuple):
    hidden: Tensor
    weights: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSpec:
    width: int
    heads: int
    mask: MaskKind = MaskKind.CAUSAL
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by {self.heads} heads")

    @property
    def head_width(self) -> int:
        return self.width // self.heads


@final
class Attention(nn.Module):
    """Self-attention after a spec."""

    LAYOUT: Final = "b h t d"

    def __init__(self, spec: AttentionSpec, /, *, positions: Positions | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.positions = positions
        self.project = nn.ModuleDict({name: nn.Linear(spec.width, spec.width, bias=False) for name in "qkvo"})

    def forward(self, hidden: Tensor, /) -> Output:
        q, k, v = (self._heads(self.project[name](hidden)) for name in "qkv")
        match self.positions:
            case None:
                pass
            case turn:
                q, k = turn(q), turn(k)
        p = self.spec.dropout if self.training else 0.0
        with sdpa_kernel(SDPBackend.MATH):
            y = nn.functional.scaled_dot_product_attention(
                q, k, v, dropout_p=p, is_causal=self.spec.mask is MaskKind.CAUSAL
            )
        return Output(self.project["o"](y.transpose(1, 2).flatten(2)))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.spec.heads, self.spec.head_width)).transpose(1, 2)
