"""Multi-head subspace self-attention of CRATE (Yu et al. 2023): one projection serves as query, key and value."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ..core.config import Flag, Positive, Share, Size
from ..core.contract import Mixer, MixerConfig, Where
from ..core.errors import ConfigError
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.state import Log, Seen, remember
from ..parts.attention.attend import attend, written_out
from ..parts.attention.multihead import per_head
from ..parts.feedforward.ista import coding_rate, unit
from ..parts.layers.linear import matrix_of
from ..parts.look import Look
from ..parts.masks import AnyMask, Causal, Whole, Window


class Mssa(Mixer[Log]):
    """Attention of tokens projected onto one subspace per head; the projection is query, key and value at once.

        y_i = η Σ_h U_hᵀ Σ_j softmax_j(u_i·u_j / √p) u_j,   u = U_h x

    Yu et al. 2023 (CRATE): one step down the gradient of the coding rate R^c(Z) = Σ_h R(U_h Z), the bits that the
    tokens take in their subspaces. `rate` shows it, for each head. The authors' code has a free matrix in the place
    of U_hᵀ. Costs O(n²·d) time over n tokens with half the projections of attention; remembers u of every token, or of
    the last w: half of what attention remembers.
    """

    class Config(MixerConfig):
        paper: ClassVar[str] = "Yu et al. 2023, White-Box Transformers via Sparse Rate Reduction, arXiv 2306.01129"

        kind: Literal["mssa"] = "mssa"
        heads: Size = 4
        head_size: Size | None = None  # p; width / heads
        mask: AnyMask = Causal()
        out: Literal["transposed", "free", "none"] = "transposed"  # back by Uᵀ (the paper), by a matrix, or not at all
        bias: Flag = True  # of the free matrix
        step: Positive = 1.0  # η
        scale: Positive | None = None  # p^-1/2
        dropout: Share = 0.0  # of the weights

        def build(self, width: int) -> Mssa:
            return Mssa(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(out="free"), cls(heads=3, head_size=5, step=0.3, scale=0.7), cls(mask=Window(back=3))),
                *(cls(mask=Whole(), dropout=0.5), cls(out="free", bias=False, head_size=5), cls(heads=1, out="none")),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.heads, self.mask, self.step = Dim("heads", config.heads), config.mask, config.step
        self.head_size = Dim("head_size", config.head_size or per_head(width, config.heads, "; or set head_size"))
        self.scale = self.head_size**-0.5 if config.scale is None else config.scale
        self.dropout, self.reach = config.dropout, config.mask.reach
        inner = self.heads * self.head_size
        if config.out == "none" and inner != width:
            raise ConfigError(
                f"{config.heads} heads of {self.head_size} channels give {inner}, the stream has {width}; without a "
                'way back they must be equal: set out to "transposed" or "free"'
            )
        self.subspaces = nn.Linear(width, inner, bias=False)  # U
        self.out = nn.Linear(inner, width, bias=config.bias) if config.out == "free" else None
        self.returns = config.out == "transposed"
        self.weights, self.rate = Look(), Look()

    def spec(self) -> Spec:
        if not self.streams:
            return ()
        window = None if self.reach.back is None else Dim("window", self.reach.back)
        return Slot(((self.heads, self.head_size),), Entries(each=1, cap=window), self.subspaces.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        own = self.projected(where.blank(x))
        seen, state = remember(state, where, own)
        (near,) = seen.parts
        sight, drop = self.mask(where, seen), self.dropout if self.training else 0.0
        self.weights(lambda: written_out(own, near, near, sight, scale=self.scale)[1])
        self.rate(lambda: rates(seen))
        y = attend(own, near, near, sight, scale=self.scale, dropout=drop).flatten(2)
        return self.step * self._back(y), state

    def projected(self, x: Tensor) -> Tensor:
        """Tokens in their subspaces: u. [B, T, D] -> [B, T, heads, head_size]"""
        return torch.unflatten(self.subspaces(x), -1, (self.heads, self.head_size))

    def _back(self, y: Tensor) -> Tensor:
        if self.out is not None:
            free: Tensor = self.out(y)
            return free
        return y @ matrix_of(self.subspaces) if self.returns else y


def rates(seen: Seen) -> Tensor:
    """The coding rate of the directions of all that is seen, in each subspace. [B, N, H, p] -> [B, H]"""
    return coding_rate(unit(seen.parts[0]).transpose(1, 2), seen.real[:, None])
