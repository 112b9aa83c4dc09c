"""Sparse and block-sparse attention at the cost of the pairs a mask allows: by residue classes, as unions, by blocks.

- A mask with a modulus m (atrous, strided, a dilated window) lets tokens meet only those a multiple of m away. Every
  m-th token is then a sequence of its own, in which the mask is a plain one.
- A mask that is a union (local and atrous, strided and local) is taken apart into terms that do not overlap; each is
  attended by itself, and all are merged by their log-sum-exp (`merge.py`).
- A mask that is drawn block by block gathers, for every block of queries, the blocks of keys that it sees.

Nothing here changes a result: `written_out` is the specification of all forms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.stamps import Span, Stamps
from ..masks import Mask, Sight, Without
from .merge import Piece, merged
from .sdpa import BLOCK, Band, How, Pairs, banded, kernel, pays, whole


def formed(query: Tensor, key: Tensor, value: Tensor, sight: Sight, how: How) -> Tensor:
    """Attention in the form that spares the most pairs."""
    if Residues.fit(sight, how):
        classes = Residues.of(sight)
        inner = classes.sight(sight)
        return classes.put(formed(classes.take(query), classes.take(key), classes.take(value), inner, how))
    if unites(sight, how):
        return united(query, key, value, sight, how)
    if drawn(sight, how):
        return gathered(query, key, value, sight, how)
    return (banded if pays(sight, how) else whole)(query, key, value, sight, how)


# --- every m-th token ---


@dataclass(frozen=True)
class Residues:
    """A run of tokens as `step` sequences, each of every `step`-th token."""

    step: int
    tokens: int
    first: int  # the order that counts as 0

    @classmethod
    def fit(cls, sight: Sight, how: How) -> bool:
        """Whether the tokens of this call fall into classes: queries and keys must begin in the same one."""
        step = sight.mask.modulus
        if step == 1 or isinstance(how.bias, Tensor) or sight.mask.thinned(step) is None:
            return False
        query, key = sight.query.span, sight.key.span
        return query.run and key.run and (query.first - key.first) % step == 0 and sight.query.shape[1] >= 2 * step

    @classmethod
    def of(cls, sight: Sight) -> Residues:
        return cls(sight.mask.modulus, sight.query.shape[1], sight.key.span.first)

    def take(self, x: Tensor) -> Tensor:
        """[B, T, ...] -> [B·step, T/step, ...]; the last classes are padded with zeros."""
        return self._classes(x, 0)

    def put(self, x: Tensor) -> Tensor:
        """The way back, for as many tokens as there are queries."""
        rows = x.reshape(-1, self.step, *x.shape[1:])
        return rows.transpose(1, 2).flatten(1, 2)[:, : self.tokens]

    def sight(self, sight: Sight) -> Sight:
        """Who sees whom in each class."""
        mask = sight.mask.thinned(self.step)
        if mask is None:
            raise TypeError(f"{sight.mask!r} has no rule among every {self.step}th token")
        query = self._stamps(sight.query)
        same = sight.query.order is sight.key.order
        return Sight(mask, query, query if same else self._stamps(sight.key))

    def _stamps(self, stamps: Stamps) -> Stamps:
        order = stamps.order.sub(self.first).div(self.step, rounding_mode="floor").masked_fill(~stamps.real, -1)
        thin = Stamps(self._classes(order, -1), self._classes(stamps.position, 0))
        span, tokens = stamps.span, stamps.shape[1]
        begin = (span.first - self.first) // self.step
        padded = span.padded or tokens % self.step > 0
        thin.known(Span(begin, begin + -(-tokens // self.step) - 1, run=True, padded=padded))
        return thin

    def _classes(self, x: Tensor, fill: int) -> Tensor:
        lacking = -x.shape[1] % self.step
        x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, lacking), value=fill) if lacking else x
        return x.reshape(x.shape[0], -1, self.step, *x.shape[2:]).transpose(1, 2).flatten(0, 1)


# --- unions ---


def unites(sight: Sight, how: How) -> bool:
    """Whether to take a union apart: each of its terms must be cheap by itself, and all together cheaper than it."""
    terms = sight.mask.terms
    if len(terms) == 1 or isinstance(how.bias, Tensor) or not sight.query.span.run or not sight.key.span.run:
        return False
    each = [Sight(term, sight.query, sight.key) for term in terms]
    if not all(Residues.fit(part, how) or pays(part, how) or _few(part, how) for part in each):
        return False
    keys = sight.key.shape[1]
    return 2 * sum(_pairs(part.mask, keys) for part in each) <= _pairs(sight.mask, keys)


def united(query: Tensor, key: Tensor, value: Tensor, sight: Sight, how: How) -> Tensor:
    """Each term by itself, then merged; row by row, so that the keys of a band stay views."""
    groups = query.shape[2] // key.shape[2]
    key, value = (x if groups == 1 else x.repeat_interleave(groups, 2) for x in (key, value))
    rows = []
    for row in range(query.shape[0]):
        q, k, v = (x[row : row + 1] for x in (query, key, value))
        rows.append(_united_row(q, k, v, _row(sight, row), how))
    return torch.cat(rows) if len(rows) > 1 else rows[0]


def _united_row(query: Tensor, key: Tensor, value: Tensor, sight: Sight, how: How) -> Tensor:
    made: list[Piece] = []
    for term in apart(sight.mask):
        made += pieces(query, key, value, Sight(term, sight.query, sight.key), how)
    return merged(query, made, how)


def apart(mask: Mask) -> tuple[Mask, ...]:
    """The terms of a union, none of them allowing what another allows. The wide ones stay as they are: to hide pairs
    is cheap in a band, and takes a mask of its own elsewhere.
    """
    terms = sorted(mask.terms, key=lambda term: None not in term.reach)
    return tuple(reduce(Without.of, terms[:place], term) for place, term in enumerate(terms))


def _few(sight: Sight, how: How) -> bool:
    """Whether few keys are seen by any query, and which ones is known."""
    query, key = sight.query.span, sight.key.span
    if how.bias is not None or not key.run or key.first != 0 or not query.run:
        return False
    columns = sight.mask.columns(sight.key.shape[1])
    return columns is not None and 2 * columns.shape[1] <= sight.key.shape[1]


def pieces(query: Tensor, key: Tensor, value: Tensor, sight: Sight, how: How) -> list[Piece]:
    """What one row sees, in pieces that hold as few pairs as its mask allows. Keys have as many heads as queries."""
    if Residues.fit(sight, how):
        classes = Residues.of(sight)
        q, k, v = (classes.take(x) for x in (query, key, value))
        return [_composed(piece, classes) for piece in pieces(q, k, v, classes.sight(sight), how)]
    if pays(sight, how):
        return _band(query, key, value, sight, how)
    if _few(sight, how):
        return _picked(query, key, value, sight)
    added = how.added(query, key, sight)
    triangle = added is None and sight.triangle
    visible = None if triangle or sight.whole else sight.shown(query.shape[2])
    return [Piece(key, value, _same, _same, Pairs(visible, added, triangle))]


def _band(query: Tensor, key: Tensor, value: Tensor, sight: Sight, how: How) -> list[Piece]:
    """A mask of finite reach, as in `banded`."""
    band, made, heads = Band.of(sight), list[Piece](), query.shape[2]
    for first, last in pairwise((0, band.begin, band.end, query.shape[1])):
        if first == last:
            continue
        low, high = band.near(first, last)
        near = Sight(sight.mask, sight.query.columns(first, last), sight.key.columns(low, high))
        q, k, v = query[:, first:last], key[:, low:high], value[:, low:high]
        take, put = _columns(first, last, query.shape[1])
        if first == band.begin:
            cut, rows = band.cut, query.shape[0]
            q, k, v = cut.own(q), cut.near(k), cut.near(v)
            block = cut.sight(near)
            visible = cut.alike(near, band.back, heads) if band.alike(sight) else block.pairs(heads)
            take, put = _then(take, cut.own), _then(partial(_in_rows, rows=rows), put)
            made.append(Piece(k, v, take, put, Pairs(visible, how.added(q, k, block))))
        else:
            made.append(Piece(k, v, take, put, Pairs(near.pairs(heads), how.added(q, k, near))))
    return made


def _picked(query: Tensor, key: Tensor, value: Tensor, sight: Sight) -> list[Piece]:
    """All queries beside the few keys that any query sees, every head beside those of its pattern."""
    columns, heads = sight.mask.columns(key.shape[1]), torch.arange(query.shape[2], device=key.device)
    if columns is None or not columns.shape[1]:
        return []
    columns = columns.to(key.device)
    mine = columns[heads % len(columns)].T[None, :, :, None]  # [1, m, H, 1]
    near = [x.take_along_dim(mine, 1) for x in (key, value)]
    asks, seen = sight.query.order[:, None, :, None], sight.key.order[:, columns][:, :, None]  # [B, P, 1, m]
    visible = sight.mask.allows(asks, seen) & (asks >= 0) & (seen >= 0)
    visible = visible if len(columns) in (1, len(heads)) else visible[:, heads % len(columns)]
    return [Piece(near[0], near[1], _same, _same, Pairs(visible))]


def _in_rows(x: Tensor, rows: int) -> Tensor:
    """Blocks side by side again. [B·n, size, ...] -> [B, n·size, ...]"""
    return x.reshape(rows, -1, *x.shape[2:])


def _columns(first: int, last: int, tokens: int) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """Some queries, and back."""

    def take(x: Tensor) -> Tensor:
        return x[:, first:last]

    def put(x: Tensor) -> Tensor:
        return F.pad(x, (0, 0) * (x.dim() - 2) + (first, tokens - last))

    return take, put


def _composed(piece: Piece, classes: Residues) -> Piece:
    return Piece(piece.key, piece.value, _then(classes.take, piece.take), _then(piece.put, classes.put), piece.pairs)


def _then(first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: second(first(x))


def _same(x: Tensor) -> Tensor:
    return x


def _row(sight: Sight, row: int) -> Sight:
    """The same of one row."""
    same = sight.query.order is sight.key.order
    query = _one(sight.query, row)
    return Sight(sight.mask, query, query if same else _one(sight.key, row))


def _one(stamps: Stamps, row: int) -> Stamps:
    one = Stamps(stamps.order[row : row + 1], stamps.position[row : row + 1])
    one.known(stamps.span)
    return one


def _pairs(mask: Mask, keys: int) -> int:
    """How many keys a query is put beside, at most."""
    columns = mask.columns(keys)
    if columns is not None:
        return columns.shape[1]
    back, ahead = (keys if far is None else far for far in mask.reach)
    return min(keys, (back + ahead) // mask.modulus + BLOCK)


# --- blocks ---


def drawn(sight: Sight, how: How) -> bool:
    """Whether to gather blocks: the mask must be drawn in blocks, and show at most half of them."""
    layout = sight.mask.layout
    if layout is None or isinstance(how.bias, Tensor) or (how.bias is not None and len(layout.table) > 1):
        return False
    query, key = sight.query.span, sight.key.span
    if not (query.run and key.run and query.first == key.first == 0 and sight.query.shape == sight.key.shape):
        return False
    sight.mask.check(query, key)
    count = -(-sight.key.shape[1] // layout.size)
    return count > 1 and 2 * int(layout.table[:, :count, :count].sum()) <= len(layout.table) * count**2


def gathered(query: Tensor, key: Tensor, value: Tensor, sight: Sight, how: How) -> Tensor:
    """Every block of queries beside the blocks of keys that it sees. Blocks that see about as many go together."""
    layout = sight.mask.layout
    if layout is None:
        raise TypeError(f"{sight.mask!r} is not drawn in blocks")
    size, tokens = layout.size, query.shape[1]
    count = -(-tokens // size)
    table = layout.table[:, :count, :count].to(query.device)  # [P, n, n]
    if len(table) > 1:
        groups = query.shape[2] // key.shape[2]
        key, value = (x.repeat_interleave(groups, 2) for x in (key, value))
    board = query.new_zeros(query.shape[0], count, size, query.shape[2], value.shape[3])
    most = table.sum(-1).amax(0)  # blocks that each block of queries sees, over all patterns
    for seen in sorted({1 << int(m - 1).bit_length() for m in most.tolist() if m}):
        rows = ((most > seen // 2) & (most <= seen)).nonzero()[:, 0]
        board = board.index_copy(1, rows, _gathered(query, key, value, sight, how, table[:, rows], rows))
    return board.flatten(1, 2)[:, :tokens]


def _gathered(query: Tensor, key: Tensor, value: Tensor, sight: Sight, how: How, table: Tensor, rows: Tensor) -> Tensor:
    """Of some blocks of queries. `table` [P, rows, n] says which blocks they see; gives [B, rows, size, H, e]."""
    layout = sight.mask.layout
    size, batch, heads = layout.size if layout else 1, query.shape[0], query.shape[2]
    many = int(table.sum(-1).max())
    chosen = table.byte().argsort(dim=-1, descending=True, stable=True)[..., :many]  # [P, rows, many]
    real = table.gather(-1, chosen)

    def near(x: Tensor) -> Tensor:
        """[B, N, K, d] -> [B·rows, many·size, K, d], for every head by its own pattern."""
        blocks = _in_blocks(x, size, 0)
        if len(chosen) == 1:
            return blocks[:, chosen[0]].flatten(2, 3).flatten(0, 1)
        by_head = chosen[torch.arange(heads, device=x.device) % len(chosen)]  # [H, rows, many]
        head = torch.arange(heads, device=x.device)[:, None, None]
        picked = blocks.permute(3, 1, 0, 2, 4)[head, by_head]  # [H, rows, many, B, size, d]
        return picked.permute(3, 1, 2, 4, 0, 5).flatten(2, 3).flatten(0, 1)

    def orders(stamps: Stamps) -> Tensor:
        return _in_blocks(stamps.order[:1] if stamps.order.stride(0) == 0 else stamps.order, size, -1)

    asks = orders(sight.query)[:, rows]  # [B or 1, rows, size]
    shown = orders(sight.key)[:, chosen].masked_fill(~real[None, ..., None], -1)  # [B or 1, P, rows, many, size]
    ask = asks.flatten(0, 1)[:, None, :, None]
    keys = shown.flatten(3).transpose(1, 2).flatten(0, 1)[:, :, None, :]  # [B·rows or rows, P, 1, many·size]
    visible = sight.mask.allows(ask, keys) & (ask >= 0) & (keys >= 0)
    visible = visible.repeat(batch, 1, 1, 1) if len(asks) < batch else visible
    patterns = visible.shape[1]
    visible = visible if patterns in (1, heads) else visible[:, torch.arange(heads, device=visible.device) % patterns]
    own = _in_blocks(query, size, 0)[:, rows].flatten(0, 1)
    k, v = near(key), near(value)
    made = kernel(own, k, v, Pairs(visible, _added(own, k, sight, how, rows, chosen, size)), how)
    return made.reshape(batch, len(rows), size, heads, -1)


def _added(own: Tensor, key: Tensor, sight: Sight, how: How, rows: Tensor, chosen: Tensor, size: int) -> Tensor | None:
    """The bias of gathered pairs: their stamps are gathered like them."""
    if how.bias is None:
        return None

    def gather(stamps: Stamps, which: Tensor) -> Stamps:
        fields = (_in_blocks(x, size, fill)[:, which] for x, fill in ((stamps.order, -1), (stamps.position, 0)))
        return Stamps(*(x.reshape(len(own), -1) for x in fields))

    return how.added(own, key, Sight(sight.mask, gather(sight.query, rows), gather(sight.key, chosen[0])))


def _in_blocks(x: Tensor, size: int, fill: int) -> Tensor:
    """[B, T, ...] -> [B, n, size, ...], the last block padded."""
    lacking = -x.shape[1] % size
    x = F.pad(x, (0, 0) * (x.dim() - 2) + (0, lacking), value=fill) if lacking else x
    return x.reshape(x.shape[0], -1, size, *x.shape[2:])
