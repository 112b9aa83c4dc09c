"""Scaled dot-product attention, fused: torch's kernel (SDPA) over everything, or block by block along a band.

The kernel cannot cap its scores. Capped ones are computed plainly, a block of queries at a time, so that only a few of
them are held at once; for the gradient each block is computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from ...core.contract import Where
from ...core.errors import InputError
from ...core.stamps import Stamps
from ..masks import Sight

Term: TypeAlias = Callable[[Tensor, Tensor, Stamps, Stamps], Tensor]  # (query, key, their stamps) -> [B|1, H|1, T, N]
ALL = slice(None)
HELD = 1 << 18  # capped scores held at once: as many as stay in a core's cache
BLOCK = 64  # queries per block of a band: small ones waste fewer pairs, but more gradients of one key are added up
LEAN = 32  # the same where nothing is learnt
PASS = 1 << 22  # numbers that a call of the kernel gives where nothing is learnt: memory that is used again is quicker


@dataclass(frozen=True, eq=False)
class How:
    """What is done to the scores (times, plus, at most), and what share of the weights is dropped."""

    bias: Tensor | Term | None
    scale: float
    dropout: float = 0.0
    cap: float | None = None
    score: Term | None = None  # the scores themselves, where they are no scaled dot products

    def capped(self, score: Tensor) -> Tensor:
        """cap · tanh(score / cap): as it is near zero, never beyond ±cap."""
        return score if self.cap is None else self.cap * torch.tanh(score / self.cap)

    def added(self, query: Tensor, key: Tensor, sight: Sight | Tensor | None) -> Tensor | None:
        """The bias of these queries and keys; with a score of pairs, that score and the bias."""
        if self.score is None and (self.bias is None or isinstance(self.bias, Tensor)):
            return self.bias
        if not isinstance(sight, Sight):
            raise InputError(
                "a bias or a score that is computed from positions needs stamped tokens; pass sight=mask(where, seen)"
            )
        met = (query, key, sight.query, sight.key)
        bias = self.bias if self.bias is None or isinstance(self.bias, Tensor) else self.bias(*met)
        if self.score is None:
            return bias
        score = self.capped(self.score(*met))
        return score if bias is None else score + bias


@dataclass(frozen=True, eq=False)
class Pairs:
    """Who sees whom, written out where it must be, and what is added to their scores. [B|1, H|1, T, N]"""

    visible: Tensor | None = None
    added: Tensor | None = None
    triangle: bool = False  # the plain causal triangle, instead of the two

    @property
    def mask(self) -> Tensor | None:
        """Both in one, as the kernel takes it."""
        if self.visible is None or self.added is None:
            return self.visible if self.added is None else self.added
        return self.added.masked_fill(~self.visible, float("-inf"))

    def offset(self, dtype: torch.dtype) -> Tensor | None:
        """Both in one, as what is added: -inf where nothing is seen."""
        if self.visible is None or self.added is not None:
            return self.mask
        return torch.zeros_like(self.visible, dtype=dtype).masked_fill(~self.visible, float("-inf"))

    def cut(self, rows: slice, begin: int, end: int, device: torch.device) -> Pairs:
        """Of some rows, and of the queries begin .. end-1."""

        def part(pairs: Tensor | None) -> Tensor | None:
            if pairs is None:
                return None
            pairs = pairs[rows] if pairs.shape[0] > 1 else pairs
            return pairs[:, :, begin:end] if pairs.shape[2] > 1 else pairs

        if self.triangle:
            order = torch.arange(end, device=device)
            return Pairs((order <= order[begin:, None])[None, None])
        return Pairs(part(self.visible), part(self.added))


def whole(query: Tensor, key: Tensor, value: Tensor, sight: Sight | Tensor | None, how: How) -> Tensor:
    """All queries beside all keys, told as little about the mask as the spans of the tokens allow."""
    added = how.added(query, key, sight)
    if not isinstance(sight, Sight):
        return kernel(query, key, value, Pairs(sight, added), how)
    triangle = added is None and sight.triangle
    visible = None if triangle or sight.whole else sight.shown(query.shape[2])
    return kernel(query, key, value, Pairs(visible, added, triangle), how)


def banded(query: Tensor, key: Tensor, value: Tensor, sight: Sight, how: How) -> Tensor:
    """A mask of finite reach: every block of queries beside just the keys it can reach.

    The first queries, whose reach sticks out at the front, and the last, which do not fill a block, are called by
    themselves. In between all blocks of a row are the rows of one call, and their keys are overlapping views.
    """
    band, heads = Band.of(sight), query.shape[2]
    shared = band.cut.alike(sight, band.back, heads) if band.alike(sight) else None
    learnt, each = torch.is_grad_enabled(), max(1, query.shape[0] * heads * value.shape[3])
    step = max(band.size, band.end - band.begin if learnt else PASS // each // band.size * band.size)
    made = None if learnt else query.new_empty(*query.shape[:3], value.shape[3])
    pieces = []
    for first, last in pairwise((0, *range(band.begin, band.end, step), band.end, query.shape[1])):
        if first == last:
            continue
        low, high = band.near(first, last)
        near = Sight(sight.mask, sight.query.columns(first, last), sight.key.columns(low, high))
        form = partial(_blocks, cut=band.cut, shared=shared) if band.begin <= first < band.end else whole
        piece = form(query[:, first:last], key[:, low:high], value[:, low:high], near, how)
        if made is None:
            pieces.append(piece)
        else:
            made[:, first:last] = piece
    return torch.cat(pieces, 1) if made is None else made


def pays(sight: Sight, how: How) -> bool:
    """Whether to go block by block: the mask must reach only so far, and spare at least half of the pairs."""
    back, ahead = sight.mask.reach
    if back is None or ahead is None or isinstance(how.bias, Tensor):
        return False
    if not sight.query.span.run or not sight.key.span.run:
        return False
    band = Band.of(sight)
    return band.shift >= 0 and band.begin < band.end and 2 * band.cut.width <= band.keys


@dataclass(frozen=True)
class Band:
    """Which columns of the keys a run of queries can reach, and which queries come in whole blocks."""

    size: int  # queries per block
    back: int  # rounded up to whole blocks, which the kernel takes faster; the mask hides what is too far
    ahead: int
    shift: int  # the column of the key that stands where the first query stands
    keys: int
    begin: int  # before it, the reach sticks out at the front
    end: int  # after it, a block would not be full

    @classmethod
    def of(cls, sight: Sight) -> Band:
        size = BLOCK if torch.is_grad_enabled() else LEAN
        back, ahead = (-(-(far or 0) // size) * size for far in sight.mask.reach)
        tokens, keys = sight.query.shape[1], sight.key.shape[1]
        shift = sight.query.span.first - sight.key.span.first
        begin = min(max(0, back - shift), tokens)
        end = begin + max(0, min(tokens, keys - shift - ahead) - begin) // size * size
        return cls(size, back, ahead, shift, keys, begin, end)

    @property
    def cut(self) -> Cut:
        """How a row is cut into blocks."""
        return Cut(self.size, self.back + self.size + self.ahead)

    def alike(self, sight: Sight) -> bool:
        """Whether every block sees what the next one sees."""
        return sight.mask.uniform and (sight.clear if self.ahead == 0 else not sight.key.span.padded)

    def near(self, first: int, last: int) -> tuple[int, int]:
        """The columns of the keys that the queries first .. last-1 can reach."""
        return max(0, first + self.shift - self.back), min(self.keys, last + self.shift + self.ahead)


def _blocks(
    query: Tensor, key: Tensor, value: Tensor, sight: Sight, how: How, *, cut: Cut, shared: Tensor | None
) -> Tensor:
    """Queries that fill blocks, beside the keys that they can reach. `shared` is the mask of all, if there is one."""
    rows = []
    for row in (slice(at, at + 1) for at in range(query.shape[0])):  # one by one, so that keys stay views
        q, k, v = cut.own(query[row]), cut.near(key[row]), cut.near(value[row])
        block = cut.sight(sight, row)
        visible = block.pairs(query.shape[2]) if shared is None else shared
        rows.append(kernel(q, k, v, Pairs(visible, how.added(q, k, block)), how).flatten(0, 1))
    return torch.stack(rows) if len(rows) > 1 else rows[0][None]  # one row needs no copy


@dataclass(frozen=True)
class Cut:
    """Rows of tokens as rows of blocks: queries by themselves, keys as overlapping views, copied if rows are many."""

    size: int  # queries per block
    width: int  # keys per block

    def own(self, x: Tensor) -> Tensor:
        """[B, T, ...] -> [B·T/b, b, ...]"""
        return x.reshape(-1, self.size, *x.shape[2:])

    def near(self, x: Tensor) -> Tensor:
        """[B, N, ...] -> [B·T/b, width, ...]"""
        return x.unfold(1, self.width, self.size).movedim(-1, 2).flatten(0, 1)

    def sight(self, sight: Sight, rows: slice = ALL) -> Sight:
        """The same mask, block by block."""
        query, key = ((x.order[rows], x.position[rows]) for x in (sight.query, sight.key))
        return Sight(sight.mask, Stamps(*map(self.own, query)), Stamps(*map(self.near, key)))

    def alike(self, sight: Sight, lead: int, heads: int) -> Tensor:
        """Who sees whom in any block whose first query has `lead` keys before it: what counts is the distance.

        [1, 1 or H, b, width]
        """
        device = sight.key.order.device
        queries = Where.run(1, self.size, start=lead, device=device)
        return Sight(sight.mask, queries, Where.run(1, self.width, device=device)).pairs(heads)


def masked_softmax(score: Tensor, visible: Tensor | None) -> Tensor:
    """Softmax over the last axis, of what is visible; all zeros where nothing is.

    A row without anything visible keeps its scores for the softmax and loses them after it: an all-hidden softmax would
    be 0/0 and its gradient would poison the whole batch.
    """
    if visible is None:
        return score.softmax(-1)
    blind = ~visible.any(-1, keepdim=True)
    weight = score.masked_fill(~(visible | blind), float("-inf")).softmax(-1)
    return weight.masked_fill(~visible, 0.0)


def kernel(query: Tensor, key: Tensor, value: Tensor, pairs: Pairs, how: How) -> Tensor:
    """Torch's fused kernel, or the plain form where that cannot cap or the scores are those of pairs."""
    if how.score is not None and pairs.added is not None:
        return _weighed(value, pairs.added, pairs.visible, how)
    if how.cap is not None:
        return _capped(query, key, value, pairs, how)
    size = value.shape[3]
    widest = max(size, key.shape[3])
    query, key, value = (widened(x, widest) for x in (query, key, value))
    y = F.scaled_dot_product_attention(
        query.transpose(1, 2),
        key.transpose(1, 2),
        value.transpose(1, 2),
        attn_mask=pairs.mask,
        dropout_p=how.dropout,
        is_causal=pairs.triangle,
        scale=how.scale,
        enable_gqa=bool(key.shape[2] != query.shape[2]),
    ).transpose(1, 2)
    return y if size == widest else y[..., :size]


