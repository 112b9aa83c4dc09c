"""Attention written out, and written out wrongly in all the ways that people write it wrongly.

Where a module's projections can be seen (`trace.py`), what it makes of them is compared with the right form and with
every wrong one. An output that equals a wrong form to the last digit names the bug with certainty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias

import torch
from torch import Tensor

Rotation: TypeAlias = Literal["none", "half", "pairs"]
Wrong: TypeAlias = "Callable[[Parts, Conventions], Tensor]"
SAME = 1e-9  # relative: rounding in float64 stays below it, no two forms come so close by chance
COARSE = (
    3e-6  # the same where a module computes some of it in float32, whatever it is given: some 30 roundings of 2^-24
)


@dataclass(frozen=True, eq=False)
class Parts:
    """What a module projects, before it is split into heads, and who may see whom."""

    query: Tensor  # [B, T, H·d]
    key: Tensor  # [B, S, K·d]
    value: Tensor  # [B, S, K·v]
    sees: Tensor  # [B|1, T, S]
    heads: int
    model: int = 0  # the width of the stream that they were made of

    @property
    def kv_heads(self) -> int:
        return self.heads * self.key.shape[-1] // self.query.shape[-1]

    @property
    def size(self) -> int:
        return self.query.shape[-1] // self.heads


@dataclass(frozen=True)
class Conventions:
    """What may be done in one way or another, without being wrong."""

    rotation: Rotation = "none"
    alibi: bool = False
    scale: str = "head"
    number: float = 1.0  # the scale itself where it is none of those that have a name
    tiled: bool = False  # key heads serve query heads 0, K, 2K ... rather than neighbours
    channels_first: bool = False  # channel c belongs to head c mod H
    merged_so: bool = False  # the same of the output: einsum lays its operands out as it likes

    def words(self) -> Iterator[tuple[str, str]]:
        yield "scale", SCALES[self.scale].format(self.number)
        if self.rotation != "none":
            yield "rotary positions", {"half": "halves (as Llama)", "pairs": "neighbours (as GPT-J)"}[self.rotation]
        if self.alibi:
            yield "positions", "ALiBi"


SCALES = {
    "head": "1/√(size of a head)",
    "none": "none",
    "width": "1/√(width of all heads)",
    "model": "1/√(d_model)",
    "heads": "1/√(number of heads)",
    "times": "·√(size of a head)",
    "times width": "·√(width of all heads)",
    "size": "1/(size of a head)",
    "tokens": "1/√(number of tokens)",
    "value": "1/√(half a head)",
    "other": "{:.4g}",
}


def scales_of(size: int, heads: int, tokens: int, model: int) -> dict[str, float]:
    """The numbers that the names of scales stand for, what is right first."""
    return {
        "head": size**-0.5,
        "none": 1.0,
        "width": (size * heads) ** -0.5,
        "model": max(model, 1) ** -0.5,
        "heads": heads**-0.5,
        "times": size**0.5,
        "times width": (size * heads) ** 0.5,
        "size": 1.0 / size,
        "tokens": tokens**-0.5,
        "value": (size / 2) ** -0.5,
    }


def scale_of(parts: Parts, how: Conventions) -> float:
    """By what scores are multiplied."""
    if how.scale == "other":
        return how.number
    return scales_of(parts.size, parts.heads, parts.key.shape[1], parts.model)[how.scale]


def attention(parts: Parts, how: Conventions) -> Tensor:
    """softmax(q·k scale) v, head by head, side by side. [B, T, H·d]"""
    query, key, value = _three(parts, how)
    return _merged(_weights(_scores(query, key, parts, how), parts) @ value, how)


def split(x: Tensor, heads: int, how: Conventions) -> Tensor:
    """[B, T, H·d] -> [B, H, T, d]"""
    if how.channels_first:
        return x.reshape(*x.shape[:-1], -1, heads).permute(0, 3, 1, 2)
    return x.reshape(*x.shape[:-1], heads, -1).transpose(1, 2)


def _three(parts: Parts, how: Conventions) -> tuple[Tensor, Tensor, Tensor]:
    return _split_once(parts, replace(how, scale="head", number=1.0, alibi=False, merged_so=False))


@lru_cache(maxsize=16)  # forms that differ in their scores alone are tried one after the other
def _split_once(parts: Parts, how: Conventions) -> tuple[Tensor, Tensor, Tensor]:
    query = _turned(split(parts.query, parts.heads, how), how.rotation)
    key = _turned(split(parts.key, parts.kv_heads, how), how.rotation)
    return query, _spread(key, parts.heads, how), _spread(split(parts.value, parts.kv_heads, how), parts.heads, how)


def _spread(x: Tensor, heads: int, how: Conventions) -> Tensor:
    many = heads // x.shape[1]
    return x.repeat(1, many, 1, 1) if how.tiled else x.repeat_interleave(many, 1)


def _turned(x: Tensor, rotation: Rotation) -> Tensor:
    if rotation == "none":
        return x
    tokens, size = x.shape[2:]
    angle = torch.arange(tokens)[:, None] * 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    cos, sin = angle.cos(), angle.sin()
    one, other = x.chunk(2, -1) if rotation == "half" else (x[..., ::2], x[..., 1::2])
    turned = (one * cos - other * sin, one * sin + other * cos)
    return torch.cat(turned, -1) if rotation == "half" else torch.stack(turned, -1).flatten(-2)


def slopes(heads: int) -> Tensor:
    """ALiBi's slopes of any number of heads (Press et al. 2022)."""
    power = 1 << (heads.bit_length() - 1)
    first = [2.0 ** (-8 * (h + 1) / power) for h in range(power)]
    rest = [2.0 ** (-4 * (2 * h + 1) / power) for h in range(heads - power)]
    return torch.tensor(first + rest, dtype=torch.float64)


