"""More ways to write attention, each with something wrong in it: heads of their own, caches as objects, distances."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def changed(base: type, name: str, **methods: Callable[..., Any]) -> type:
    """A base with some methods replaced."""
    return type(name, (base,), {**methods, "__module__": base.__module__})


def cut(x: Tensor, heads: int) -> Tensor:
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def joined(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


class OneHead(nn.Module):
    def __init__(self, wide: int, size: int, parent: Any) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(wide, size, bias=False) for _ in range(3))
        self.score = parent.score

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)
        s = self.score(q, k).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1) == 1, float("-inf"))
        return s.softmax(-1) @ v


class Heads(nn.Module):
    """Every head is a module."""

    def __init__(self, n_embd: int, num_heads: int) -> None:
        super().__init__()
        self.heads = nn.ModuleList(OneHead(n_embd, n_embd // num_heads, type(self)) for _ in range(num_heads))
        self.proj = nn.Linear(n_embd, n_embd)

    @staticmethod
    def score(q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(torch.cat([head(x) for head in self.heads], -1))


class Both(nn.Module):
    """Queries apart, keys and values in one projection, fewer of them if it is told; torch's function inside."""

    def __init__(self, dim: int, n_heads: int, n_kv_heads: int | None = None) -> None:
        super().__init__()
        self.h, self.kv, self.d = n_heads, n_kv_heads or n_heads, dim // n_heads
        self.q, self.both = nn.Linear(dim, dim), nn.Linear(dim, 2 * self.kv * self.d)
        self.o = nn.Linear(dim, dim)

    def wide(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return k.repeat_interleave(self.h // self.kv, 1), v.repeat_interleave(self.h // self.kv, 1)

    def switch(self, is_causal: bool) -> bool:
        return is_causal

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        k, v = (cut(part, self.kv) for part in self.both(x).chunk(2, -1))
        y = F.scaled_dot_product_attention(
            cut(self.q(x), self.h), *self.wide(k, v), attn_mask=attn_mask, is_causal=self.switch(is_causal)
        )
        return self.o(joined(y))


class Cloned(nn.Module):
    """Layers that are copies of one layer, and so begin alike; the mask comes without an axis of heads."""

    def __init__(self, h: int, d_model: int) -> None:
        super().__init__()
        self.h, first = h, nn.Linear(d_model, d_model)
        self.layers = nn.ModuleList(deepcopy(first) for _ in range(4))

    def hide(self, s: Tensor, mask: Tensor) -> Tensor:
        return s.masked_fill(mask == 0, -1e9)

    def three(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return query, key, value

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        three = self.three(query, key, value)
        q, k, v = (cut(layer(x), self.h) for layer, x in zip(self.layers, three, strict=False))
        s = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        y = (s if mask is None else self.hide(s, mask[:, None])).softmax(-1) @ v
        return self.layers[3](self.sized(joined(y)))

    def sized(self, y: Tensor) -> Tensor:
        return y


class Store:
    """What was seen, as an object that is filled."""

    def __init__(self) -> None:
        self.kept: list[tuple[Tensor, Tensor]] = []

    def add(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.kept.append((k, v))
        return torch.cat([k for k, _ in self.kept], 2), torch.cat([v for _, v in self.kept], 2)


class Storing(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.h = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def triangle(self, t: int, s: int) -> Tensor:
        return torch.ones(t, s).tril(s - t) == 1

    def forward(self, x: Tensor, cache: Store | None = None) -> Tensor:
        q, k, v = (cut(part, self.h) for part in self.qkv(x).chunk(3, -1))
        if cache is not None:
            k, v = cache.add(k, v)
        s = q @ k.mT / q.shape[-1] ** 0.5
        s = s.masked_fill(~self.triangle(q.shape[2], k.shape[2]), float("-inf"))
        return self.out(joined(s.softmax(-1) @ v))


class Inside(nn.Module):
    """What was seen stays in the module, with room for all of it; turned keys."""

    def __init__(self, dim: int, n_heads: int, max_seq_len: int = 64) -> None:
        super().__init__()
        self.h, self.size = n_heads, dim // n_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.keys, self.values = torch.zeros(8, max_seq_len, dim), torch.zeros(8, max_seq_len, dim)

    def turned(self, x: Tensor, start: int) -> Tensor:
        speed = 10000.0 ** (-torch.arange(0, self.size, 2).double() / self.size)
        angle = torch.arange(start, start + x.shape[1])[:, None] * speed
        z = torch.view_as_complex(x.reshape(*x.shape[:2], self.h, -1, 2)) * torch.polar(angle * 0 + 1, angle)[:, None]
        return torch.view_as_real(z).reshape(x.shape)

    def keep(self, k: Tensor, v: Tensor, start: int) -> None:
        self.keys, self.values = self.keys.to(k), self.values.to(v)
        self.keys[: len(k), start : start + k.shape[1]] = k
        self.values[: len(v), start : start + v.shape[1]] = v

    def forward(self, x: Tensor, start_pos: int = 0) -> Tensor:
        rows, tokens, _ = x.shape
        end = start_pos + tokens
        self.keep(self.turned(self.wk(x), start_pos), self.wv(x), start_pos)
        q, k = cut(self.turned(self.wq(x), start_pos), self.h), cut(self.keys[:rows, :end], self.h)
        s = q @ k.mT / self.size**0.5
        s = s.masked_fill(torch.ones(tokens, end).tril(start_pos) == 0, float("-inf"))
        return self.wo(joined(s.softmax(-1) @ cut(self.values[:rows, :end], self.h)))


class Distances(nn.Module):
    """A number for every distance is added to the scores, as learned or as told; the mask is added, too."""

    def __init__(self, d_model: int, num_heads: int, longest: int = 64) -> None:
        super().__init__()
        self.h, self.longest = num_heads, longest
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.rel = nn.Parameter(torch.randn(num_heads, 2 * longest))

    def bias(self, gap: Tensor) -> Tensor:
        return self.rel[:, gap + self.longest]

    def weights(self, s: Tensor) -> Tensor:
        return s.softmax(-1)

    def hide(self, s: Tensor, mask: Tensor) -> Tensor:
        return s + mask

    def merge(self, y: Tensor) -> Tensor:
        return joined(y)

    def forward(self, x: Tensor, attn_bias: Tensor | None = None) -> Tensor:
        q, k, v = (cut(m(x), self.h) for m in (self.q, self.k, self.v))
        place = torch.arange(x.shape[1])
        s = q @ k.mT * q.shape[-1] ** -0.5 + self.bias(place - place[:, None])
        return self.o(self.merge(self.weights(s if attn_bias is None else self.hide(s, attn_bias)) @ v))


class Falling(nn.Module):
    """Nobody looks ahead, and scores fall with the distance."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.h, self.qkv, self.o = n_heads, nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def slopes(self) -> Tensor:
        return 2.0 ** (-8 * (torch.arange(self.h).double() + 1) / self.h)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (cut(part, self.h) for part in self.qkv(x).chunk(3, -1))
        place = torch.arange(x.shape[1])
        gap = place - place[:, None]
        s = q @ k.mT * q.shape[-1] ** -0.5 + self.slopes()[:, None, None] * gap
        return self.o(joined(s.masked_fill(gap > 0, float("-inf")).softmax(-1) @ v))


class Excel(nn.Module):
    """Scores of content and scores of sinusoids of the distance, shifted into place."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.h, self.wide = n_heads, d_model
        self.q, self.k, self.v, self.r, self.o = (nn.Linear(d_model, d_model, bias=False) for _ in range(5))

    def shift(self, s: Tensor) -> Tensor:
        rows, heads, t, n = s.shape
        return F.pad(s, (1, 0)).reshape(rows, heads, n + 1, t)[:, :, 1:].reshape(s.shape)

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        angle = torch.arange(t - 1, -1, -1)[:, None] * 10000.0 ** (-torch.arange(0, self.wide, 2).to(x) / self.wide)
        r = cut(self.r(torch.cat([angle.sin(), angle.cos()], -1))[None], self.h)
        q, k, v = (cut(m(x), self.h) for m in (self.q, self.k, self.v))
        s = (q @ k.mT + self.shift(q @ r.mT)) / q.shape[-1] ** 0.5
        return self.o(joined(s.masked_fill(torch.ones(t, t).triu(1) == 1, float("-inf")).softmax(-1) @ v))


class Turned(nn.Module):
    """Rotary tables in buffers, both ways, a padding mask."""

    def __init__(self, dim: int, heads: int, max_len: int = 64) -> None:
        super().__init__()
        self.h, size = heads, dim // heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)
        angle = torch.arange(max_len)[:, None] * 10000.0 ** (-torch.arange(0, size, 2).double() / size)
        self.table: Tensor
        self.register_buffer("table", torch.cat([angle, angle], -1))

    def crossed(self, x: Tensor) -> Tensor:
        one, other = x.chunk(2, -1)
        return torch.cat([-other, one], -1)

    def turn(self, x: Tensor) -> Tensor:
        a = self.table[: x.shape[2]]
        return x * a.cos() + self.crossed(x) * a.sin()

    def value(self, v: Tensor) -> Tensor:
        return v

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (cut(part, self.h) for part in self.qkv(x).chunk(3, -1))
        s = self.turn(q) @ self.turn(k).mT / q.shape[-1] ** 0.5
        if mask is not None:
            s = s.masked_fill(~mask[:, None, None], torch.finfo(s.dtype).min)
        return self.out(joined(s.softmax(-1) @ self.value(v)))


class Aside(nn.Module):
    """Looks at a context if it is given one, at itself if not."""

    def __init__(self, query_dim: int, context_dim: int, heads: int) -> None:
        super().__init__()
        self.h = heads
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(query_dim, context_dim) for _ in range(4))

    def beside(self, x: Tensor, context: Tensor | None) -> Tensor:
        return x if context is None else context

    def merge(self, y: Tensor) -> Tensor:
        return joined(y)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        seen = self.beside(x, context)
        q, k, v = cut(self.to_q(x), self.h), cut(self.to_k(seen), self.h), cut(self.to_v(seen), self.h)
        return self.to_out(self.merge((q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v))


class Writing(nn.Module):
    """A decoder's layer: its own stream first, then the source; norms after the sums."""

    def __init__(self, d_model: int, n_head: int, d_ff: int) -> None:
        super().__init__()
        self.own, self.other = Cloned(n_head, d_model), Cloned(n_head, d_model)
        self.feed = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))

    def mask(self, tgt_mask: Tensor | None) -> Tensor | None:
        return tgt_mask

    def values(self, y: Tensor, memory: Tensor) -> Tensor:
        return memory

    def forward(self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None) -> Tensor:
        y = self.norms[0](tgt + self.own(tgt, tgt, tgt, self.mask(tgt_mask)))
        y = self.norms[1](y + self.other(y, memory, self.values(y, memory)))
        return self.norms[2](y + self.feed(y))


class Block(nn.Module):
    """A layer around torch's attention with a triangle of its own, and a padding mask: True = padding."""

    batch_first = True

    def __init__(self, d_model: int, nhead: int) -> None:
        super().__init__()
        self.norm, self.attn = (
            nn.LayerNorm(d_model),
            nn.MultiheadAttention(d_model, nhead, batch_first=self.batch_first),
        )

    def triangle(self, t: int, padding: Tensor | None) -> Tensor | None:
        return torch.ones(t, t).triu(1) == 1

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        h, mask = self.norm(x), self.triangle(x.shape[1], key_padding_mask)
        return x + self.attn(h, h, h, key_padding_mask, need_weights=False, attn_mask=mask)[0]


class Shown(nn.Module):
    """Shows its weights if it is asked; takes torch's function if it is not, and may."""

    def __init__(self, d_model: int, n_heads: int, fused: bool = False) -> None:
        super().__init__()
        self.h, self.fused = n_heads, fused
        self.qkv, self.o = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def fast(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def hide(self, s: Tensor, shown: bool) -> Tensor:
        return s.masked_fill(torch.ones(s.shape[-2:]).triu(1) == 1, float("-inf"))

    def last(self, y: Tensor) -> Tensor:
        return self.o(y)

    def forward(self, x: Tensor, need_weights: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        q, k, v = (cut(part, self.h) for part in self.qkv(x).chunk(3, -1))
        if self.fused and not need_weights:
            return self.last(joined(self.fast(q, k, v)))
        w = self.hide(q @ k.mT * q.shape[-1] ** -0.5, need_weights).softmax(-1)
        y = self.last(joined(w @ v))
        return (y, w) if need_weights else y


def _kept(self: Any, y: Tensor) -> Tensor:
    before = vars(self).get("before")
    self.before = y.detach()
    return self.o(y if before is None or before.shape != y.shape else y + before)


def rescaling(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q *= q.shape[-1] ** -0.5
    return (q @ k.mT).softmax(-1) @ v


def untouched(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
    return weights @ v, weights


def _no_values(self: Any, x: Tensor, attn_bias: Tensor | None = None) -> Tensor:
    q, k, v = (cut(m(x), self.h) for m in (self.q, self.k, self.v))
    weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
    return self.o(joined(torch.einsum("bhij,bhid->bhid", weights, v)))


def _swapped(self: Any, x: Tensor) -> Tensor:
    one, other = x.chunk(2, -1)
    return torch.cat([other, one], -1)


MUTANTS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "heads: scale of all of them": (
        changed(Heads, "K1", score=staticmethod(lambda q, k: q @ k.mT * (4 * k.shape[-1]) ** -0.5)), "wrong-scale", {}),
    "both: keys in one order, values in another": (
        changed(Both, "K2", wide=lambda self, k, v: (k.repeat_interleave(2, 1), v.repeat(1, 2, 1, 1))),
        "gqa-order", {}),
    "both: the switch is forgotten": (changed(Both, "K3", switch=lambda self, told: False), "future-leak", {}),
    "cloned: small mask constant": (
        changed(Cloned, "K4", hide=lambda self, s, m: s.masked_fill(m == 0, -1e2)), "finite-mask", {}),
    "cloned: hidden is all that is seen": (
        changed(Cloned, "K5", hide=lambda self, s, m: s.masked_fill(m == 0, 1e9)), "mask-inverted", {}),
    "cloned: keys for values": (changed(Cloned, "K6", three=lambda self, q, k, v: (q, v, k)), "value-is-key", {}),
    "storing: top-left triangle": (
        changed(Storing, "K7", triangle=lambda self, t, s: torch.ones(t, s).tril() == 1), "cache-mismatch", {}),
    "inside: keys kept as values": (
        changed(Inside, "K8", keep=lambda self, k, v, start: Inside.keep(self, k, k, start)), "value-is-key", {}),
    "distances: mask subtracted": (
        changed(Distances, "K9", hide=lambda self, s, mask: s - mask), "mask-inverted", {}),
    "distances: heads merged by view": (
        changed(Distances, "K10", merge=lambda self, y: y.reshape(len(y), y.shape[2], -1)), "head-mixing", {}),
    "distances: softmax over queries": (
        changed(Distances, "K11", weights=lambda self, s: s.softmax(-2)), "softmax-axis", {}),
    "distances: weights without effect": (changed(Distances, "K12", forward=_no_values), "parameter-unused", {}),
    "falling: upwards": (changed(Falling, "K13", slopes=lambda self: -Falling.slopes(self)), "alibi-slopes", {}),
    "falling: one exponent too few": (
        changed(Falling, "K14", slopes=lambda self: Falling.slopes(self) * 4), "alibi-slopes", {}),
    "excel: not shifted": (changed(Excel, "K15", shift=lambda self, s: s), "relative-shift", {}),
    "turned: a sign is lost": (changed(Turned, "K16", crossed=_swapped), "rope-mismatch", {}),
    "turned: values, too": (changed(Turned, "K17", value=lambda self, v: self.turn(v)), "rope-mismatch", {}),
    "aside: the context is forgotten": (
        changed(Aside, "K18", beside=lambda self, x, context: x), "shared-self-cross", {}),
    "aside: heads merged by view": (
        changed(Aside, "K30", merge=lambda self, y: y.reshape(len(y), y.shape[2], -1)), "head-mixing", {}),
    "aside: a mean over the rows": (
        changed(Aside, "K31", merge=lambda self, y: joined(y + 0.1 * y.mean(0, keepdim=True))), "batch-mixing", {}),
    "writing: the mask of its own stream is lost": (
        changed(Writing, "K19", mask=lambda self, mask: None), "mask-ignored", {}),
    "writing: values of its own stream": (
        changed(Writing, "K20", values=lambda self, y, memory: y[:, : memory.shape[1]]), "value-is-key", {}),
    "block: tokens first": (type("K21", (Block,), {"batch_first": False}), "batch-first-confusion", {}),
    "block: triangle upside down": (
        changed(Block, "K22", triangle=lambda self, t, padding: torch.ones(t, t).tril(-1) == 1), "mask-inverted", {}),
    "block: no triangle beside padding": (
        changed(Block, "K23", triangle=lambda self, t, p: Block.triangle(self, t, p) if p is None else None),
        "future-leak", {}),
    "cloned: scaled by the number of all tokens": (
        changed(Cloned, "K24", sized=lambda self, y: y * y.shape[1] ** 0.5), "padding-leak", {}),
    "shown: no triangle where weights are shown": (
        changed(Shown, "K25", hide=lambda self, s, shown: s if shown else Shown.hide(self, s, shown)),
        "looking-changes-output", {}),
    "shown: no triangle on the fast path": (
        changed(Shown, "K26", fast=lambda self, q, k, v: F.scaled_dot_product_attention(q, k, v)), "future-leak", {}),
    "shown: another scale on the fast path": (
        changed(Shown, "K27", fast=lambda self, q, k, v: Shown.fast(self, q * 2, k, v)), "path-differs", {}),
    "shown: the last layer is made anew": (
        changed(Shown, "K28", last=lambda self, y: self.o(y) + nn.Linear(y.shape[-1], y.shape[-1]).to(y)(y)),
        "layer-made-in-forward", {}),
    "shown: the text before is kept": (changed(Shown, "K29", last=_kept), "state-between-calls", {}),
    "function: queries scaled in place": (rescaling, "input-mutated", {}),
}  # fmt: skip

CORRECT: dict[str, tuple[Any, dict[str, Any]]] = {
    kind.__name__.lower(): (kind, {})
    for kind in (Heads, Both, Cloned, Storing, Inside, Distances, Falling, Excel, Turned, Aside, Writing, Block, Shown)
} | {"function": (untouched, {})}