def _weighed(value: Tensor, score: Tensor, visible: Tensor | None, how: How) -> Tensor:
    """The mean of values by scores that are there already. [B, N, K, e] and [B, H, T, N] give [B, T, H, e]"""
    weight = masked_softmax(score, visible)
    weight = F.dropout(weight, how.dropout) if how.dropout else weight
    value = value.repeat_interleave(weight.shape[1] // value.shape[2], 2)
    return torch.einsum("bhtn,bnhe->bthe", weight, value)


def widened(x: Tensor, size: int) -> Tensor:
    """With zeros as further channels: unless keys and values are equally wide, the kernel holds all scores at once."""
    return x if x.shape[-1] == size else F.pad(x, (0, size - x.shape[-1]))


def _capped(query: Tensor, key: Tensor, value: Tensor, pairs: Pairs, how: How) -> Tensor:
    """What the kernel would give, with capped scores: some queries after the other, beside the keys they need."""
    rows, tokens, heads, _ = query.shape
    each = heads * key.shape[1]  # scores of one query
    step = min(tokens, max(16, HELD // max(1, each)))
    many = max(1, HELD // max(1, each * step))
    again = torch.is_grad_enabled() and (many < rows or step < tokens)
    made = []
    for row in (slice(begin, begin + many) for begin in range(0, rows, many)):
        for begin in range(0, tokens, step):
            end = min(begin + step, tokens)
            seen = end if pairs.triangle else key.shape[1]  # in the triangle no query looks past itself
            part = pairs.cut(row, begin, end, query.device)
            given = (query[row, begin:end], key[row, :seen], value[row, :seen], part, how)
            made.append(checkpoint(_plain, *given, use_reentrant=False) if again else _plain(*given))
    per_row = -(-tokens // step)
    whole = [torch.cat(made[first : first + per_row], 1) for first in range(0, len(made), per_row)]
    return torch.cat(whole) if whole else torch.zeros_like(query[..., : value.shape[3]])


def _plain(query: Tensor, key: Tensor, value: Tensor, pairs: Pairs, how: How) -> Tensor:
    """The equation, with the query heads of one key head as its rows, so that no key is copied.

    Capped scores are finite: adding -inf hides them, several times faster than filling it in. A row that sees nothing
    keeps its scores for the softmax and loses its weights after it, as in `masked_softmax`.
    """
    rows, tokens, heads, size = query.shape
    groups, cap, visible = key.shape[2], how.cap or 1.0, pairs.visible
    asked = (query * (how.scale / cap)).view(rows, tokens, groups, -1, size).permute(0, 2, 3, 1, 4)  # [B, K, H/K, T, d]
    score = torch.tanh(asked.flatten(2, 3) @ key.permute(0, 2, 3, 1)).view(rows, heads, tokens, -1)
    sees = None if visible is None else visible.any(-1, keepdim=True)
    shown = None if visible is None or sees is None else visible | ~sees
    added = Pairs(shown, pairs.added).offset(score.dtype)
    weight = (score * cap if added is None else torch.add(added, score, alpha=cap)).softmax(-1)
    weight = weight if sees is None else weight * sees
    weight = F.dropout(weight, how.dropout) if how.dropout else weight
    mixed = weight.view(rows, groups, -1, key.shape[1]) @ value.permute(0, 2, 1, 3)  # [B, K, H/K·T, e]
    return mixed.view(rows, heads, tokens, -1).transpose(1, 2)
