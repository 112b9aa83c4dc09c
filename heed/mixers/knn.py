"""Cross-attention of Unlimiformer (Bertsch et al. 2023): every head attends to its k nearest source tokens."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ..core.config import Size
from ..core.contract import NOTHING, Given, MixerConfig, Reach, Where
from ..core.errors import InputError
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.state import Log, Seen
from ..parts.attention.attend import attend, masked_softmax, written_out
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.layers.linear import matrix_of
from ..parts.masks import Whole

EVERYTHING = Whole()
BLOCK = 1024  # source tokens that are searched at once
SCORES, HELD = 1 << 20, 1 << 22  # scores of a search, and numbers of chosen source tokens, held at once


class KnnCross(Headed[Log]):
    """Cross-attention in which every head of every token attends to its k nearest source tokens.

        y_i = W_o Σ_{j ∈ top k} softmax_j(q_i·k_j / √d) v_j,   q = W_q x, k = W_k m, v = W_v m

    As q·(W_k m) = (W_kᵀ q)·m the search is among the source's own vectors m, and so is the mean that is taken: nothing
    of the source is projected, one copy of it serves all heads and all layers. It is exact; a source of at most k
    tokens gives what `cross` gives, which has the same weights, so that a trained one can be exchanged for this.

    Bertsch et al. 2023, Unlimiformer. Costs O(n·s·D) time per head over n tokens and s source tokens of width D, and
    O(k·D) memory per head and token at hand, whatever s; remembers the source, D numbers per token.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Bertsch et al. 2023, Unlimiformer, arXiv 2305.01625"

        kind: Literal["knn"] = "knn"
        nearest: Size = 16  # source tokens that a head looks at

        @model_validator(mode="after")
        def _linear(self) -> Self:
            bent = [name for name in ("head_norm", "clip") if getattr(self, name) is not None]
            if bent:
                raise ValueError(
                    f"keys are searched before they are projected, which {bent[0]} forbids; leave it unset"
                )
            return self

        def build(self, width: int) -> KnnCross:
            return KnnCross(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            few = cls(nearest=3)
            return (
                *(cls(), few, cls(nearest=1), cls(nearest=2, kv_heads=1), cls(nearest=3, kv_heads=2, bias=False)),
                cls(nearest=4, heads=3, head_size=5, scale=0.3, key_bias=False),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.nearest, self.width = config.nearest, width
        self.reach = Reach(0, 0)

    def spec(self) -> Spec:
        return Slot(((Dim("width", self.width),),), Entries(per_source=True), self.out.weight.dtype)

    def start(self, rows: int, given: Given = NOTHING) -> Log:
        source = self._source(given, rows)
        return Log(source.order, source.position, *source.parts)

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        seen, kept = (self._source(where.given, len(x)), None) if state is None else state.read()
        query = self.queries(where.blank(x))
        form = self.whole if seen.shape[1] <= self.nearest else self.searched
        self.weights(lambda: self._shown(query, where, seen))
        return self.merge(where.blank(form(query, where, seen))), kept

    def whole(self, query: Tensor, where: Where, seen: Seen) -> Tensor:
        """All of the source, as `cross` has it. Queries [B, T, H, d]; gives [B, T, H, d]."""
        source = seen.parts[0]
        sight = EVERYTHING(where, seen)
        return attend(query, self.keys(source), self.values(source), sight, scale=self.scale, dropout=self.drop)

    def searched(self, query: Tensor, where: Where, seen: Seen) -> Tensor:
        """The best of the source: found first, then looked at, some queries after the other."""
        source, real = seen.parts[0], seen.real
        query = self._absorbed(query)  # [B, T, H, D]
        chosen = self.search(query.detach(), source.detach(), real)  # [B, T, H, k]
        each = chosen.shape[0] * chosen.shape[2] * chosen.shape[3] * self.width
        step = max(1, HELD // max(1, each))
        again = torch.is_grad_enabled() and step < query.shape[1]
        made = []
        for first in range(0, query.shape[1], step):
            given = query[:, first : first + step], chosen[:, first : first + step], source, real
            made.append(checkpoint(self._attended, *given, use_reentrant=False) if again else self._attended(*given))
        return torch.cat(made, 1)

    @torch.no_grad()
    def search(self, query: Tensor, source: Tensor, real: Tensor) -> Tensor:
        """The source tokens with the largest scores: block by block, the best so far beside those of the next block.

        [B, T, H, D], [B, S, D] and [B, S] -> [B, T, H, k]
        """
        rows, heads = len(query), query.shape[2]
        block = max(self.nearest, BLOCK)
        step = max(1, SCORES // max(1, rows * heads * block))
        found = []
        for part in torch.split(query, step, 1):
            best = part.new_full((rows, part.shape[1], heads, 0), -torch.inf)
            index = torch.zeros(best.shape, dtype=torch.long, device=best.device)
            for first in range(0, source.shape[1], block):
                score = torch.einsum("bthd,bnd->bthn", part, source[:, first : first + block])
                score = score.masked_fill(~real[:, None, None, first : first + block], -torch.inf)
                top = score.topk(min(self.nearest, score.shape[-1]), -1)
                best, index = torch.cat((best, top.values), -1), torch.cat((index, top.indices + first), -1)
                best, keep = best.topk(min(self.nearest, best.shape[-1]), -1)
                index = index.gather(-1, keep)
            found.append(index)
        return torch.cat(found, 1)

    def _attended(self, query: Tensor, chosen: Tensor, source: Tensor, real: Tensor) -> Tensor:
        """Attention to the chosen source tokens. [B, t, H, D] and [B, t, H, k] -> [B, t, H, d]"""
        weight, near = self._weighed(query, chosen, source, real)
        weight = F.dropout(weight, self.drop) if self.drop else weight
        mean = self._grouped(torch.einsum("bthk,bthkd->bthd", weight, near))
        matrix = matrix_of(self.value).view(self.kv_heads, self.head_size, self.width)
        y = torch.einsum("btkgd,ked->btkge", mean, matrix)
        if self.value.bias is not None:
            total = self._grouped(weight.sum(-1, keepdim=True))  # 0 where all source tokens are masked
            y = y + total * self.value.bias.view(self.kv_heads, 1, self.head_size)
        return y.flatten(2, 3)

    def _weighed(self, query: Tensor, chosen: Tensor, source: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """The weights [B, t, H, k] of the chosen source tokens [B, t, H, k, D]."""
        rows = torch.arange(len(source), device=source.device)[:, None, None, None]
        near = source[rows, chosen]
        score = torch.einsum("bthd,bthkd->bthk", query, near)
        return masked_softmax(score, real[rows, chosen]), near

    def _absorbed(self, query: Tensor) -> Tensor:
        """W_kᵀ q, scaled: what is multiplied with the source. A bias of the key moves all scores alike, so it is left
        out. [B, T, H, d] -> [B, T, H, D]
        """
        matrix = matrix_of(self.key).view(self.kv_heads, self.head_size, self.width)
        return torch.einsum("btkgd,kdw->btkgw", self._grouped(query * self.scale), matrix).flatten(2, 3)

    def _grouped(self, x: Tensor) -> Tensor:
        """By the key head of each head. [B, T, H, *] -> [B, T, K, H/K, *]"""
        return x.reshape(*x.shape[:2], self.kv_heads, x.shape[2] // self.kv_heads, x.shape[3])

    def _shown(self, query: Tensor, where: Where, seen: Seen) -> Tensor:
        """The weights of all source tokens, most of them zero. [B, H, T, S]"""
        source = seen.parts[0]
        if seen.shape[1] <= self.nearest:
            return written_out(
                query, self.keys(source), self.values(source), EVERYTHING(where, seen), scale=self.scale
            )[1]
        query = self._absorbed(query)
        chosen = self.search(query, source, seen.real)
        weight, _ = self._weighed(query, chosen, source, seen.real)
        return weight.new_zeros(*weight.shape[:3], seen.shape[1]).scatter(-1, chosen, weight).transpose(1, 2)

    def _source(self, given: Given, rows: int) -> Seen:
        encoded = given.encoder_output
        if encoded is None:
            raise InputError(
                "cross-attention needs the encoder's output; pass where.give(encoder_output=...) or start(rows, given)"
            )
        source = encoded.parts[0]
        if source.shape[0] != rows or source.shape[-1] != self.width:
            raise InputError(
                f"{rows} rows of width {self.width} need an encoder output of [{rows}, tokens, {self.width}], not of "
                f"{list(source.shape)}"
            )
        return Seen.of(encoded, encoded.blank(source))
