"""The one softmax attention: every mixer that weighs with a softmax comes through here.

    y_i = Σ_j softmax_j( scale · q_i·k_j + bias_ij  | j visible from i ) v_j            (Vaswani et al. 2017, eq. 1)

With a cap, scale · q_i·k_j is bent to cap · tanh(scale · q_i·k_j / cap) first (Gemma 2).

`written_out` is the specification. `attend` gives the same numbers faster: torch's fused kernel, without any mask where
the spans of the tokens tell that none is needed, and block by block where the mask reaches only so far, so that a
window costs O(n·w) in time and memory. A token that sees nothing gets zeros, and finite gradients everywhere.

These two are for mixers, which know their layout; `heed.attend` (`functional.py`) is the same for everybody else.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.contract import Where
from ...core.errors import InputError
from ..masks import Mask, Sight
from .sdpa import How, Term, masked_softmax, whole
from .sparse import formed

__all__ = ["attend", "masked_softmax", "written_out"]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sight: Sight | Mask | Tensor | None = None,
    *,
    bias: Tensor | Term | None = None,
    scale: float | None = None,
    cap: float | None = None,
    dropout: float = 0.0,
    score: Term | None = None,
) -> Tensor:
    """Softmax attention of `query` [B, T, H, d] over `key` [B, N, K, d] and `value` [B, N, K, e]; gives [B, T, H, e].

    H is a multiple of K: query head h reads key head h // (H/K) (Ainslie et al. 2023). `sight` says who sees whom: a
    mask applied to stamped tokens, a bare mask (the queries are then the last T of the N tokens), a boolean tensor
    [B|1, H|1, T, N] with True = visible, or None if all see all. `bias` is added to the scores, `scale` defaults to
    d^-1/2, `cap` bounds the scores. `score` stands in the place of the scaled dot products: it needs stamped tokens,
    and all its T·N numbers are held at once, or a block's at a time where the mask reaches only so far.
    """
    sight = checked(query, key, value, sight, bias)
    how = How(bias, query.shape[-1] ** -0.5 if scale is None else scale, dropout, cap, score)
    if not isinstance(sight, Sight):
        return whole(query, key, value, sight, how)
    return sight.query.blank(formed(query, key, value, sight, how))


def written_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sight: Sight | Mask | Tensor | None = None,
    *,
    bias: Tensor | Term | None = None,
    scale: float | None = None,
    cap: float | None = None,
    dropout: float = 0.0,
    score: Term | None = None,
) -> tuple[Tensor, Tensor]:
    """The equation as it stands, with its weights [B, H, T, N]: what `attend` must equal, and what one looks at."""
    sight = checked(query, key, value, sight, bias)
    heads, groups = query.shape[2], query.shape[2] // key.shape[2]
    key, value = key.repeat_interleave(groups, 2), value.repeat_interleave(groups, 2)
    how = How(bias, query.shape[-1] ** -0.5 if scale is None else scale, cap=cap, score=score)

    added = how.added(query, key, sight)
    if added is None or score is None:
        dots = how.capped(torch.einsum("bthd,bnhd->bhtn", query, key) * how.scale)
        added = dots if added is None else dots + added
    weight = masked_softmax(added, sight.pairs(heads) if isinstance(sight, Sight) else sight)
    weight = F.dropout(weight, dropout) if dropout else weight
    return torch.einsum("bhtn,bnhe->bthe", weight, value), weight


def checked(
    query: Tensor, key: Tensor, value: Tensor, sight: Sight | Mask | Tensor | None, bias: Tensor | Term | None
) -> Sight | Tensor | None:
    """Who sees whom, if all of these fit together; else an error that says what does not."""
    _check(query, key, value)
    _check_bias(bias, query, key)
    return _seen_from(query, key, sight)


def _seen_from(query: Tensor, key: Tensor, sight: Sight | Mask | Tensor | None) -> Sight | Tensor | None:
    rows, tokens, heads = query.shape[:3]
    wanted = (rows, heads, tokens, key.shape[1])
    if isinstance(sight, Mask):
        if tokens > key.shape[1]:
            raise InputError(
                f"{tokens} queries cannot be the last of {key.shape[1]} keys; pass sight=mask(where, seen)"
            )
        last = Where.run(rows, tokens, start=key.shape[1] - tokens, device=query.device)
        return sight(last, Where.run(rows, key.shape[1], device=query.device))
    if isinstance(sight, Tensor):
        if sight.dtype != torch.bool:
            raise InputError(
                f"a mask tensor must be boolean with True = visible, not {sight.dtype}; use bias= for scores"
            )
        if sight.dim() != len(wanted) or any(a not in (1, b) for a, b in zip(sight.shape, wanted, strict=True)):
            raise InputError(
                f"the mask has shape {tuple(sight.shape)}; needed is [rows, heads, queries, keys] = {wanted}, "
                "where any of them may be 1"
            )
    elif sight is not None and (sight.query.shape != (rows, tokens) or sight.key.shape != (rows, key.shape[1])):
        raise InputError(
            f"the mask is about {tuple(sight.query.shape)} queries and {tuple(sight.key.shape)} keys, "
            f"the tensors hold {(rows, tokens)} and {(rows, key.shape[1])} (rows, tokens)"
        )
    return sight


def _check_bias(bias: Tensor | Term | None, query: Tensor, key: Tensor) -> None:
    if not isinstance(bias, Tensor):
        return
    wanted = (query.shape[0], query.shape[2], query.shape[1], key.shape[1])
    if not bias.is_floating_point():
        raise InputError(f"a bias is added to scores, so it must hold numbers, not {bias.dtype}; a mask goes to sight=")
    if bias.dim() != len(wanted) or any(a not in (1, b) for a, b in zip(bias.shape, wanted, strict=True)):
        raise InputError(
            f"the bias has shape {tuple(bias.shape)}; needed is [rows, heads, queries, keys] = {wanted}, "
            "where any of them may be 1"
        )


def _check(query: Tensor, key: Tensor, value: Tensor) -> None:
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if not query.dim() == key.dim() == value.dim() == 4:
        raise InputError(f"attend needs [rows, tokens, heads, size] three times, got {shapes}")
    if key.shape[:3] != value.shape[:3] or query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3]:
        raise InputError(
            f"{shapes} do not fit: rows must be equal, key and value must agree in tokens and heads, "
            "query and key in size"
        )
    if not (query.shape[2] and key.shape[2] and query.shape[3]):
        raise InputError(f"{shapes}: attention needs at least one head, of at least one channel")
    if not query.dtype == key.dtype == value.dtype or not query.is_floating_point():
        raise InputError(
            f"query, key and value are {query.dtype}, {key.dtype} and {value.dtype}; one floating-point dtype is "
            "needed for all three: key.to(query.dtype)"
        )
    if not query.device == key.device == value.device:
        raise InputError(
            f"query, key and value lie on {query.device}, {key.device} and {value.device}; bring them together"
        )
    if query.shape[2] % key.shape[2]:
        raise InputError(
            f"{query.shape[2]} query heads cannot share {key.shape[2]} key heads evenly; "
            f"use a number of query heads that is a multiple of {key.shape[2]}"
        )
