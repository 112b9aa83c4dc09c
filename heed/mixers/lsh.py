"""LSH attention of Reformer (Kitaev, Kaiser & Levskaya 2020): tokens attend within buckets of a hash."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal, Self, TypeAlias

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor, nn

from ..core.config import Flag, Seed, Share, Size
from ..core.contract import Mixer, MixerConfig, Reach, Where
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.state import Log, remember
from ..parts.attention.lsh import Asking, bucketed, drawn, even, hashed
from ..parts.attention.multihead import per_head
from ..parts.attention.sdpa import masked_softmax
from ..parts.look import Look
from ..parts.segments.chunks import Chunks, Laid, Ring, around

Memory: TypeAlias = "tuple[Log, Log]"
TINY = 1e-6  # keeps a query of length zero from being divided by zero


class Lsh(Mixer[Memory]):
    """Every token asks the tokens before it that fall into its bucket, in at least one of several rounds of hashing.

        y_i = W_o Σ_j softmax_j( q_i·k_j ) v_j,   j in { j < i : h_r(q_i) = h_r(q_j) for some round r }
        q = W x,  k = q / |q|,  v = W_v x,   h_r(q) = argmax( [qR_r; -qR_r] ),  per head

    Kitaev et al. 2020, eq. 3 and appendix A. Queries and keys are one projection, so that both fall into the same
    bucket. A token sees itself only where there is no other. The rotations R are random, not trained: the seed tells
    them. With n tokens in m even buckets training costs O(n·n/m·d) time and memory in each round, by sorting: choose m
    in proportion to n; if all fall into one bucket, it costs O(n²·d). Remembers query and value of every token, and its
    buckets; decoding compares buckets with all, and reads those that match.

    With `chunks` buckets are cut into chunks of equal length as they stand in the sorted order, and a token looks at
    its own chunk and at neighbouring ones, whatever their buckets (the paper's eq. 5 and the authors' code): O(n·c·d)
    always, and a pair that meets in two rounds counts twice. But which tokens share a chunk depends on later tokens,
    too, so this form needs the whole sequence at once, even if `causal`.
    """

    class Config(MixerConfig):
        paper: ClassVar[str] = "Kitaev et al. 2020, Reformer: The Efficient Transformer, arXiv 2001.04451"

        kind: Literal["lsh"] = "lsh"
        heads: Size = 4
        head_size: Size | None = None  # width / heads
        buckets: Size | tuple[Size, ...] = 4  # even; several are factors, hashed each by itself
        rounds: Size = 2  # of hashing
        causal: Flag = True
        chunks: Chunks | None = None  # attend within chunks of the sorted tokens (their code); None: the whole bucket
        bias: Flag = False
        seed: Seed = 0  # of the rotations
        dropout: Share = 0.0  # of the weights

        @model_validator(mode="after")
        def _pairs(self) -> Self:
            even(self.buckets)
            return self

        def build(self, width: int) -> Lsh:
            return Lsh(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(buckets=2, rounds=1), cls(buckets=(2, 4), rounds=3, seed=5), cls(causal=False)),
                *(cls(heads=3, head_size=5, bias=True), cls(chunks=Chunks()), cls(chunks=Chunks(), causal=False)),
                cls(chunks=Chunks(length=2, before=2, after=1, multiple=4, filled=9), rounds=3, causal=False),
                cls(chunks=Chunks(length=3, before=0), rounds=1, buckets=(2, 2)),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        size = config.head_size or per_head(width, config.heads, "; or set head_size")
        self.heads, self.head_size = Dim("heads", config.heads), Dim("head_size", size)
        self.rounds, self.causal, self.chunks = Dim("rounds", config.rounds), config.causal, config.chunks
        self.dropout = config.dropout
        inner = self.heads * self.head_size
        self.query = nn.Linear(width, inner, bias=config.bias)  # of queries and keys
        self.value = nn.Linear(width, inner, bias=config.bias)
        self.out = nn.Linear(inner, width, bias=config.bias)
        self.weights = Look()
        self.factors, self.seed = even(config.buckets), config.seed
        self.reach = Reach(None, 0 if config.causal and config.chunks is None else None)

    def spec(self) -> Spec:
        if not self.streams:
            return ()
        each = Entries(each=1)
        vectors = Slot(((self.heads, self.head_size),) * 2, each, self.out.weight.dtype)
        return vectors, Slot(((self.heads, self.rounds),), each, torch.long)

    def forward(self, x: Tensor, where: Where, state: Memory | None = None) -> tuple[Tensor, Memory | None]:
        x = where.blank(x)
        query, value = (
            project(x).view(*x.shape[:2], self.heads, self.head_size) for project in (self.query, self.value)
        )
        bucket = self.buckets(query)
        if self.chunks is not None:
            return where.blank(self.out(self._chunked(query, value, bucket, where, self.chunks).flatten(2))), None
        vectors, buckets = (None, None) if state is None else state
        seen, kept = remember(vectors, where, query, value)
        hashes, kept_hashes = remember(buckets, where, bucket)
        ask = Asking(
            *(query, _unit(seen.parts[0]), seen.parts[1], bucket, hashes.parts[0], where, seen),
            causal=self.causal,
            buckets=prod(self.factors),
        )
        self.weights(lambda: _written_out(ask))
        y = where.blank(bucketed(ask, value, self.dropout if self.training else 0.0))
        return self.out(y.flatten(2)), None if kept is None or kept_hashes is None else (kept, kept_hashes)

    def buckets(self, query: Tensor) -> Tensor:
        """Which bucket every round of hashing puts a query into. [B, T, H, d] -> [B, T, H, rounds]"""
        shape = int(self.heads), int(self.head_size), int(self.rounds), sum(self.factors) // 2
        return hashed(query, drawn(self.seed, *shape), self.factors)

    def around(self, query: Tensor, key: Tensor, value: Tensor, laid: Laid) -> Ring:
        """Attention along the chunks of all rows and heads. [B·H, R·L, d] three times"""
        dropout = self.dropout if self.training else 0.0
        return around(query, key, value, laid, causal=self.causal, itself=False, dropout=dropout)

    def _chunked(self, query: Tensor, value: Tensor, bucket: Tensor, where: Where, chunks: Chunks) -> Tensor:
        """Every round sorted by bucket and cut into chunks, then all rounds merged. [B, T, H, d]"""
        laid = _Sorted.of(bucket, where, chunks.places(where.real.sum(1)), prod(self.factors))
        rings = (laid.places * self.rounds // chunks.length).repeat_interleave(self.heads)
        near = chunks.neighbours(laid.index.shape[2] // chunks.length, rings)
        asked = laid.taken(query)
        ring = self.around(asked, _unit(asked), laid.taken(value), Laid(laid.order.flatten(0, 1), near))
        self.weights(lambda: laid.spread(ring, where))
        return laid.merged(ring, value)


@dataclass(frozen=True, eq=False)
class _Sorted:
    """All rounds of a row one after the other, each sorted by bucket and in each bucket by order, empty places last."""

    column: Tensor  # [B, L] the columns of a row by order; T where a place is empty
    places: Tensor  # [B] how many of the L places a row has
    index: Tensor  # [B, H, R·L] round·L + place
    order: Tensor  # [B, H, R·L] -1 at empty places

    @classmethod
    def of(cls, bucket: Tensor, where: Where, places: Tensor, buckets: int) -> _Sorted:
        """Bucket numbers of every round, [B, T, H, R], up to `buckets`: the one of empty places, behind all others."""
        rows, tokens, heads, rounds = bucket.shape
        long = max(int(places.max()) if rows else 0, 1)
        last = where.order.masked_fill(~where.real, torch.iinfo(torch.long).max)
        column = F.pad(last.argsort(1), (0, max(0, long - tokens)), value=tokens)[:, :long]
        order = F.pad(where.order, (0, 1), value=-1).gather(1, column)  # [B, L]
        column = column.masked_fill(order < 0, tokens)
        place = torch.arange(long, device=column.device)
        code = F.pad(bucket, (0, 0, 0, 0, 0, 1), value=buckets).movedim(1, -1)  # [B, H, R, T + 1]
        code = code.take_along_dim(column[:, None, None], 3)
        code = code + (buckets + 1) * torch.arange(rounds, device=code.device)[:, None]
        beyond = (place >= places[:, None])[:, None, None]
        code = code.masked_fill(beyond, (buckets + 1) * rounds) * long + place
        index = code.flatten(2).argsort(-1)
        return cls(column, places, index, order[:, None].expand(-1, heads, -1).gather(2, index % long))

    def taken(self, vector: Tensor) -> Tensor:
        """Vectors as they stand here, zeros at empty places. [B, T, H, d] -> [B·H, R·L, d]"""
        column = self.column[:, None].expand(-1, vector.shape[2], -1).gather(2, self.index % self.column.shape[1])
        vector = F.pad(vector, (0, 0, 0, 0, 0, 1)).transpose(1, 2)
        return vector.take_along_dim(column[..., None], 2).flatten(0, 1)

    def shares(self, ring: Ring) -> Tensor:
        """What share of a token's weight each round has; none of a token that is alone in all. [B, H, R, L]"""
        back = self.index.argsort(-1)
        total = ring.total.view(back.shape).gather(2, back).view(*back.shape[:2], -1, self.column.shape[1])
        alone = total.isneginf().all(2, keepdim=True)
        return total.masked_fill(alone, 0).softmax(2).masked_fill(alone, 0)

    def merged(self, ring: Ring, own: Tensor) -> Tensor:
        """What all rounds give, by what they weighed; its own value for a token that is alone. [B, T, H, e]"""
        share, size = self.shares(ring), own.shape[-1]
        y = ring.y.view(*self.index.shape, size).take_along_dim(self.index.argsort(-1)[..., None], 2)
        y = (y.view(*share.shape, size) * share[..., None]).sum(2)  # [B, H, L, e]
        alone = (share == 0).all(2)[..., None].to(y.dtype)
        rank = self._rank(own.shape[1])[:, None, :, None]
        y, alone = (F.pad(x, (0, 0, 0, 1)).take_along_dim(rank, 2).transpose(1, 2) for x in (y, alone))
        return torch.where(alone > 0, own, y)

    def spread(self, ring: Ring, where: Where) -> Tensor:
        """The weights of all rounds by columns. [B, H, T, T]"""
        rows, tokens = where.shape
        long, heads = self.column.shape[1], self.index.shape[1]
        share = self.shares(ring).flatten(2).gather(2, self.index)  # [B, H, R·L]
        column = self.column[:, None].expand(-1, heads, -1).gather(2, self.index % long).flatten(0, 1)  # [S, R·L]
        weight = ring.weight.flatten(1, 2) * share.flatten(0, 1)[..., None]  # [S, R·L, k]
        key = column.unsqueeze(1).expand(-1, ring.key.shape[1], -1).gather(2, ring.key)  # [S, chunks, k]
        key = key.repeat_interleave(ring.weight.shape[2], 1)
        dense = weight.new_zeros(len(column), (tokens + 1) ** 2)
        dense = dense.scatter_add(1, (column[..., None] * (tokens + 1) + key).flatten(1), weight.flatten(1))
        dense = dense.view(rows, heads, tokens + 1, tokens + 1)[:, :, :tokens, :tokens]
        return _or_itself(dense, where.order, where.order)

    def _rank(self, tokens: int) -> Tensor:
        """The place of every column; L at padding. [B, T]"""
        rows, long = self.column.shape
        place = torch.arange(long, device=self.column.device).expand(rows, long)
        rank = torch.full((rows, tokens + 1), long, device=place.device)
        return rank.scatter(1, self.column, place)[:, :tokens]


def _unit(query: Tensor) -> Tensor:
    """Keys are queries of length one."""
    return query * (query.square().sum(-1, keepdim=True) + query.shape[-1] * TINY).rsqrt()


def _written_out(ask: Asking) -> Tensor:
    """The weights of every pair. [B, H, T, N]"""
    score = torch.einsum("bthd,bnhd->bhtn", ask.query, ask.key)
    return _or_itself(masked_softmax(score, ask.visible().movedim(3, 1)), ask.where.order, ask.seen.order)


def _or_itself(weight: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """A token that is alone looks at itself. [B, H, T, N]"""
    itself = (query[:, :, None] == key[:, None]) & (query >= 0)[:, :, None]
    alone = weight.sum(-1, keepdim=True) == 0
    return torch.where(alone & itself[:, None], 1.0, weight)
