"""Retention of RetNet (Sun et al. 2023): attention without softmax, with a fixed decay per head, as a recurrence."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, TypeAlias, cast

import torch
from torch import Tensor

from ..core.contract import MixerConfig, Where
from ..core.spec import Entries, Slot, Spec
from ..core.state import Cell, State
from ..parts.layers.norms import RMSNorm
from ..parts.positions import NoPosition, Rope
from ..parts.recurrence.decay import chunked, must_rise, weights
from ..parts.recurrence.divisors import AnyDivisor, Chunkwise, Made, Rooted, Summed, Undivided
from ..parts.recurrence.retention import RetentionBase, RetentionBaseConfig

Memory: TypeAlias = "tuple[State, ...]"  # the matrices, and what the divisor remembers


class Retention(RetentionBase[Memory]):
    """Linear attention with a fixed exponential decay per head: its state is one matrix per head.

        y_i = W_o ( silu(W_g x_i) ⊙ norm( Σ_{j <= i} γ^(i-j) (q_i·k_j / √d) v_j ) )
            = W_o ( silu(W_g x_i) ⊙ norm( q_i S_i ) ),   S_i = γ S_{i-1} + k_iᵀ v_i / √d

    with γ = 1 - 2^(-5-h) in head h = 0, 1, ...; q and k are turned by their position; the norm is over each head.

    Sun et al. 2023 (RetNet). Costs O(n·(c + d)·d) time over n tokens, c of them at a time, and O(d²) for one token
    more; remembers S. A token counts as one step of decay, wherever it stands. The authors' code divides what is
    normed, in each of its forms by something else: `divisor`, and norms without a mean: `norm`.
    """

    class Config(RetentionBaseConfig):
        paper: ClassVar[str] = "Sun et al. 2023, Retentive Network: A Successor to Transformer, arXiv 2307.08621"

        kind: Literal["retention"] = "retention"
        divisor: AnyDivisor = Undivided()

        def build(self, width: int) -> Retention:
            return Retention(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            authors = cls(norm=RMSNorm(gain=False), position=Rope.Config(layout="pairs", spread="inclusive"))
            divided = (Rooted(), Summed(), Chunkwise(chunk=1), Chunkwise(chunk=4), Chunkwise(chunk=30))
            return (
                *(cls(), cls(value_size=9, bias=True), cls(heads=3, head_size=4, position=NoPosition.Config())),
                *(authors.model_copy(update={"divisor": divisor}) for divisor in divided),
                cls(value_size=3, bias=True, divisor=Chunkwise(chunk=3), norm=RMSNorm()),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.divisor = config.divisor
        self.fade = tuple(math.log1p(-(2.0 ** (-5 - head))) for head in range(self.heads))  # log γ

    def spec(self) -> Spec:
        sizes = self.heads, self.head_size, self.value_size
        return Slot((sizes,), Entries(fixed=1), self.precision), self.divisor.spec(*sizes, self.precision)

    def forward(self, x: Tensor, where: Where, state: Memory | None = None) -> tuple[Tensor, Memory | None]:
        must_rise(where, "retention")
        x = where.blank(x)
        query, key, value = self.asked(x, where)
        fade = torch.tensor(self.fade, dtype=torch.float64, device=x.device)[None, None]
        cell, more = (None, None) if state is None else state
        divisor, kept = self.divisor.divide(Made(query, key, value, fade), where, more)
        past = None if cell is None else cast(Cell, cell).take()[0]
        # Padding stands behind all tokens of a row: only what is kept must not fade there.
        y, after = chunked(query, key, value, fade if past is None else where.blank(fade), past)
        self.weights(lambda: _shown(query, key, fade, divisor))
        y = y if divisor is None else y / divisor
        return self.merge(where.blank(y), x), None if kept is None else (Cell(after), kept)


def _shown(query: Tensor, key: Tensor, fade: Tensor, divisor: Tensor | None) -> Tensor:
    shown = weights(query, key, fade)
    return shown if divisor is None else shown / divisor.transpose(1, 2)
