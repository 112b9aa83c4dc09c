"""Disentangled attention of DeBERTa (He et al. 2021): content and relative position have projections of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from ..core.config import Config as Tree
from ..core.config import Flag, Size
from ..core.contract import MixerConfig, Where
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.stamps import Stamps
from ..core.state import Log, remember
from ..parts.attention.attend import attend, written_out
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.attention.sdpa import Term
from ..parts.layers.norms import AnyNorm, LayerNorm
from ..parts.masks import AnyMask, Causal, Whole, Window
from ..parts.positions.base import distinct, gaps


class RelativeEmbeddings(nn.Module):
    """One trained vector per relative position: code(k) = norm(table)[ slot(k) ].

    Without `buckets` a slot is k + distance, cut off at both ends. With them, distances up to half of the buckets have
    a slot each and farther ones share logarithmically wider slots:

        slot(k) = buckets + sign(k) · ( m + ⌈ log(|k|/m) / log((distance-1)/m) · (m-1) ⌉ ),   m = buckets / 2 < |k|
    """

    class Config(Tree):
        distance: Size = 512  # up to which distances are distinguished
        buckets: Size | None = None  # None: every distance has a slot
        norm: AnyNorm | None = None  # of the vectors

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if self.buckets is not None and not 2 <= self.buckets < 2 * (self.distance - 1):
                raise ValueError(
                    f"{self.buckets} buckets cannot tell distances up to {self.distance} apart; use at least 2, and a "
                    "distance of more than half of them + 1"
                )
            return self

        def build(self, width: int) -> RelativeEmbeddings:
            return RelativeEmbeddings(self, width)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.distance, self.buckets = config.distance, config.buckets
        self.table = nn.Parameter(torch.empty(2 * self.span, width))
        nn.init.normal_(self.table, std=0.02)
        self.norm = None if config.norm is None else config.norm.build(width)

    @property
    def span(self) -> int:
        """Slots on either side."""
        return self.buckets or self.distance

    @property
    def vectors(self) -> Tensor:
        """All slots. [S, D]"""
        table: Tensor = self.table if self.norm is None else self.norm(self.table)
        return table

    def slots(self, where: Stamps, seen: Stamps) -> Tensor:
        """The slot of every pair of query and key. [B|1, T, N]"""
        gap, index = distinct(gaps(where, seen), room=2 * (where.shape[1] + seen.shape[1]))
        return (self._bucket(gap) + self.span).clamp(0, 2 * self.span - 1)[index]

    def _bucket(self, gap: Tensor) -> Tensor:
        """Computed in float32 and rounded up, in the order of the authors' code: so the borders fall where its
        checkpoints learnt them.
        """
        if self.buckets is None:
            return gap
        half = self.buckets // 2
        most = torch.tensor((self.distance - 1) / half, device=gap.device).log()
        far = (gap.abs().clamp(min=half).float() / half).log() / most
        return torch.where(gap.abs() <= half, gap, gap.sign() * (half + (far * (half - 1)).ceil().long()))


class Disentangled(Headed[Log]):
    """Attention whose scores are sums of three products: content-content, content-position and position-content.

        score_ij = ( q_i·k_j + q_i·K_r[δ(i,j)] + k_j·Q_r[δ(i,j)] ) / √(s·d)

    with K_r, Q_r the vectors of all relative positions, projected like (or by the same matrices as) keys and queries,
    δ(i,j) the slot of i - j, and s the number of products. The paper writes δ(j,i) in the last one; the authors' code,
    and so every checkpoint, has δ(i,j). He et al. 2021. Costs O(n²·d) time over n tokens; remembers keys and values.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "He et al. 2021, DeBERTa: Decoding-enhanced BERT with Disentangled Attention"

        kind: Literal["disentangled"] = "disentangled"
        mask: AnyMask = Causal()
        position: RelativeEmbeddings.Config = RelativeEmbeddings.Config()
        content_to_position: Flag = True  # q_i·K_r
        position_to_content: Flag = True  # k_j·Q_r
        shared: Flag = True  # positions are projected by the matrices of queries and keys (DeBERTa v3), or by their own

        @model_validator(mode="after")
        def _some_term(self) -> Self:
            if not self.content_to_position and not self.position_to_content:
                raise ValueError(
                    "without content_to_position and position_to_content this is plain attention; use that"
                )
            return self

        def build(self, width: int) -> Disentangled:
            return Disentangled(self, width)

        @property
        def products(self) -> int:
            """How many a score adds up."""
            return 1 + self.content_to_position + self.position_to_content

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            near = RelativeEmbeddings.Config(distance=6)
            far = RelativeEmbeddings.Config(distance=20, buckets=8, norm=LayerNorm())
            return (
                *(cls(), cls(position=near, shared=False), cls(position=far, mask=Whole())),
                cls(position=far, kv_heads=2, bias=False, shared=False, position_to_content=False),
                cls(position=near, kv_heads=1, content_to_position=False, scale=0.3),
                cls(position=near, shared=False, content_to_position=False, mask=Window(back=3)),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.mask, self.reach = config.mask, config.mask.reach
        self.scale = (config.products * self.head_size) ** -0.5 if config.scale is None else config.scale
        self.position = config.position.build(width)
        self.to_position, self.from_position = config.content_to_position, config.position_to_content
        own = not config.shared
        inner, bias = self.heads * self.head_size, config.bias
        self.position_key = nn.Linear(width, inner, bias=bias) if own and self.to_position else None
        self.position_query = nn.Linear(width, inner, bias=bias) if own and self.from_position else None

    def spec(self) -> Spec:
        if not self.streams:
            return ()
        window = None if self.reach.back is None else Dim("window", self.reach.back)
        return Slot(((self.kv_heads, self.head_size),) * 2, Entries(each=1, cap=window), self.out.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        x = where.blank(x)
        query = self.queries(x)
        seen, state = remember(state, where, self.keys(x), self.values(x))
        key, value = seen.parts
        sight, bias = self.mask(where, seen), self._bias()
        self.weights(lambda: written_out(query, key, value, sight, bias=bias, scale=self.scale)[1])
        y = attend(query, key, value, sight, bias=bias, scale=self.scale, dropout=self.drop)
        return self.merge(y), state

    def _bias(self) -> Term:
        """What the positions add to the scaled scores; their projections are made once per call."""
        vectors = self.position.vectors[None]
        keys = self._by_heads(self.position_key, vectors, self.keys) if self.to_position else None
        queries = self._by_heads(self.position_query, vectors, self.queries) if self.from_position else None

        def term(query: Tensor, key: Tensor, where: Stamps, seen: Stamps) -> Tensor:
            slots = self.position.slots(where, seen)[:, None]  # [B|1, 1, T, N]
            parts = []
            if keys is not None:
                parts.append(_picked(torch.einsum("bthd,shd->bhts", query, keys), slots))
            if queries is not None:
                by_heads = key.repeat_interleave(self.heads // key.shape[2], 2)
                parts.append(_picked(torch.einsum("bnhd,shd->bhns", by_heads, queries), slots.mT).mT)
            return sum(parts[1:], parts[0]) * self.scale

        return term

    def _by_heads(self, own: nn.Linear | None, vectors: Tensor, shared: Callable[[Tensor], Tensor]) -> Tensor:
        """The vectors of the positions, projected. [1, S, D] -> [S, heads, head_size]"""
        if own is not None:
            projected: Tensor = own(vectors[0])
            return projected.view(-1, self.heads, self.head_size)
        some = shared(vectors)[0]
        return some.repeat_interleave(self.heads // some.shape[1], 1)


def _picked(products: Tensor, slots: Tensor) -> Tensor:
    """Of the products with all slots, the one that each pair has. [B, H, T, S], [B|1, 1, T, N] -> [B, H, T, N]"""
    return products.gather(-1, slots.expand(*products.shape[:3], -1))
