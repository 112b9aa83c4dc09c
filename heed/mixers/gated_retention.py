"""Gated retention of YOCO (Sun et al. 2024): retention whose decay depends on the token."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from ..core.config import Positive
from ..core.contract import MixerConfig, Where
from ..core.spec import Entries, Slot, Spec
from ..core.state import Cell
from ..parts.layers.norms import RMSNorm
from ..parts.positions import NoPosition, Rope
from ..parts.recurrence.decay import chunked, must_rise, weights
from ..parts.recurrence.retention import RetentionBase, RetentionBaseConfig


class GatedRetention(RetentionBase[Cell]):
    """Retention with a data-dependent decay: a linear recurrence whose decay every token and head predicts.

        y_i = W_o ( silu(W_g x_i) ⊙ norm( q_i S_i ) ),   S_i = γ_i S_{i-1} + k_iᵀ v_i / √d,   γ_i = σ(w_γ·x_i)^(1/τ)

    q and k are turned by their position; the norm is over each head. Sun et al. 2024 (YOCO, sec. 3.1). Costs
    O(n·(c + d)·d) time over n tokens, c of them at a time, and O(d²) for one token more; remembers S. The authors' code
    norms without a mean: `norm`.
    """

    class Config(RetentionBaseConfig):
        paper: ClassVar[str] = "Sun et al. 2024, You Only Cache Once, arXiv 2405.05254"

        kind: Literal["gated_retention"] = "gated_retention"
        temperature: Positive = 16.0  # τ: the larger, the slower tokens fade

        def build(self, width: int) -> GatedRetention:
            return GatedRetention(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(value_size=9, bias=True, temperature=0.5), cls(heads=3, head_size=4, norm=RMSNorm())),
                cls(norm=RMSNorm(gain=False), position=Rope.Config(layout="pairs", spread="inclusive")),
                cls(position=NoPosition.Config(), temperature=1.0),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.temperature = config.temperature
        self.fade = nn.Linear(width, self.heads, bias=config.bias)  # w_γ

    def spec(self) -> Spec:
        return Slot(((self.heads, self.head_size, self.value_size),), Entries(fixed=1), self.precision)

    def forward(self, x: Tensor, where: Where, state: Cell | None = None) -> tuple[Tensor, Cell | None]:
        must_rise(where, "gated retention")
        x = where.blank(x)
        query, key, value = self.asked(x, where)
        fade = where.blank(F.logsigmoid(self.fade(x).to(self.precision)) / self.temperature)  # log γ [B, T, H]
        y, after = chunked(query, key, value, fade, None if state is None else state.take()[0])
        self.weights(lambda: weights(query, key, fade))
        return self.merge(where.blank(y), x), None if state is None else Cell(after)