def _scores(query: Tensor, key: Tensor, parts: Parts, how: Conventions) -> Tensor:
    score = query @ key.mT * scale_of(parts, how)
    if how.alibi:
        gap = torch.arange(score.shape[-1]) - torch.arange(score.shape[-2])[:, None]
        score = score + slopes(parts.heads)[:, None, None] * gap.clamp(max=0)
    return score


def _weights(score: Tensor, parts: Parts) -> Tensor:
    return score.masked_fill(~parts.sees[:, None], float("-inf")).softmax(-1).nan_to_num(0.0)


def _merged(y: Tensor, how: Conventions) -> Tensor:
    return y.permute(0, 2, 3, 1).flatten(2) if how.merged_so else y.transpose(1, 2).flatten(2)


# --- the wrong forms ---


def _by_scores(change: Callable[[Tensor, Parts], Tensor]) -> Wrong:
    """A form that differs in what becomes of the scores: scores -> weights."""

    def made(parts: Parts, how: Conventions) -> Tensor:
        query, key, value = _three(parts, how)
        return _merged(change(_scores(query, key, parts, how), parts) @ value, how)

    return made


def _hidden(parts: Parts) -> Tensor:
    return ~parts.sees[:, None]


def _softmax_over(axis: int) -> Wrong:
    def weights(score: Tensor, parts: Parts) -> Tensor:
        return score.masked_fill(_hidden(parts), float("-inf")).softmax(axis).nan_to_num(0.0)

    return _by_scores(weights)


def _after(score: Tensor, parts: Parts) -> Tensor:
    return score.softmax(-1).masked_fill(_hidden(parts), 0.0)


def _times_zero(score: Tensor, parts: Parts) -> Tensor:
    return score.masked_fill(_hidden(parts), 0.0).softmax(-1)


def _unscaled_then_scaled(parts: Parts, how: Conventions) -> Tensor:
    bare = replace(how, scale="none")
    query, key, value = _three(parts, bare)
    return _merged(_weights(_scores(query, key, parts, bare), parts) * parts.size**-0.5 @ value, how)


def _no_softmax(score: Tensor, parts: Parts) -> Tensor:
    return score.masked_fill(_hidden(parts), 0.0)


def _mean_scores(score: Tensor, parts: Parts) -> Tensor:
    shown = score.masked_fill(_hidden(parts), 0.0)
    return shown / shown.sum(-1, keepdim=True)


