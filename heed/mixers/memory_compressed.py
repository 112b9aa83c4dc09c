"""Memory-compressed attention of T-DMCA (Liu et al. 2018): a strided convolution shortens keys and values."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..core.config import Size
from ..core.contract import MixerConfig, Reach, Where
from ..core.errors import InputError
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.stamps import Span, Stamps
from ..core.state import Log, Seen, remember
from ..parts.attention.attend import attend, written_out
from ..parts.attention.multihead import Headed, HeadedConfig
from ..parts.layers.norms import RMSNorm
from ..parts.masks import Causal

CAUSAL = Causal()
BLOCK = 512  # queries of a continued call that are looked at together: their mask is written out

Logs: TypeAlias = "tuple[Log, Log, Log]"  # the first token, the groups that are whole, the tokens of the open one


class MemoryCompressed(Headed[Logs]):
    """Causal attention to groups of `stride` tokens, each of which a convolution compresses into one key and one value.

        y_i = W_o Σ_m softmax_m(q_i·k̂_m / √d) v̂_m,   (m+1)·s - 1 <= i
        k̂_m = b + Σ_c U_c k_(m·s + c),   v̂_m likewise,   c = 0 .. s-1

    Liu et al. 2018, sec. 4.2.3: a convolution with kernel and stride s. The first token is an entry by itself, which
    all tokens see, as in its authors' tensor2tensor: else the tokens before the end of the first group would see
    nothing. Tokens of the open group are left to a local layer beside this one. Costs O(n²·d / s) time and O(n·d)
    memory over n tokens; remembers a key and a value per s tokens, and the s - 1 newest tokens as they are.
    """

    class Config(HeadedConfig):
        paper: ClassVar[str] = "Liu et al. 2018, Generating Wikipedia by Summarizing Long Sequences, sec. 4.2.3"

        kind: Literal["memory_compressed"] = "memory_compressed"
        stride: Size = 3  # tokens per entry

        def build(self, width: int) -> MemoryCompressed:
            return MemoryCompressed(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(stride=2, kv_heads=2, bias=False), cls(stride=5, kv_heads=1, scale=0.3)),
                *(cls(stride=1), cls(heads=3, head_size=5, head_norm=RMSNorm(), clip=0.5, out_bias=False)),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.stride, self.reach = config.stride, Reach(None, 0)
        shared = self.kv_heads * self.head_size
        self.shorten_key, self.shorten_value = (nn.Linear(config.stride * shared, shared) for _ in range(2))

    def spec(self) -> Spec:
        parts, dtype = ((self.kv_heads, self.head_size),) * 2, self.out.weight.dtype
        near = Dim("(stride - 1)", self.stride - 1)
        return (
            Slot(parts, Entries(each=1, cap=1), dtype),
            Slot(parts, Entries(each=Dim("stride", self.stride)), dtype),
            Slot(parts, Entries(each=1, cap=near), dtype),
        )

    def forward(self, x: Tensor, where: Where, state: Logs | None = None) -> tuple[Tensor, Logs | None]:
        _must_follow(where)
        x = where.blank(x)
        query, key, value = self.queries(x), self.keys(x), self.values(x)
        begun, whole, open_ = (None, None, None) if state is None else state
        near, open_ = remember(open_, where, key, value)
        first, begun = _first(begun, where, key, value)
        groups, whole = self._groups(whole, where, near)
        seen = _joined(first, groups)
        keys, values = seen.parts
        self.weights(lambda: written_out(query, keys, values, CAUSAL(where, seen), scale=self.scale)[1])
        fresh = x.shape[1] > 0 and where.span.run and where.span.first == 0  # all that there is came with this call
        y = self.merge(self.folded(query, seen, where) if fresh else self.masked(query, seen, where))
        kept = None if begun is None or whole is None or open_ is None else (begun, whole, open_)
        return y, kept

    def masked(self, query: Tensor, seen: Seen, where: Where) -> Tensor:
        """The equation as it stands, some queries at a time. [B, T, H, d]"""
        key, value = seen.parts
        made = []
        for begin in range(0, max(1, query.shape[1]), BLOCK):
            sight = CAUSAL(where.columns(begin, begin + BLOCK), seen)
            part = query[:, begin : begin + BLOCK]
            made.append(attend(part, key, value, sight, scale=self.scale, dropout=self.drop))
        return torch.cat(made, 1)

    def folded(self, query: Tensor, seen: Seen, where: Where) -> Tensor:
        """The same for a text from its beginning on, without any mask.

        Token i sees the first token and (i + 1) // s groups. So the tokens with i + 1 = a·s + r see, for every r, one
        entry more as a goes on: the plain causal triangle, s times over the same entries. The s are taken as heads.
        """
        rows, tokens, heads, size = query.shape
        stride, count = self.stride, tokens // self.stride + 1
        query = F.pad(query, (0, 0, 0, 0, 1, count * stride - tokens - 1))
        query = query.view(rows, count, stride, heads, size).transpose(2, 3).flatten(2, 3)  # [B, a, H·s, d]
        key, value = (part[:, :count] for part in seen.parts)
        here = Where.run(rows, count, device=query.device)
        y = attend(query, key, value, CAUSAL(here, here), scale=self.scale, dropout=self.drop)
        y = y.view(rows, count, heads, stride, size).transpose(2, 3).flatten(1, 2)
        return where.blank(y[:, 1 : tokens + 1])

    def _groups(self, whole: Log | None, where: Where, near: Seen) -> tuple[Seen, Log | None]:
        """All groups that are whole by now, shortened: those that were, and those that end in this call."""
        end, column = _ends(where, near, self.stride)
        if whole is not None and not end.shape[1]:
            return whole.read()
        index = column.flatten(1)[..., None, None]
        joined = (*end.shape, self.shorten_key.in_features)
        key, value = (part.take_along_dim(index, 1).reshape(joined) for part in near.parts)
        key, value = self.shorten_key(key), self.shorten_value(value)
        split = (*end.shape, int(self.kv_heads), int(self.head_size))
        return remember(whole, end, key.view(split), value.view(split))


def _ends(where: Where, near: Seen, stride: int) -> tuple[Stamps, Tensor]:
    """The groups that end in this call, stamped like their last tokens, and the columns of their tokens in `near`.

    Rows may stand at different tokens. A row that ends fewer groups than another has entries of order -1. [B, G, s]
    """
    rows, tokens = where.shape
    lead = near.shape[1] - tokens  # remembered tokens before those of this call
    span, device = where.span, where.order.device
    alike = span.run and not span.padded and tokens > 0
    count = (span.first + tokens) // stride - span.first // stride if alike else -(-tokens // stride)
    begin = where.order[:, :1] if tokens else where.order.new_zeros(rows, 1)
    last = (begin // stride + 1 + torch.arange(count, device=device)) * stride - 1  # [B, G]
    wanted = last[..., None] + torch.arange(1 - stride, 1, device=device)  # which tokens: [B, G, s]
    column = lead + wanted - begin[..., None] if alike else _columns(near.order, wanted)
    there = (begin >= 0) & (last < begin + where.real.sum(1, keepdim=True)) & (column[..., 0] >= 0)
    column = column.clamp(0, max(0, near.shape[1] - 1))
    held = near.order.take_along_dim(column.flatten(1), 1).view_as(wanted)
    there &= (held == wanted).all(-1)  # unless a text begins within a group
    end = Stamps(torch.where(there, last, -1), torch.where(there, last, 0))
    if alike and lead == min(span.first, stride - 1):
        begun = (span.first // stride + 1) * stride - 1
        end.known(Span(begun, begun + (count - 1) * stride, run=count <= 1, padded=False))
    return end, column


def _columns(order: Tensor, wanted: Tensor) -> Tensor:
    """Where these tokens stand, if they are there. Rows that were ragged lie in a ring each in an order of its own."""
    ranked, column = order.sort(stable=True, dim=1)
    at = torch.searchsorted(ranked, wanted.flatten(1)).clamp(max=max(0, order.shape[1] - 1))
    return column.take_along_dim(at, 1).view_as(wanted)


def _first(begun: Log | None, where: Where, key: Tensor, value: Tensor) -> tuple[Seen, Log | None]:
    """The token of order 0, which may have come with an earlier call, or for some rows not yet."""
    if begun is not None and where.span.first > 0:
        return begun.read()
    head = where.columns(0, 1)
    order = torch.where(head.order == 0, 0, -1)
    stamps = Stamps(order, order.clamp(min=0))
    if where.span.first == 0 and where.span.run and not where.span.padded:
        stamps.known(Span(0, 0, run=True, padded=False))
    return remember(begun, stamps, key[:, :1], value[:, :1])


def _joined(first: Seen, groups: Seen) -> Seen:
    """Both side by side: the first token is an entry like a group."""
    pairs = zip(
        (first.order, first.position, *first.parts), (groups.order, groups.position, *groups.parts), strict=True
    )
    return Seen(*(torch.cat(pair, 1) for pair in pairs))


def _must_follow(where: Where) -> None:
    """Raise unless the orders of every row are consecutive: groups are counted by them."""
    if where.span.run:
        return
    gap = where.order[:, 1:] - where.order[:, :-1] != 1
    if bool((gap & where.real[:, 1:]).any()):
        raise InputError(
            "compressed attention groups tokens that follow one another, but the orders of this call have gaps; "
            "number the tokens of every row one after the other"
        )
