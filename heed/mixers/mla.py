"""Multi-head latent attention of DeepSeek-V2 (DeepSeek-AI 2024): the KV cache is one small latent vector per token."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ..core.config import Flag, Positive, Share, Size
from ..core.contract import Mixer, MixerConfig, Reach, Where
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.state import Log, Seen, remember
from ..parts.attention.attend import attend, written_out
from ..parts.layers.norms import AnyNorm, RMSNorm
from ..parts.look import Look
from ..parts.masks import Causal, Sight
from ..parts.positions import Rope

CAUSAL = Causal()


class LatentAttention(Mixer[Log]):
    """Causal attention whose keys and values are projected from one latent vector per token, which is all of the KV
    cache.

        c_j = norm(W_c x_j),   r_j = turn_j(W_r x_j),   k_j = [W_k c_j ; r_j],   v_j = W_v c_j
        y_i = W_o Σ_j softmax_j(q_i·k_j / √d) v_j,   q_i = [W_q z_i ; turn_i(W_t z_i)],   z_i = x_i or norm(W_d x_i)

    DeepSeek-AI 2024, DeepSeek-V2. Costs O(n²·d) time over n tokens; remembers c and r of every token. As q·(W_k c) is
    (W_kᵀ q)·c, few queries beside many keys are taken to the latents instead, which are never expanded (`absorbed`).
    """

    class Config(MixerConfig):
        paper: ClassVar[str] = "DeepSeek-AI 2024, DeepSeek-V2, sec. 2.1"

        kind: Literal["mla"] = "mla"
        heads: Size = 4
        rank: Size = 16  # channels of the latent
        query_rank: Size | None = None  # queries come from a latent of their own; None: straight from the stream
        plain: Size = 8  # channels per head of queries and keys that do not turn
        turned: Size = 4  # and that turn; all heads share those of the key
        value_size: Size | None = None  # channels per head of values; None: as plain
        bias: Flag = False  # of the projections to latents, and of the output
        norm: AnyNorm = RMSNorm()  # of latents
        position: Rope.Config = Rope.Config(layout="pairs")
        scale: Positive | None = None  # (plain + turned)^-1/2
        dropout: Share = 0.0  # of the weights

        def build(self, width: int) -> LatentAttention:
            return LatentAttention(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                cls(),
                cls(query_rank=5, bias=True, value_size=6, position=Rope.Config()),
                cls(rank=2, plain=8, scale=0.3),  # so small a latent is never worth expanding
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.reach = Reach(None, 0)
        self.heads, self.rank, self.turned, self.plain = config.heads, config.rank, config.turned, config.plain
        self.value_size = config.value_size or config.plain
        size = config.plain + config.turned
        self.scale = size**-0.5 if config.scale is None else config.scale
        self.dropout, self.weights = config.dropout, Look()
        self.position = config.position.build(config.heads, config.turned)
        query_rank = config.query_rank
        self.compress_query = None if query_rank is None else nn.Linear(width, query_rank, bias=config.bias)
        self.query_norm = None if query_rank is None else config.norm.build(query_rank)
        self.query = nn.Linear(query_rank or width, config.heads * size, bias=False)
        self.compress = nn.Linear(width, config.rank + config.turned, bias=config.bias)
        self.norm = config.norm.build(config.rank)
        self.expand = nn.Linear(config.rank, config.heads * (config.plain + self.value_size), bias=False)
        self.out = nn.Linear(config.heads * self.value_size, width, bias=config.bias)

    def spec(self) -> Spec:
        entry = Dim("(rank + turned)", self.rank + self.turned)
        return Slot(((entry,),), Entries(each=1), self.out.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        x = where.blank(x)
        query = self._queries(x, where)
        seen, state = remember(state, where, self._entries(x, where))
        sight = CAUSAL(where, seen)
        self.weights(lambda: written_out(query, *self._expanded(seen), sight, scale=self.scale)[1])
        form = self.absorbed if self._few(query.shape[1], seen.shape[1]) else self.expanded
        y: Tensor = self.out(form(query, seen, sight).flatten(2))
        return y, state

    def expanded(self, query: Tensor, seen: Seen, sight: Sight) -> Tensor:
        """The equation as it stands, over keys and values of every head. Queries [B, T, H, d]; gives [B, T, H, e]."""
        return attend(query, *self._expanded(seen), sight, scale=self.scale, dropout=self._drop)

    def absorbed(self, query: Tensor, seen: Seen, sight: Sight) -> Tensor:
        """The same over latents: the one key that all heads share, and the value but for its last projection."""
        up = self.expand.weight.view(self.heads, self.plain + self.value_size, self.rank)  # [H, p + e, r]
        plain, turned = torch.split(query, [self.plain, self.turned], -1)
        query = torch.cat((torch.einsum("bthp,hpr->bthr", plain, up[:, : self.plain]), turned), -1)
        entry = seen.parts[0].unsqueeze(2)  # [B, N, 1, r + t]
        if query.shape[1] == 1:  # one token: its heads are so many queries of one head
            visible, query = None if sight.whole else sight.pairs(1), query.transpose(1, 2)
            y = attend(query, entry, entry, visible, scale=self.scale, dropout=self._drop)
            y = sight.query.blank(y.transpose(1, 2))
        else:
            y = attend(query, entry, entry, sight, scale=self.scale, dropout=self._drop)
        return torch.einsum("bthr,her->bthe", y[..., : self.rank], up[:, self.plain :])

    def _few(self, queries: int, keys: int) -> bool:
        """Whether the absorbed form takes fewer multiplications, of every head. An edited layer is only called."""
        ends = self.rank * (self.plain + self.value_size)
        expanded = keys * ends + queries * keys * (self.plain + self.turned + self.value_size)
        plain = type(self.expand) is nn.Linear
        return plain and queries * ends + queries * keys * (2 * self.rank + self.turned) < expanded

    def _queries(self, x: Tensor, where: Where) -> Tensor:
        """[B, T, H, plain + turned]"""
        if self.compress_query is not None and self.query_norm is not None:
            x = self.query_norm(self.compress_query(x))
        query = self.query(x).view(*x.shape[:2], self.heads, -1)
        plain, turned = torch.split(query, [self.plain, self.turned], -1)
        return torch.cat((plain, self.position.turn(turned, where)), -1)

    def _entries(self, x: Tensor, where: Where) -> Tensor:
        """What is remembered. [B, T, rank + turned]"""
        latent, shared = torch.split(self.compress(x), [self.rank, self.turned], -1)
        return torch.cat((self.norm(latent), self.position.turn(shared.unsqueeze(2), where).squeeze(2)), -1)

    def _expanded(self, seen: Seen) -> tuple[Tensor, Tensor]:
        """Keys [B, N, H, plain + turned] and values [B, N, H, value_size]."""
        latent, shared = torch.split(seen.parts[0], [self.rank, self.turned], -1)
        both = self.expand(latent).view(*seen.shape, self.heads, -1)
        plain, value = torch.split(both, [self.plain, self.value_size], -1)
        return torch.cat((plain, shared.unsqueeze(2).expand(*plain.shape[:3], -1)), -1), value

    @property
    def _drop(self) -> float:
        return self.dropout if self.training else 0.0