def _sigmoid(score: Tensor, parts: Parts) -> Tensor:
    return score.sigmoid().masked_fill(_hidden(parts), 0.0)


def _other_values(which: str) -> Wrong:
    def made(parts: Parts, how: Conventions) -> Tensor:
        other = {"key": parts.key, "query": parts.query}[which]
        return attention(replace(parts, value=other), how) if other.shape[1] == parts.key.shape[1] else _never(parts)

    return made


def _turned_keys(parts: Parts, how: Conventions) -> Tensor:
    """Keys as values, after they were turned."""
    if how.rotation == "none" or parts.key.shape[1] != parts.query.shape[1]:
        return _never(parts)
    query, key, _ = _three(parts, how)
    return _merged(_weights(_scores(query, key, parts, how), parts) @ key, how)


def _cut(x: Tensor, size: int) -> Tensor:
    """[B, T, H·d] as it lies in memory -> [B, H, T, d]"""
    return x.reshape(len(x), x.shape[-1] // size, -1, size)


def _viewed(which: str) -> Wrong:
    """Some of the three, [B, T, H·d], taken for [B, H, T, d] as they lie in memory."""

    def made(parts: Parts, how: Conventions) -> Tensor:
        right = _three(parts, how)
        query, key, value = (
            _spread(_cut(whole, part.shape[-1]), parts.heads, how) if name in which else part
            for name, whole, part in zip("qkv", (parts.query, parts.key, parts.value), right, strict=True)
        )
        return _merged(_weights(_scores(query, key, parts, how), parts) @ value, how)

    return made


def _view_both_ways(parts: Parts, how: Conventions) -> Tensor:
    rows, tokens, heads = *parts.query.shape[:2], parts.heads
    if parts.kv_heads != heads:
        return _never(parts)
    query, key, value = (_cut(x, x.shape[-1] // heads) for x in (parts.query, parts.key, parts.value))
    return (_weights(_scores(query, key, parts, how), parts) @ value).reshape(rows, tokens, -1)


def _merge_by_view(parts: Parts, how: Conventions) -> Tensor:
    """[B, H, T, d] taken for [B, T, H·d] as it lies in memory."""
    query, key, value = _three(parts, how)
    return (_weights(_scores(query, key, parts, how), parts) @ value).reshape(*parts.query.shape[:2], -1)


def _over_heads(transposed: bool) -> Wrong:
    """Heads attend to heads, inside each token; then tokens and heads are exchanged, or not."""

    def made(parts: Parts, how: Conventions) -> Tensor:
        if parts.kv_heads != parts.heads or parts.key.shape[1] != parts.query.shape[1]:
            return _never(parts)
        three = (parts.query, parts.key, parts.value)
        query, key, value = (x.reshape(*x.shape[:-1], parts.heads, -1) for x in three)
        y = (query @ key.mT * scale_of(parts, how)).softmax(-1) @ value
        return y.transpose(1, 2).reshape(*parts.query.shape[:2], -1) if transposed else y.flatten(2)

    return made


def _over_keys(parts: Parts, how: Conventions) -> Tensor:
    """Weights that are divided once more by the number of keys."""
    return attention(parts, how) / parts.key.shape[1]


def _by_queries(parts: Parts, how: Conventions) -> Tensor:
    """Weights used the wrong way round: those of the queries sum the values."""
    query, key, value = _three(parts, how)
    weights = _weights(_scores(query, key, parts, how), parts)
    return _merged(weights.mT @ value, how) if weights.shape[-1] == weights.shape[-2] else _never(parts)


def _swapped(parts: Parts, how: Conventions) -> Tensor:
    """Keys ask and queries answer."""
    if parts.key.shape != parts.query.shape:
        return _never(parts)
    return attention(replace(parts, query=parts.key, key=parts.query), how)


def _mixed_spread(parts: Parts, how: Conventions) -> Tensor:
    """Keys given to the heads in one order, values in the other."""
    if parts.kv_heads in (1, parts.heads):
        return _never(parts)
    query, key, _ = _three(parts, how)
    _, _, value = _three(parts, replace(how, tiled=not how.tiled))
    return _merged(_weights(_scores(query, key, parts, how), parts) @ value, how)


def _mixed_rotation(parts: Parts, how: Conventions) -> Tensor:
    """Frequencies laid out for halves, channels turned as neighbours, or the other way round."""
    return _never(parts) if how.rotation == "none" else _rope_mix(parts, how)


def _rope_mix(parts: Parts, how: Conventions) -> Tensor:
    tokens, size = parts.query.shape[1], parts.size
    angle = torch.arange(tokens)[:, None] * 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    halves, pairs = angle.repeat(1, 2), angle.repeat_interleave(2, -1)

    def turned(x: Tensor) -> Tensor:
        if how.rotation == "half":
            return x * pairs.cos() + torch.cat((-x[..., size // 2 :], x[..., : size // 2]), -1) * pairs.sin()
        other = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
        return x * halves.cos() + other * halves.sin()

    plain = replace(how, rotation="none")
    query, key, value = _three(parts, plain)
    return _merged(_weights(_scores(turned(query), turned(key), parts, plain), parts) @ value, how)


def _never(parts: Parts) -> Tensor:
    return torch.full_like(parts.query, float("nan"))


VIEWS = ("qkv", "q", "k", "v", "qk", "kv")
WRONG: tuple[tuple[str, str, Wrong], ...] = (
    ("scale-after-softmax", "attention whose weights are scaled after the softmax", _unscaled_then_scaled),
    ("softmax-axis", "attention with the softmax over the queries", _softmax_over(-2)),
    ("softmax-axis", "attention with the softmax over the heads", _softmax_over(1)),
    ("softmax-axis", "attention with the softmax over the rows", _softmax_over(0)),
    ("no-softmax", "attention without a softmax", _by_scores(_no_softmax)),
    ("no-softmax", "scores divided by their sum instead of a softmax", _by_scores(_mean_scores)),
    ("no-softmax", "a sigmoid instead of a softmax", _by_scores(_sigmoid)),
    ("mask-after-softmax", "attention masked after the softmax", _by_scores(_after)),
    ("mask-after-softmax", "attention whose hidden scores are 0, which the softmax makes 1", _by_scores(_times_zero)),
    ("value-is-key", "attention with the keys as values", _other_values("key")),
    ("value-is-key", "attention with the turned keys as values", _turned_keys),
    ("value-is-key", "attention with the queries as values", _other_values("query")),
    *(("head-mixing", "heads cut out of memory by a view, without a transpose", _viewed(which)) for which in VIEWS),
    ("head-mixing", "heads merged by a view, without a transpose", _merge_by_view),
    ("head-mixing", "heads cut and merged by views, without a transpose", _view_both_ways),
    ("head-mixing", "heads that attend to heads instead of tokens to tokens", _over_heads(False)),
    ("head-mixing", "heads that attend to heads, and are merged as if they were tokens", _over_heads(True)),
    ("scale-after-softmax", "attention whose weights are divided by the number of keys", _over_keys),
    ("softmax-axis", "weights that are summed over the queries", _by_queries),
    ("softmax-axis", "keys that ask and queries that answer", _swapped),
    ("gqa-order", "keys given to the heads in one order and values in another", _mixed_spread),
    ("rope-mismatch", "frequencies of one rotary layout with the rotation of the other", _mixed_rotation),
)


def distance(a: Tensor, b: Tensor) -> float:
    """Largest difference relative to the largest magnitude; infinite where only one of them is a number."""
    if a.shape != b.shape:
        return float("inf")
    neither = a.isnan() & b.isnan()
    gap = (a - b).masked_fill(neither, 0.0).abs().max() / b.masked_fill(neither, 0.0).abs().max().clamp(min=1e-30)
    return float(gap.nan_to_num(float("inf")))


def only_down(moved: Tensor) -> bool:
    """Whether what moves with token 0 of row 0 is token 0 of other rows, and no other token. [B, T]"""
    return moved.shape[1] > 1 and bool(moved[1:, 0].any()) and not bool(moved[:, 1:].any())
