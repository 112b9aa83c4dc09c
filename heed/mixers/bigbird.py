"""Block-sparse attention of BigBird (Zaheer et al. 2020): a window of blocks, random blocks and global blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal, Self, TypeAlias

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor

from ..core.config import Count, Flag, Seed, Size
from ..core.contract import MixerConfig, Reach, Where
from ..core.spec import Spec
from ..parts.attention.attend import attend, written_out
from ..parts.attention.block_gather import gathered
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.attention.sdpa import How, Pairs
from ..parts.layers.norms import RMSNorm

Nothing: TypeAlias = "tuple[()]"


class BigBird(Headed[Nothing]):
    """Tokens come in blocks; every block sees a window of blocks, some blocks at random, and the blocks at both ends.

        y_i = W_o Σ_j softmax_j(q_i·k_j / √d) v_j,   block(j) in window(i) ∪ random(i) ∪ ends;   all j for i in the ends

    Zaheer et al. 2020. The blocks of a row are counted over its own tokens, so the last one is its own, whatever else
    is in the batch. The random blocks are drawn for every head from the seed and the number of blocks, none of them
    seen already: the same in training and afterwards, in any batch and on any device. Give layers seeds of their own,
    and information spreads faster. Costs O(n·b·(w + r + 2g)·d) time over n tokens in blocks of b, and as many numbers
    of memory; looks ahead, so it remembers nothing.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Zaheer et al. 2020, Big Bird, arXiv 2007.14062"

        kind: Literal["bigbird"] = "bigbird"
        block: Size = 64  # tokens
        window: Size = 3  # blocks, the own one in the middle
        random: Count = 3  # blocks
        globals: Count = 1  # global blocks at either end, which see all and which all see
        seed: Seed = 0
        repeats_first: Flag = False  # no random blocks: the first counts 1 + random times (their code, when it answers)
        full: Count = 0  # in rows of at most so many blocks every token sees all

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if self.window % 2 == 0:
                raise ValueError(
                    f"a window of {self.window} blocks has no middle; use {self.window - 1} or {self.window + 1}"
                )
            if self.repeats_first and not self.globals:
                raise ValueError("repeats_first repeats a block that all see; let globals be 1 or more")
            return self

        def build(self, width: int) -> BigBird:
            return BigBird(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(block=1), cls(block=2, window=1, random=1, seed=3), cls(block=1, random=0, kv_heads=2)),
                *(cls(block=1, window=5, random=2, globals=0), cls(block=1, random=2, globals=2, kv_heads=1)),
                cls(block=1, random=1, repeats_first=True, full=7, bias=False),
                cls(block=3, window=1, random=1, heads=3, head_size=5, scale=0.3, head_norm=RMSNorm()),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.config = config
        self.reach = Reach(None, None)

    def spec(self) -> Spec:
        return ()

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        rank = None if where.span.run else _ranked(where)
        x = _sorted(where.blank(x), rank)
        blocks = self.cut(where)
        query, key, value = self.queries(x), self.keys(x), self.values(x)
        self.weights(lambda: _pairs_back(self._weights(query, key, value, blocks), rank))
        y = self._mixed(query, key, value, blocks).masked_fill(~blocks.there[..., None, None], 0)
        y = self.merge(y)
        return y if rank is None else y.take_along_dim(rank.argsort(1)[..., None], 1), state

    def cut(self, where: Where) -> Blocks:
        """The blocks of every row, over its own tokens."""
        return Blocks.of(where, self.config.block)

    def drawn(self, count: int) -> Tensor:
        """The random blocks of a row of so many; -1 = none. [H, m, r]"""
        config = self.config
        free = 0 if config.repeats_first else config.random
        return _drawn(config.seed, config.heads, free, config.window // 2, config.globals, count)

    def _mixed(self, query: Tensor, key: Tensor, value: Tensor, blocks: Blocks) -> Tensor:
        """Heads of all tokens, which come in order. [B, T, H, e]"""
        all_full = bool((blocks.counts <= self.config.full).all())
        y = torch.zeros_like(query) if all_full else self._ends(query, key, value, blocks)
        rows = (blocks.counts <= self.config.full).nonzero()[:, 0] if self.config.full else blocks.counts[:0]
        if not len(rows):
            return y
        few = min(self.config.full * blocks.size, query.shape[1])
        query, key, value = (tensor.index_select(0, rows)[:, :few] for tensor in (query, key, value))
        part = attend(query, key, value, blocks.there[rows, None, None, :few], scale=self.scale, dropout=self.drop)
        return y.index_copy(0, rows, F.pad(part, (0, 0, 0, 0, 0, y.shape[1] - few)))

    def _ends(self, query: Tensor, key: Tensor, value: Tensor, blocks: Blocks) -> Tensor:
        """The sparse rows, and in them the tokens with global attention."""
        y, ends = self._sparse(query, key, value, blocks), min(self.config.globals, blocks.many) * blocks.size
        if not ends:
            return y
        last = (blocks.counts[:, None] * blocks.size - ends).clamp(min=0)  # where the blocks of the end begin. [B, 1]
        column = torch.arange(query.shape[1], device=query.device)
        chosen = torch.cat((column[:ends].expand(len(query), -1), last + torch.arange(ends, device=query.device)), 1)
        asked = query.take_along_dim(chosen.clamp(max=len(column) - 1)[..., None, None], 1)
        visible = None if bool(blocks.there.all()) else blocks.there[:, None, None]
        far = attend(asked, key, value, visible, scale=self.scale, dropout=self.drop)
        first = min(ends, len(column))
        source = torch.where(column < ends, column, column - last + first)
        found = far.take_along_dim(source.clamp(0, far.shape[1] - 1)[..., None, None], 1)
        return torch.where(((column < ends) | (column >= last))[..., None, None], found, y)

    def _sparse(self, query: Tensor, key: Tensor, value: Tensor, blocks: Blocks) -> Tensor:
        """Every block beside the blocks that it sees, whose keys are gathered. [B, T, H, e]"""
        ids, valid = self._seen(blocks)  # [B, H, m, s]
        rows, heads, many, slots = ids.shape
        size = blocks.size

        def store(tensor: Tensor) -> Tensor:  # [B, T, K, d] -> [B·K·m, size, d]
            return blocks.cut(tensor).permute(0, 3, 1, 2, 4).flatten(0, 2)

        row = torch.arange(rows, device=ids.device)[:, None]
        group = row * self.kv_heads + torch.arange(heads, device=ids.device) // (heads // self.kv_heads)
        index = group[..., None, None] * many + ids
        there = blocks.cut(blocks.there).reshape(rows * many, size)
        visible = (there[row[..., None, None] * many + ids] & valid[..., None]).view(-1, 1, 1, slots * size)
        bias = None
        if self.config.repeats_first and self.config.random:
            times = torch.zeros(slots, dtype=query.dtype, device=query.device)
            times[0] = torch.tensor(1.0 + self.config.random, dtype=query.dtype).log()
            bias = times.repeat_interleave(size)[None, None, None]
        asked = blocks.cut(query).permute(0, 3, 1, 2, 4).flatten(0, 2)  # [B·H·m, size, d]
        how = How(None, self.scale, self.drop)
        y = gathered(asked, store(key), store(value), index.flatten(0, 2), Pairs(visible, bias), how)
        y = y.view(rows, heads, many, size, -1).permute(0, 2, 3, 1, 4).flatten(1, 2)
        return y[:, : query.shape[1]]

    def _seen(self, blocks: Blocks) -> tuple[Tensor, Tensor]:
        """Which blocks every block sees, the first of all in front, and which of these count. [B, H, m, s]"""
        reach, ends, counts = self.config.window // 2, self.config.globals, blocks.counts.tolist()
        tables = {
            count: torch.cat((_fixed(count, reach, ends).expand(self.heads, -1, -1), self.drawn(count)), -1)
            for count in set(counts)
        }
        slots = max(table.shape[2] for table in tables.values())
        tables = {
            count: F.pad(table, (0, slots - table.shape[2], 0, blocks.many - count), value=-1)
            for count, table in tables.items()
        }
        ids = torch.stack([tables[count] for count in counts]).to(blocks.counts.device)
        return ids.clamp(min=0), ids >= 0

    def _weights(self, query: Tensor, key: Tensor, value: Tensor, blocks: Blocks) -> Tensor:
        """The weights of all pairs, written out. [B, H, T, T]"""
        times = self.times(blocks)[:, :, : query.shape[1], : query.shape[1]].to(query.dtype)
        visible = (times > 0) & blocks.there[:, None, None] & blocks.there[:, None, :, None]
        return written_out(query, key, value, visible, bias=times.clamp(min=1).log(), scale=self.scale)[1]

    def times(self, blocks: Blocks) -> Tensor:
        """How often every token counts for every token, as their blocks have it. [B, H, m·size, m·size]"""
        ids, valid = self._seen(blocks)
        counted = valid.long()
        if self.config.repeats_first:
            counted[..., 0] *= 1 + self.config.random
        times = torch.zeros(*ids.shape[:3], blocks.many, dtype=torch.long, device=ids.device)
        times = times.scatter_add(3, ids, counted)
        place, counts, ends = torch.arange(blocks.many, device=ids.device), blocks.counts[:, None], self.config.globals
        wide = (place < ends) | (place >= counts - ends) | (counts <= self.config.full)  # [B, m]
        times = times.masked_fill(wide[:, None, :, None], 1)
        return times.repeat_interleave(blocks.size, 2).repeat_interleave(blocks.size, 3)


@dataclass(frozen=True, eq=False)
class Blocks:
    """How rows of tokens are cut into blocks."""

    size: int
    counts: Tensor  # [B] blocks of each row
    there: Tensor  # [B, T] True = a token that is seen

    @classmethod
    def of(cls, where: Where, size: int) -> Blocks:
        tokens, size = where.real.sum(1), max(1, min(size, where.shape[1]))  # a block is no longer than all tokens
        there = torch.arange(where.shape[1], device=tokens.device) < tokens[:, None]
        return cls(size, (tokens + size - 1) // size, there)

    @property
    def many(self) -> int:
        """Blocks of the widest row."""
        return -(-self.there.shape[1] // self.size)

    def cut(self, x: Tensor) -> Tensor:
        """[B, T, ...] -> [B, m, size, ...], filled up with zeros."""
        more = self.many * self.size - x.shape[1]
        x = F.pad(x, (*(0, 0) * (x.dim() - 2), 0, more)) if more else x
        return x.reshape(len(x), self.many, self.size, *x.shape[2:])


def _ranked(where: Where) -> Tensor:
    """The columns of each row as they were revealed, padding last. [B, T]"""
    return where.order.masked_fill(~where.real, torch.iinfo(torch.long).max).argsort(dim=1, stable=True)


def _sorted(x: Tensor, rank: Tensor | None) -> Tensor:
    return x if rank is None else x.take_along_dim(rank.reshape(*rank.shape, *(1,) * (x.dim() - 2)), 1)


def _pairs_back(weights: Tensor, rank: Tensor | None) -> Tensor:
    """Weights of sorted tokens, in the columns they came from. [B, H, T, T]"""
    if rank is None:
        return weights
    back = rank.argsort(1)
    return weights.take_along_dim(back[:, None, :, None], 2).take_along_dim(back[:, None, None], 3)


@lru_cache(maxsize=64)  # all layers and all steps ask for the same
def _fixed(count: int, reach: int, ends: int) -> Tensor:
    """What each of `count` blocks sees in any case: the ends, then its window; -1 = seen already. [1, m, s]"""
    reach, ends = min(reach, count), min(ends, count)
    with torch.inference_mode(False):  # a later call may want gradients
        place = torch.arange(count, device="cpu")[:, None]
        first = torch.arange(ends, device="cpu")
        last = torch.arange(count - ends, count, device="cpu")
        last = torch.where(last >= ends, last, -1)
        window = place + torch.arange(-reach, reach + 1, device="cpu")
        window = torch.where((window >= ends) & (window < count - ends), window, -1)
        return torch.cat((first.expand(count, -1), last.expand(count, -1), window), 1)[None]


@lru_cache(maxsize=64)
def _drawn(seed: int, heads: int, random: int, reach: int, ends: int, count: int) -> Tensor:
    """`random` different blocks for each of `count`, out of those that it does not see yet. -1 = none. [H, m, r]

    Floyd's way: the k-th draw is out of k more than the draws left over, and what was drawn already gives way to the
    last of these. So time and memory grow with what is drawn, not with what there is to draw from.
    """
    random, ends = min(random, count), min(ends, count)
    with torch.inference_mode(False):
        draw = torch.Generator().manual_seed((seed * 0x9E3779B1 + count) % 2**63)
        chance = torch.rand(heads, count, random, generator=draw, dtype=torch.float64, device="cpu")
        place = torch.arange(count, device="cpu")
        low, high = (place - reach).clamp(min=ends), (place + reach + 1).clamp(max=count - ends)
        skipped = (high - low).clamp(min=0)  # blocks of the window, which lie side by side
        room = max(0, count - 2 * ends) - skipped
        found = torch.full((heads, count, random), -1, device="cpu")
        for k in range(random):
            last = room - random + k
            block = (chance[..., k] * (last + 1)).long()
            block = torch.where((found[..., :k] == block[..., None]).any(-1), last, block)
            found[..., k] = torch.where(last >= 0, block, -1)
        free = found + ends
        free = free + torch.where(free >= low[:, None], skipped[:, None], 0)
        return torch.where(found >= 0, free, -1)
