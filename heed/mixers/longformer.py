"""Sliding-window attention with global tokens of Longformer (Beltagy, Peters & Cohan 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self, TypeAlias

import torch
from pydantic import model_validator
from torch import Tensor, nn

from ..core.config import Count, Size
from ..core.contract import MixerConfig, Reach, Where
from ..core.errors import InputError
from ..core.spec import Spec
from ..core.stamps import Stamps
from ..parts.attention.attend import attend, written_out
from ..parts.attention.merge import Piece, merged
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.attention.row_by_row import Row, row_by_row
from ..parts.attention.sdpa import How, Pairs
from ..parts.attention.sparse import Residues, pieces
from ..parts.layers.norms import RMSNorm
from ..parts.masks import Atrous, Mask, Sight, Whole, Window

Nothing: TypeAlias = "tuple[()]"
Far: TypeAlias = "tuple[Tensor, Tensor, Tensor]"  # keys and values [1, g, h, d], and which queries see them [1, t, g]
WHOLE = Whole()


class Longformer(Headed[Nothing]):
    """Every token sees its neighbours and the marked tokens; a marked token sees all, through projections of its own.

        y_i = W_o Σ_j softmax_j(q_i·k_j / √d) v_j,   |i - j| <= w/2  or  j marked
        y_i = W_o Σ_j softmax_j(q'_i·k'_j / √d) v'_j,   all j,   q' = W'_q x, k' = W'_k x, v' = W'_v x,   i marked

    Beltagy et al. 2020. Which tokens are marked, a call says by `where.give(marked=...)`, or else the orders in
    `marks`, as far as a row goes. A dilation of d spreads the window: it holds every d-th token, as many as before;
    groups of heads may have dilations of their own. Costs O(n·(w + g)·d) time over n tokens of which g are marked, and
    as much memory as the tokens themselves; looks ahead, so it remembers nothing. What the paper generates text with, a
    causal window that may be dilated, is `Attention` with the mask `Window(back) & Atrous(step)`.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Beltagy et al. 2020, Longformer, arXiv 2004.05150"

        kind: Literal["longformer"] = "longformer"
        window: Size = 512  # tokens, half of them on either side of the own one
        dilation: tuple[Size, ...] = (1,)  # of equally many heads each
        marks: tuple[Count, ...] = ()  # orders of tokens that are marked where a call marks none itself

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if self.window % 2:
                near = f"{self.window - 1} or {self.window + 1}" if self.window > 1 else "2"
                raise ValueError(f"a window of {self.window} has no two halves; use {near}")
            if not self.dilation or self.heads % len(self.dilation):
                raise ValueError(
                    f"{self.heads} heads do not fall into {len(self.dilation)} groups, one for each dilation; name 1 "
                    f"dilation, or a number of them that divides {self.heads}"
                )
            return self

        def build(self, width: int) -> Longformer:
            return Longformer(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(marks=(0,)), cls(window=4, marks=(0, 5)), cls(window=2, kv_heads=2, bias=False)),
                *(cls(window=4, dilation=(1, 2), marks=(3,)), cls(window=4, dilation=(3, 1, 2, 2), kv_heads=1)),
                cls(window=2, marks=(1, 2, 4, 20), heads=3, head_size=5, scale=0.3, head_norm=RMSNorm(), clip=0.5),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.config = config
        self.masks = tuple(_band(config.window // 2, step) for step in config.dilation)
        inner, shared = self.query.out_features, self.key.out_features
        self.query_global = nn.Linear(width, inner, bias=config.bias)
        self.key_global = nn.Linear(width, shared, bias=self.key.bias is not None)
        self.value_global = nn.Linear(width, shared, bias=config.bias)
        self.reach = Reach(None, None)

    def spec(self) -> Spec:
        return ()

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        x, marked = where.blank(x), self._marked(where)
        query, key, value = self.queries(x), self.keys(x), self.values(x)
        self.weights(lambda: self._weights(x, (query, key, value), where, marked))
        if marked is None:
            return self.merge(self._near(query, key, value, where)), state
        key, value = self.each_head(key), self.each_head(value)
        y = row_by_row(where, lambda row: self._row(row, *(row.of(one) for one in (query, key, value, marked))))
        far, at = self._far(x, where, Marks.of(where, marked)), marked.nonzero(as_tuple=True)
        return self.merge(y.index_put(at, far)), state

    def _marked(self, where: Where) -> Tensor | None:
        """Which tokens are marked; None = none of them. [B, T]"""
        marked = where.given.marked
        if marked is None:
            if not self.config.marks:
                return None
            marked = torch.isin(where.order, torch.tensor(self.config.marks, device=where.order.device))
        elif marked.shape != where.shape or marked.dtype != torch.bool:
            raise InputError(
                f"marked is {marked.dtype} of the shape {list(marked.shape)}; needed is a boolean for each token, "
                f"{list(where.shape)}, True where it sees all tokens and all see it"
            )
        marked = marked & where.real
        return marked if bool(marked.any()) else None

    @property
    def _groups(self) -> list[tuple[slice, Mask]]:
        """Which heads look through which band."""
        size = self.heads // len(self.masks)
        return [(slice(size * group, size * group + size), mask) for group, mask in enumerate(self.masks)]

    def _near(self, query: Tensor, key: Tensor, value: Tensor, where: Stamps) -> Tensor:
        """The bands alone. [B, T, H, e]"""
        if len(self.masks) == 1:
            sight = self.masks[0](where, where)
            return attend(query, key, value, sight, scale=self.scale, dropout=self.drop)
        key, value = self.each_head(key), self.each_head(value)
        made = []
        for heads, mask in self._groups:
            q, k, v = (x[:, :, heads] for x in (query, key, value))
            made.append(attend(q, k, v, mask(where, where), scale=self.scale, dropout=self.drop))
        return torch.cat(made, 2)

    def _row(self, row: Row, query: Tensor, key: Tensor, value: Tensor, marked: Tensor) -> Tensor:
        """Of one row, the bands and the marked tokens outside of them, in one softmax. [1, t, H, e]"""
        if not marked.any():
            return self._near(query, key, value, row.stamps)
        how, stamps, chosen = How(None, self.scale, self.drop), row.stamps, marked[0].nonzero()[:, 0]
        ask, told = stamps.order[..., None], stamps.order[:, None, chosen]
        made = []
        for heads, mask in self._groups:
            q, k, v = (x[:, :, heads] for x in (query, key, value))
            outside = ~mask.allows(ask, told) & (ask >= 0)  # [1, t, g]
            made.append(_seen(q, k, v, mask(stamps, stamps), (k[:, chosen], v[:, chosen], outside), how))
        return torch.cat(made, 2) if len(made) > 1 else made[0]

    def _far(self, x: Tensor, where: Where, marks: Marks) -> Tensor:
        """What the marked tokens of all rows see, one after the other. [marked, H, e]"""
        query = self._asked(x, marks)
        form = self.absorbed if self._few(query.shape[1], x.shape[1]) else self.expanded
        return form(query, x, WHOLE(marks.stamps, where))[marks.there]

    def expanded(self, query: Tensor, x: Tensor, sight: Sight) -> Tensor:
        """The second equation as it stands. Queries [B, g, H, d]; gives [B, g, H, e]."""
        return attend(query, *self._told(x), sight, scale=self.scale, dropout=self.drop)

    def absorbed(self, query: Tensor, x: Tensor, sight: Sight) -> Tensor:
        """The same without keys and values: q'·(W'_k x) is (W'_kᵀ q')·x, and the mean of W'_v x is W'_v of the mean.

        The shift of the keys is the same for all of them, and a softmax does not see it.
        """
        rows, many, heads, _ = query.shape
        key, value = (
            layer.weight.view(self.kv_heads, self.head_size, -1).repeat_interleave(heads // self.kv_heads, 0)
            for layer in (self.key_global, self.value_global)
        )  # [H, d, D]
        asked, told = torch.einsum("bghd,hdw->bghw", query, key).flatten(1, 2).unsqueeze(2), x.unsqueeze(2)
        visible = None if sight.whole else sight.key.real[:, None, None]
        mean = attend(asked, told, told, visible, scale=self.scale).view(rows, many, heads, -1)
        y = torch.einsum("bghw,hew->bghe", mean, value)
        if not self.config.bias:
            return y
        return y + self.value_global.bias.view(self.kv_heads, -1).repeat_interleave(heads // self.kv_heads, 0)

    def _few(self, queries: int, keys: int) -> bool:
        """Whether the absorbed form can be used, and takes fewer multiplications."""
        layers = self.key_global, self.value_global
        plain = all(type(layer) is nn.Linear for layer in layers)  # edited ones (LoRA, quantised) are only called
        if not plain or self.drop or self.clip is not None or self.key_norm is not None:
            return False
        width, inner = self.key_global.in_features, self.heads * self.head_size
        absorbed = 2 * queries * (self.heads * keys * width + inner * width)
        return absorbed < 2 * keys * (width * self.key_global.out_features + queries * inner)

    def _asked(self, x: Tensor, marks: Marks) -> Tensor:
        """The queries of marked tokens. [B, g, H, d]"""
        query = self._split(self.query_global, x.take_along_dim(marks.column[..., None], 1), self.heads)
        return query if self.query_norm is None else self.query_norm(query)

    def _told(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values that they see. [B, T, K, d]"""
        key, value = (self._split(layer, x, self.kv_heads) for layer in (self.key_global, self.value_global))
        return key if self.key_norm is None else self.key_norm(key), value

    def _weights(self, x: Tensor, heads: tuple[Tensor, Tensor, Tensor], where: Where, marked: Tensor | None) -> Tensor:
        """Attention weights, written out. [B, H, T, T]"""
        each = [mask(where, where).pairs(1).expand(-1, self.heads // len(self.masks), -1, -1) for mask in self.masks]
        visible = torch.cat(each, 1)
        if marked is None:
            return written_out(*heads, visible, scale=self.scale)[1]
        visible = visible | (marked[:, None, None] & where.real[:, None, :, None])
        weight, marks = written_out(*heads, visible, scale=self.scale)[1], Marks.of(where, marked)
        far = written_out(self._asked(x, marks), *self._told(x), WHOLE(marks.stamps, where), scale=self.scale)[1]
        rows, columns = marked.nonzero(as_tuple=True)
        return weight.transpose(1, 2).index_put((rows, columns), far.transpose(1, 2)[marks.there]).transpose(1, 2)


@dataclass(frozen=True, eq=False)
class Marks:
    """The marked tokens of every row side by side, as many as the row with the most has."""

    column: Tensor  # [B, g]
    there: Tensor  # [B, g] False = this row has fewer
    stamps: Stamps

    @classmethod
    def of(cls, where: Where, marked: Tensor) -> Marks:
        counts = marked.sum(1)
        most = int(counts.max())
        column = (~marked).byte().argsort(dim=1, stable=True)[:, :most]
        there = torch.arange(most, device=column.device) < counts[:, None]
        order, position = (stamp.gather(1, column) for stamp in (where.order, where.position))
        return cls(column, there, Stamps(order.masked_fill(~there, -1), position))


def _band(side: int, step: int) -> Mask:
    """`side` tokens on either side, every `step`-th."""
    window = Window(back=side * step, ahead=side * step)
    return window if step == 1 else window & Atrous(step=step)


def _seen(query: Tensor, key: Tensor, value: Tensor, sight: Sight, far: Far, how: How) -> Tensor:
    """A band, and keys outside of it that some queries see, of one row. [1, t, h, e]

    A dilated band is several rows, each of every so many tokens, in which it is a plain one.
    """
    far_key, far_value, outside = far
    if Residues.fit(sight, how):
        classes = Residues.of(sight)
        inner, (q, k, v, shown) = classes.sight(sight), map(classes.take, (query, key, value, outside))

        def form(row: Row) -> Tensor:
            near, more = inner.mask(row.stamps, row.stamps), (far_key, far_value, row.of(shown))
            return _seen(row.of(q), row.of(k), row.of(v), near, more, how)

        return classes.put(row_by_row(inner.query, form))
    if not query.shape[1]:
        return query
    near = pieces(query, key, value, sight, how)
    return merged(query, [*near, Piece(far_key, far_value, _same, _same, Pairs(outside[:, None]))], how)


def _same(x: Tensor) -> Tensor:
    return x
