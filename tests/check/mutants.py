"""Attention with one thing wrong in it, in the ways people write attention. `MUTANTS`: what must be found, by name.

The classes are written as one meets them, not as heed would write them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.check import styles
from tests.check.styles import changed


class Classic(nn.Module):
    """Four linear layers, (q, k, v, mask), mask 1 = may be seen."""

    def __init__(self, d_model: int, num_heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.h, self.d_k = num_heads, d_model // num_heads
        self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_v, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], -1, self.h, self.d_k).transpose(1, 2)

    def merge(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).contiguous().view(x.shape[0], -1, self.h * self.d_k)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) / math.sqrt(self.d_k)

    def hide(self, s: Tensor, mask: Tensor | None) -> Tensor:
        return s if mask is None else s.masked_fill(mask == 0, -1e9)

    def weights(self, s: Tensor, mask: Tensor | None) -> Tensor:
        return self.hide(s, mask).softmax(-1)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.split(self.w_q(q)), self.split(self.w_k(k)), self.split(self.w_v(v))
        w = self.dropout(self.weights(self.scores(q, k), mask))
        return self.w_o(self.merge(w @ v))


class Fused(nn.Module):
    """One projection for all three, causal, as in a small GPT."""

    def __init__(self, n_embd: int, n_head: int, block_size: int = 64, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_head, self.p = n_head, dropout
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.tril: Tensor
        self.register_buffer("tril", self.triangle(block_size).view(1, 1, block_size, block_size))

    def triangle(self, n: int) -> Tensor:
        return torch.tril(torch.ones(n, n))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        t = q.shape[2]
        att = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        att = att.masked_fill(self.tril[:, :, :t, :t] == 0, float("-inf"))
        return att.softmax(-1) @ v

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.c_attn(x).split(c, dim=2)
        q, k, v = (z.view(b, t, self.n_head, c // self.n_head).transpose(1, 2) for z in (q, k, v))
        return self.c_proj(self.attend(q, k, v).transpose(1, 2).contiguous().view(b, t, c))


class Einsum(nn.Module):
    """Bare parameters and einsum, a bool mask, True = may be seen."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        size = dim // heads
        self.wq, self.wk, self.wv = (nn.Parameter(torch.randn(dim, heads, size) * dim**-0.5) for _ in range(3))
        self.wo = nn.Parameter(torch.randn(heads, size, dim) * dim**-0.5)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        s = torch.einsum("bihd,bjhd->bhij", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            s = s.masked_fill(~mask[:, None], float("-inf"))
        return torch.einsum("bhij,bjhd->bihd", self.normal(s), v)

    def normal(self, s: Tensor) -> Tensor:
        return s.softmax(-1)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (torch.einsum("btd,dhk->bthk", x, w) for w in (self.wq, self.wk, self.wv))
        return torch.einsum("bthk,hkd->btd", self.mix(q, k, v, mask), self.wo)


class Wrapped(nn.Module):
    """Around torch's own, with a residual connection and a norm."""

    batch_first = True

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, batch_first=self.batch_first)
        self.norm = nn.LayerNorm(embed_dim)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        return self.norm(x + self.attn(x, x, x, key_padding_mask=key_padding_mask, need_weights=False)[0])


