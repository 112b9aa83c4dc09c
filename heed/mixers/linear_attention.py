"""Linear attention (Katharopoulos et al. 2020): a feature map in the place of the softmax."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from ..core.config import Flag
from ..core.contract import MixerConfig, Reach, Where
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.state import Cell
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.layers.norms import RMSNorm
from ..parts.recurrence.decay import chunked, must_rise, weights


class LinearAttention(Headed[Cell]):
    """Attention with a feature map φ instead of the softmax: a recurrence over a state of fixed size.

        y_i = W_o Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j) = W_o φ(q_i)·S / φ(q_i)·z,   φ(x) = elu(x) + 1,   j <= i

    with S = Σ_j φ(k_j) v_jᵀ and z = Σ_j φ(k_j); or, both ways, over all j. Katharopoulos et al. 2020. Costs
    O(n·(c + d)·d) time over n tokens, c of them at a time, and O(d²) for one token more; remembers S and z.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Katharopoulos et al. 2020, Transformers are RNNs, arXiv 2006.16236"

        kind: Literal["linear_attention"] = "linear_attention"
        causal: Flag = True  # or both ways

        @model_validator(mode="after")
        def _possible(self) -> Self:
            if self.dropout:
                raise ValueError("linear attention never holds its weights, so none can be dropped; leave dropout at 0")
            if self.scale is not None:
                raise ValueError("linear attention has no scale: its quotient would not know it; leave scale unset")
            return self

        def build(self, width: int) -> LinearAttention:
            return LinearAttention(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(causal=False), cls(kv_heads=2, bias=False), cls(kv_heads=1, causal=False)),
                cls(heads=3, head_size=5, head_norm=RMSNorm(), norm=RMSNorm(), clip=0.5),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.reach = Reach(None, 0 if config.causal else None)

    @property
    def precision(self) -> torch.dtype:
        """Long sums need at least float32."""
        return torch.promote_types(self.out.weight.dtype, torch.float32)

    def spec(self) -> Spec:
        if not self.streams:
            return ()
        both = Dim("(head_size + 1)", self.head_size + 1)  # S, and z as one more column
        return Slot(((self.kv_heads, self.head_size, both),), Entries(fixed=1), self.precision)

    def forward(self, x: Tensor, where: Where, state: Cell | None = None) -> tuple[Tensor, Cell | None]:
        if self.streams:
            must_rise(where, "linear attention")
        x = where.blank(x)
        query, key = _feature(self.queries(x).to(self.precision)), _feature(self.keys(x).to(self.precision))
        key, value = where.blank(key), self.values(x).to(self.precision)
        value = torch.cat((value, value.new_ones(*value.shape[:3], 1)), -1)
        if self.streams:
            y, after = chunked(query, key, value, None, None if state is None else state.take()[0])
        else:
            after = torch.einsum("bnkd,bnke->bkde", key, value)
            grouped = query.view(*query.shape[:2], self.kv_heads, -1, self.head_size)
            y = torch.einsum("btkgd,bkde->btkge", grouped, after).flatten(2, 3)
        total = y[..., -1:]
        whole = total.masked_fill(total == 0, 1.0)  # a token that sees nothing gets zeros
        self.weights(lambda: self._shown(query, key) / whole.transpose(1, 2))
        made = self.merge(where.blank(y[..., :-1] / whole).to(x.dtype))
        return made, None if state is None else Cell(after)

    def _shown(self, query: Tensor, key: Tensor) -> Tensor:
        if self.streams:
            return weights(query, key)
        return torch.einsum("bthd,bnhd->bhtn", query, key.repeat_interleave(self.heads // self.kv_heads, 2))


def _feature(x: Tensor) -> Tensor:
    """elu(x) + 1, which is e^x below 0; as a sum it would lose the digits of small features."""
    return x.clamp(max=0).exp() + x.relu()
