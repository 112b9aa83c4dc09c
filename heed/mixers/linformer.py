"""Linformer attention (Wang et al. 2020): keys and values are projected along the sequence to a fixed length."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn

from ..core.config import Flag, Size
from ..core.contract import MixerConfig, Reach, Where
from ..core.errors import InputError
from ..core.spec import Spec
from ..parts.attention.attend import attend, written_out
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.layers.norms import RMSNorm

Nothing: TypeAlias = "tuple[()]"


class Linformer(Headed[Nothing]):
    """Attention to r learnt combinations of all keys and values instead of the keys and values themselves.

        y_i = W_o Σ_s softmax_s( q_i·k̃_s / √d ) ṽ_s,   k̃_s = Σ_j E_js k_j,   ṽ_s = Σ_j F_js v_j,   s = 1 .. r

    Wang et al. 2020. E and F have a row for each of `length` tokens, by their order; of a shorter text the first rows
    are used. All heads share them, unless `own` gives each its own; with `shared` F is E. Costs O(n·r·d) time and
    O(n·(r + d)) memory over n tokens. A mixture holds every token, so it looks ahead and remembers nothing.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Wang et al. 2020, Linformer: Self-Attention with Linear Complexity, arXiv 2006.04768"

        kind: Literal["linformer"] = "linformer"
        length: Size = 512  # of the longest text
        rank: Size = 64  # r
        own: Flag = False  # every key head has matrices of its own
        shared: Flag = False  # values are mixed as keys are

        def build(self, width: int) -> Linformer:
            return Linformer(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(length=12, rank=3, shared=True), cls(length=11, rank=5, own=True, kv_heads=2)),
                cls(length=20, rank=1, kv_heads=1, bias=False, own=True, shared=True),
                cls(length=16, rank=4, heads=3, head_size=5, scale=0.3, head_norm=RMSNorm()),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.length, self.reach = config.length, Reach(None, None)
        shape = (self.kv_heads, config.length, config.rank) if config.own else (config.length, config.rank)
        self.mix_keys = nn.Parameter(torch.empty(shape))  # E
        self.mix_values = None if config.shared else nn.Parameter(torch.empty(shape))  # F
        for mix in (self.mix_keys, self.mix_values):
            if mix is not None:
                nn.init.normal_(mix, std=config.rank**-0.5)  # distances are kept on average (Johnson & Lindenstrauss)

    def spec(self) -> Spec:
        return ()

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        self._must_fit(where)
        x = where.blank(x)
        query, key, value = self.queries(x), where.blank(self.keys(x)), where.blank(self.values(x))
        key = _mixed(key, self.mix_keys, where)
        value = _mixed(value, self.mix_keys if self.mix_values is None else self.mix_values, where)
        self.weights(lambda: written_out(query, key, value, scale=self.scale)[1])
        y = attend(query, key, value, scale=self.scale, dropout=self.drop)
        return self.merge(where.blank(y)), state

    def _must_fit(self, where: Where) -> None:
        if where.span.last >= self.length:
            raise InputError(
                f"a token of order {where.span.last} does not fit into a Linformer of length {self.length} (0 to "
                f"{self.length - 1}); cut the text, or give the config a greater length and train it"
            )


def _mixed(x: Tensor, mix: Tensor, where: Where) -> Tensor:
    """Each token with the weights of its order, summed up. [B, N, K, d], [(K,) length, r] -> [B, r, K, d]"""
    heads, span = "k" if mix.dim() == 3 else "", where.span
    if span.run:  # the same for all rows; padding is blank
        rows = mix[..., span.first : span.first + x.shape[1], :]
        return torch.einsum(f"bnkd,{heads}nr->brkd", x[:, : rows.shape[-2]], rows)
    rows = mix[..., where.order.clamp(min=0), :]  # [(K,) B, N, r]
    return torch.einsum(f"bnkd,{heads}bnr->brkd", x, rows)