class Grouped(nn.Module):
    """Fewer key heads than query heads, rotary positions, causal, with a cache that is handed on."""

    def __init__(self, hidden_size: int, num_heads: int, num_kv_heads: int) -> None:
        super().__init__()
        self.h, self.kv, self.d = num_heads, num_kv_heads, hidden_size // num_heads
        self.q_proj = nn.Linear(hidden_size, num_heads * self.d, bias=False)
        self.k_proj = nn.Linear(hidden_size, num_kv_heads * self.d, bias=False)
        self.v_proj = nn.Linear(hidden_size, num_kv_heads * self.d, bias=False)
        self.o_proj = nn.Linear(num_heads * self.d, hidden_size, bias=False)

    def angles(self, start: int, t: int) -> Tensor:
        speed = 10000.0 ** (-torch.arange(0, self.d, 2).double() / self.d)
        return torch.cat([torch.arange(start, start + t)[:, None] * speed] * 2, -1)

    def turn(self, x: Tensor, start: int) -> Tensor:
        a = self.angles(start, x.shape[2])
        half = torch.cat([-x[..., self.d // 2 :], x[..., : self.d // 2]], -1)
        return x * a.cos() + half * a.sin()

    def repeat(self, x: Tensor) -> Tensor:
        return x.repeat_interleave(self.h // self.kv, dim=1)

    def repeat_value(self, x: Tensor) -> Tensor:
        return self.repeat(x)

    def begin(self, past: int) -> int:
        return past

    def triangle(self, t: int, s: int) -> Tensor:
        return torch.ones(t, s, dtype=torch.bool).tril(s - t)

    def forward(self, x: Tensor, past_key_value: Any = None) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self.h, self.d).transpose(1, 2)
        k, v = (m(x).view(b, t, self.kv, self.d).transpose(1, 2) for m in (self.k_proj, self.v_proj))
        past = 0 if past_key_value is None else past_key_value[0].shape[2]
        q, k = self.turn(q, self.begin(past)), self.turn(k, self.begin(past))
        if past_key_value is not None:
            k, v = (torch.cat([old, new], 2) for old, new in zip(past_key_value, (k, v), strict=True))
        s = q @ self.repeat(k).transpose(-2, -1) / self.d**0.5
        s = s.masked_fill(~self.triangle(t, k.shape[2]), float("-inf"))
        y = (s.softmax(-1) @ self.repeat_value(v)).transpose(1, 2).reshape(b, t, -1)
        return self.o_proj(y), (k, v)


class Placed(nn.Module):
    """Learned places, a padding mask in the manner of transformers: 1 = is there."""

    def __init__(self, hidden_size: int, num_attention_heads: int, max_position_embeddings: int = 64) -> None:
        super().__init__()
        self.h = num_attention_heads
        self.pos = nn.Embedding(max_position_embeddings, hidden_size)
        self.qkv, self.o = nn.Linear(hidden_size, 3 * hidden_size), nn.Linear(hidden_size, hidden_size)

    def places(self, t: int) -> Tensor:
        return torch.arange(t)

    def shown(self, mask: Tensor) -> Tensor:
        return mask[:, None, None, :]

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        b, t, d = hidden_states.shape
        x = hidden_states + self.pos(self.places(t))
        q, k, v = (z.view(b, t, self.h, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        s = q @ k.transpose(-2, -1) / (d // self.h) ** 0.5
        if attention_mask is not None:
            s = s + (1.0 - self.shown(attention_mask).to(s)) * -1e9
        return self.o((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


class Flat(nn.Module):
    """Heads laid beside the rows, as older code has it: [rows·heads, tokens, size]."""

    def __init__(self, d_model: int, nhead: int) -> None:
        super().__init__()
        self.h = nhead
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))

    def repeated(self, mask: Tensor) -> Tensor:
        return mask.repeat_interleave(self.h, 0)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        b, t, d = x.shape
        q, k, v = (m(x).view(b, t, self.h, -1).transpose(1, 2).flatten(0, 1) for m in (self.q, self.k, self.v))
        s = torch.bmm(q, k.transpose(1, 2)) / (d // self.h) ** 0.5
        if key_padding_mask is not None:
            s = s.masked_fill(self.repeated(key_padding_mask)[:, None], -1e9)
        y = torch.bmm(s.softmax(-1), v).view(b, self.h, t, -1).transpose(1, 2)
        return self.o(y.reshape(b, t, d))


class Chunky(Fused):
    """A causal triangle, and a mean over blocks of four that no mask hides."""

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        block = torch.arange(t) // 4
        mean = torch.stack([x[:, block == b].mean(1) for b in block], 1)
        return super().forward(x + 0.1 * mean)


class Windowed(Fused):
    """Sees itself and those before it, `window` in all."""

    def __init__(self, n_embd: int, n_head: int, window: int = 3, block_size: int = 64) -> None:
        self.window = window
        super().__init__(n_embd, n_head, block_size)

    def triangle(self, n: int) -> Tensor:
        return torch.ones(n, n).tril().triu(1 - self.window)


def _late(self: Any, s: Tensor, mask: Tensor | None) -> Tensor:
    w = s.softmax(-1)
    return w if mask is None else w * (mask != 0)


def _zeroed(self: Any, s: Tensor, mask: Tensor | None) -> Tensor:
    return s if mask is None else s * (mask != 0)


def _lost(self: Any, s: Tensor, mask: Tensor | None) -> Tensor:
    if mask is not None:
        s.masked_fill(mask == 0, -1e9)
    return s


def _unsafe(self: Any, s: Tensor, mask: Tensor | None) -> Tensor:
    e = self.hide(s, mask).float().exp()
    return (e / e.sum(-1, keepdim=True)).to(s.dtype)


def _top_left(self: Any, t: int, s: int) -> Tensor:
    return torch.ones(t, s, dtype=torch.bool).tril()


def _neighbours(self: Any, start: int, t: int) -> Tensor:
    speed = 10000.0 ** (-torch.arange(0, self.d, 2).double() / self.d)
    return (torch.arange(start, start + t)[:, None] * speed).repeat_interleave(2, -1)


def _coarse(self: Any, start: int, t: int) -> Tensor:
    return Grouped.angles(self, start, t).bfloat16().double()


def _no_training_flag(self: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.p)


def _keys_twice(self: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    return Einsum.mix(self, q, k, k, mask)


def _safe_mix(self: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    s = torch.einsum("bihd,bjhd->bhij", q, k) / q.shape[-1] ** 0.5
    return torch.einsum("bhij,bjhd->bihd", (s if mask is None else s.masked_fill(~mask[:, None], -1e9)).softmax(-1), v)


MUTANTS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "classic: scale of all heads": (
        changed(Classic, "A1", scores=lambda self, q, k: q @ k.mT / math.sqrt(self.h * self.d_k)), "wrong-scale", {}),
    "classic: scale of the number of heads": (
        changed(Classic, "A2", scores=lambda self, q, k: q @ k.mT / math.sqrt(self.h)), "wrong-scale", {}),
    "classic: scale inverted": (
        changed(Classic, "A3", scores=lambda self, q, k: q @ k.mT * math.sqrt(self.d_k)), "wrong-scale", {}),
    "classic: no scale, declared": (
        changed(Classic, "A4", scores=lambda self, q, k: q @ k.mT), "wrong-scale", {"scale": "head"}),
    "classic: scale after the softmax": (
        changed(Classic, "A5", scores=lambda self, q, k: q @ k.mT,
                weights=lambda self, s, m: self.hide(s, m).softmax(-1) / math.sqrt(self.d_k)),
        "scale-after-softmax", {}),
    "classic: no softmax": (changed(Classic, "A6", weights=lambda self, s, m: self.hide(s, m)), "no-softmax", {}),
    "classic: softmax over queries": (
        changed(Classic, "A7", weights=lambda self, s, m: self.hide(s, m).softmax(-2)), "softmax-axis", {}),
    "classic: softmax over heads": (
        changed(Classic, "A8", weights=lambda self, s, m: self.hide(s, m).softmax(1)), "softmax-axis", {}),
    "classic: mask inverted": (
        changed(Classic, "A9", hide=lambda self, s, m: s if m is None else s.masked_fill(m == 1, -1e9)),
        "mask-inverted", {}),
    "classic: mask inverted, bool, declared": (
        changed(Classic, "A10", hide=lambda self, s, m: s if m is None else s.masked_fill(m, float("-inf"))),
        "mask-inverted", {"mask_true": "attend"}),
    "classic: masked_fill not assigned": (changed(Classic, "A11", hide=_lost), "mask-ignored", {}),
    "classic: mask after the softmax": (changed(Classic, "A12", weights=_late), "mask-after-softmax", {}),
    "classic: mask times the scores": (changed(Classic, "A13", hide=_zeroed), "mask-after-softmax", {}),
    "classic: heads split by view": (
        changed(Classic, "A14", split=lambda self, x: x.reshape(x.shape[0], self.h, -1, self.d_k)), "head-mixing", {}),
    "classic: heads merged by view": (
        changed(Classic, "A15", merge=lambda self, x: x.reshape(x.shape[0], -1, self.h * self.d_k)), "head-mixing", {}),
    "classic: small mask constant": (
        changed(Classic, "A16", hide=lambda self, s, m: s if m is None else s.masked_fill(m == 0, -1e2)),
        "finite-mask", {}),
    "classic: unsafe softmax": (changed(Classic, "A17", weights=_unsafe), "overflow", {}),
    "classic: minus infinity everywhere, if that counts": (
        changed(Classic, "A18", hide=lambda self, s, m: s if m is None else s.masked_fill(m == 0, float("-inf"))),
        "dead-row-nan", {"strict": True}),
    "classic: NaN replaced": (
        changed(Classic, "A19", weights=lambda self, s, m: s.softmax(-1) if m is None else
                (s + torch.where(m == 0, float("-inf"), 0.0)).softmax(-1).nan_to_num(0.0)), "dead-row-gradient", {}),
    "fused: sees one ahead": (
        changed(Fused, "B1", triangle=lambda self, n: torch.tril(torch.ones(n, n), 1)), "future-leak", {}),
    "fused: excludes itself": (
        changed(Fused, "B2", triangle=lambda self, n: torch.tril(torch.ones(n, n), -1)), "excludes-self", {}),
    "fused: triangle inverted": (
        changed(Fused, "B3", triangle=lambda self, n: torch.triu(torch.ones(n, n))), "mask-inverted", {"causal": True}),
    "fused: no mask, declared causal": (
        changed(Fused, "B4", triangle=lambda self, n: torch.ones(n, n)), "future-leak", {"causal": True}),
    "fused: dropout in eval": (changed(Fused, "B5", attend=_no_training_flag), "dropout-in-eval", {}),
    "einsum: keys as values": (changed(Einsum, "C1", mix=_keys_twice), "value-is-key", {}),
    "einsum: softmax over queries": (changed(Einsum, "C2", normal=lambda self, s: s.softmax(-2)), "softmax-axis", {}),
    "einsum: sum instead of softmax": (
        changed(Einsum, "C3", normal=lambda self, s: s / s.sum(-1, keepdim=True)), "no-softmax", {"seed": 24}),
    "wrapped: tokens first, declared rows first": (
        type("D1", (Wrapped,), {"batch_first": False}), "batch-first-confusion", {"layout": "bsd"}),
    "grouped: top-left triangle": (changed(Grouped, "G1", triangle=_top_left), "cache-mismatch", {}),
    "grouped: positions start anew": (changed(Grouped, "G2", begin=lambda self, past: 0), "cache-offset", {}),
    "grouped: layouts mixed": (changed(Grouped, "G3", angles=_neighbours), "rope-mismatch", {}),
    "grouped: coarse angles": (changed(Grouped, "G4", angles=_coarse), "rope-precision", {}),
    "grouped: tiled keys, declared": (
        changed(Grouped, "G5", repeat=lambda self, x: x.repeat(1, self.h // self.kv, 1, 1)),
        "gqa-order", {"gqa": "interleave"}),
    "grouped: tiled keys, interleaved values": (
        changed(Grouped, "G6", repeat=lambda self, x: x.repeat(1, self.h // self.kv, 1, 1),
                repeat_value=lambda self, x: x.repeat_interleave(self.h // self.kv, 1)), "gqa-order", {}),
    "placed: places from the end": (
        changed(Placed, "H1", places=lambda self, t: torch.arange(t).flip(0)), "padding-leak", {}),
    "placed: mask along the queries": (
        changed(Placed, "H2", shown=lambda self, mask: mask[:, None, :, None]), "mask-on-queries", {}),
    "placed: mask forgotten": (
        changed(Placed, "H3", shown=lambda self, mask: torch.ones_like(mask)[:, None, None, :]), "mask-ignored", {}),
    "flat: mask repeated head by head": (
        changed(Flat, "I1", repeated=lambda self, mask: mask.repeat(self.h, 1)), "batch-mixing", {}),
    "fused: a mean over blocks": (Chunky, "future-leak", {"causal": True}),
    "windowed: one too many": (
        changed(Windowed, "J1", triangle=lambda self, n: torch.ones(n, n).tril().triu(-self.window)),
        "window-extent", {"window": 3}),
    "fused: no causal mask in a class of that name": (
        changed(Fused, "CausalSelfAttention", triangle=lambda self, n: torch.ones(n, n)), "future-leak", {}),
    "classic: queries as values": (
        changed(Classic, "A20", forward=lambda self, q, k, v, mask=None: Classic.forward(self, q, k, q, mask)),
        "value-is-key", {}),
    "grouped: keys not turned": (
        changed(Grouped, "G7", turn=lambda self, x, start: Grouped.turn(self, x, start) if x.shape[1] == self.h else x),
        "rope-mismatch", {}),
    **styles.MUTANTS,
}  # fmt: skip

CORRECT: dict[str, tuple[Any, dict[str, Any]]] = {
    "classic": (Classic, {}),
    "fused": (Fused, {}),
    "grouped": (Grouped, {}),
    "einsum": (changed(Einsum, "Safe", mix=_safe_mix), {}),
    "placed": (Placed, {}),
    "flat": (Flat, {}),
    "windowed": (Windowed, {"window": 3}),
    "torch's own": (nn.MultiheadAttention, {}),
    "wrapped": (Wrapped, {}),
    "encoder layer": (nn.TransformerEncoderLayer, {}),
    "encoder layer, norm first": (nn.TransformerEncoderLayer, {"init": {"norm_first": True}}),
    "decoder layer": (nn.TransformerDecoderLayer, {}),
    "torch's function": (F.scaled_dot_product_attention, {}),
    **styles.CORRECT,
}
