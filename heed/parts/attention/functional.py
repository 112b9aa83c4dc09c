"""`heed.attend`: softmax attention for other people's code, in either layout and with the words they know.

heed holds heads beside their tokens, [B, T, H, d], as projections give them; `F.scaled_dot_product_attention` wants
[B, H, T, d]. The shapes alone do not tell the two apart: [2, 8, 16, 4] may be 8 tokens of 16 heads or 16 tokens of 8
heads, and both give numbers. So the layout is an argument. Left out it is heed's; where the other one is what the
numbers are usually like (fewer tokens than heads, in queries and keys), a `LayoutWarning` asks, because an error would
hit whoever runs a short prompt; and where only the other one fits, the error says so. Mixers know their layout: they
call `attend.attend` and are never asked.
"""

from __future__ import annotations

from inspect import isclass
from typing import Literal, Never, TypeAlias
from warnings import warn

import torch
from torch import Tensor

from ...core.config import kind_of, nearest
from ...core.errors import InputError, LayoutWarning
from ..masks import MASKS, Causal, Mask, Sight
from . import attend as core
from .sdpa import Term

Layout: TypeAlias = Literal["bthd", "bhtd"]
OTHER = 'say layout="bhtd" if they are [rows, heads, tokens, size], as F.scaled_dot_product_attention has them'
THEIRS = {  # names of F.scaled_dot_product_attention and others, and what heed calls the same
    "attn_mask": "a boolean mask goes to sight= ([rows, heads, queries, keys], any of them may be 1; True = visible, "
    "as there, while nn.MultiheadAttention means the opposite), numbers that are added to the scores go to bias=",
    "mask": "it is the fourth argument, sight",
    "dropout_p": "it is called dropout here",
    "enable_gqa": "leave it out: fewer key heads than query heads are always shared",
}
NAMES = ("sight", "is_causal", "layout", "bias", "scale", "cap", "dropout")


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sight: Sight | Mask | Tensor | None = None,
    *,
    is_causal: bool = False,
    layout: Layout | None = None,
    bias: Tensor | Term | None = None,
    scale: float | None = None,
    cap: float | None = None,
    dropout: float = 0.0,
    **theirs: Never,
) -> Tensor:
    """Softmax attention of `query` [B, T, H, d] over `key` [B, N, K, d] and `value` [B, N, K, e]; gives [B, T, H, e].

    `layout="bhtd"` takes and gives [B, H, T, d] instead; without it, shapes that look so are warned about. H is a
    multiple of K: query head h reads key head h // (H/K) (Ainslie et al. 2023). `sight` says who sees whom: a mask
    (`Causal()`, `Window(back=255)`; the queries are the last T of the N tokens), a mask applied to stamped tokens, a
    boolean tensor [B|1, H|1, T, N] with True = visible, or None if all see all. `is_causal` hides what comes after a
    token, beside `sight`. `bias` is added to the scores, `scale` defaults to d^-1/2, `cap` bounds the scores.
    """
    if theirs:
        raise InputError("; ".join(f"attend has no {name}{_ours(name)}" for name in theirs))
    for name, given in (("query", query), ("key", key), ("value", value)):
        if not isinstance(given, Tensor):
            raise InputError(f"{name} is a {type(given).__name__}; attend takes tensors [rows, tokens, heads, size]")
    if not 0.0 <= dropout < 1.0:
        raise InputError(f"dropout is a share from 0 to 1, not {dropout!r}")
    q, k, v = (x.transpose(1, 2) if layout == "bhtd" else x for x in (query, key, value))
    if layout not in (None, "bthd", "bhtd"):
        raise InputError(f'layout is "bthd" (rows, tokens, heads, size) or "bhtd", not {layout!r}')
    if layout is None and _looks_swapped(query, key):
        warn(
            f"query {list(query.shape)} is read as {query.shape[1]} tokens of {query.shape[2]} heads; {OTHER}, or "
            'layout="bthd" if it is right as it is',
            LayoutWarning,
            stacklevel=2,
        )
    sight = must_be_sight(sight)
    try:
        sight = _causal(q, k, sight) if is_causal else sight
        y = core.attend(q, k, v, sight, bias=bias, scale=scale, cap=cap, dropout=dropout)
    except InputError as error:
        if layout is None and _fits_swapped(query, key, value, sight, bias):
            raise InputError(f"{error}; {OTHER}") from None
        raise
    return y.transpose(1, 2) if layout == "bhtd" else y


def must_be_sight(sight: object) -> Sight | Mask | Tensor | None:
    """What says who sees whom. A name or a class is told how the mask itself is written."""
    if sight is None or isinstance(sight, Sight | Mask | Tensor):
        return sight
    if isinstance(sight, str):
        known = {kind_of(mask): mask for mask in MASKS}
        if sight not in known:
            raise InputError(f"{sight!r} is not a mask{nearest(sight, known)}")
        raise InputError(f"a mask is a value, not a name: instead of {sight!r} write {_written(known[sight])}")
    if isclass(sight) and issubclass(sight, Mask):
        raise InputError(f"{sight.__name__} is a class of masks; write {_written(sight)}")
    raise InputError(
        f"who sees whom is told by a mask, by a boolean tensor or by None, not by a {type(sight).__name__}; bias, "
        "scale and the others are named: attend(query, key, value, bias=...)"
    )


def _written(mask: type[Mask]) -> str:
    needed = ", ".join(f"{name}=..." for name, field in mask.model_fields.items() if field.is_required())
    short = ", or is_causal=True" if mask is Causal else ""
    return f"{mask.__name__}({needed}) (from heed.parts.masks){short}"


def _ours(name: str) -> str:
    return f": {THEIRS[name]}" if name in THEIRS else nearest(name, NAMES)


def _looks_swapped(query: Tensor, key: Tensor) -> bool:
    """Fewer tokens than heads, in queries and keys. A single query is one step of decoding."""
    if not query.dim() == key.dim() == len("bthd"):
        return False
    return 1 < query.shape[1] < query.shape[2] and key.shape[1] < key.shape[2]


def _fits_swapped(
    query: Tensor, key: Tensor, value: Tensor, sight: Sight | Mask | Tensor | None, bias: Tensor | Term | None
) -> bool:
    """Whether heads and tokens the other way round would do."""
    if not query.dim() == key.dim() == value.dim() == len("bthd"):
        return False
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    try:
        core.checked(q, k, v, sight, bias)
    except InputError:
        return False
    return True


def _causal(query: Tensor, key: Tensor, sight: Sight | Mask | Tensor | None) -> Sight | Mask | Tensor:
    """Beside what `sight` hides, what comes after a token."""
    tokens, keys = query.shape[1], key.shape[1]
    if isinstance(sight, Sight):
        return Sight(sight.mask & Causal(), sight.query, sight.key)
    if tokens != keys:
        raise InputError(
            f"is_causal with {tokens} queries and {keys} keys has two meanings: torch lets query 0 see key 0 alone, "
            "heed's Causal() takes the queries for the last tokens, as after a KV cache; write attend(query, key, "
            "value, Causal()) for heed's, or a boolean tensor"
        )
    if sight is None:
        return Causal()
    if isinstance(sight, Mask):
        return sight & Causal()
    return sight & torch.ones(tokens, keys, dtype=torch.bool, device=sight.device).tril()
