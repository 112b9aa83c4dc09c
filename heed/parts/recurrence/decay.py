"""Linear recurrences with decay: one matrix per head, which every token fades and adds to.

    S_t = a_t S_{t-1} + k_t v_tᵀ,   y_t = q_t S_t = Σ_{j <= t} a_{j+1} ··· a_t (q_t·k_j) v_j,   0 < a_t <= 1

Retention has one `a` per head, gated retention one per head and token, linear attention a = 1. All decays come as
logarithms. An exponent is only taken of a sum of them, which is at most 0, never of one alone and its inverse: nothing
overflows, nothing is divided by something small, and what underflows is nothing.

`written_out` is the specification, n² pairs of tokens. `chunked` gives the same in O(n·(c + d)·d): pairs within chunks
of c tokens, and between chunks the matrices, which are themselves such a recurrence over fewer steps (`entering`).

In float32 |chunked - exact| <= 512 · 2^-24 · Y, with Y the same over magnitudes of queries, keys and values, for heads
of up to 64 channels and any length to 10^6: what arrives at a token was rounded at most d times in a product, c times
in a sum over its chunk and 17 times at each of at most four levels of chunks, and its exponent, which is above -104 or
else all is nothing, twice. Errors do not add up along the sequence; on average they are a hundred times smaller.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ...core.errors import InputError
from ...core.stamps import Stamps

CHUNK = 64  # tokens whose pairs are taken at once: as many as a head has channels, so that both halves cost alike
GROUP = 16  # matrices that are faded and added up at once


def chunked(
    query: Tensor, key: Tensor, value: Tensor, fade: Tensor | None = None, past: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What every token reads, and the matrix after the last one.

    `query` [B, T, H, d], `key` [B, T, K, d] and `value` [B, T, K, e] give [B, T, H, e]; H is a multiple of K. `fade` is
    log a: [1, 1, K] for one per head, [B, T, K] for one per token, None for no decay. `past` [B, K, d, e] is the matrix
    before the first token. A token with a key of zeros and a `fade` of 0 leaves no trace: that is padding.
    """
    rows, tokens, heads, size = key.shape
    past = key.new_zeros(rows, heads, size, value.shape[-1]) if past is None else past
    if tokens == 1:
        return _step(query, key, value, fade, past)
    whole = tokens - tokens % CHUNK
    made = []
    for begin, end, length in ((0, whole, CHUNK), (whole, tokens, tokens - whole)):  # whole chunks, then what is left
        if end > begin:
            some, one = slice(begin, end), fade is None or fade.shape[1] == 1
            now = fade if fade is None or one else fade[:, some]
            y, past = _chunks(query[:, some], key[:, some], value[:, some], now, past, length)
            made.append(y)
    return made[0] if len(made) == 1 else torch.cat(made, 1), past


def written_out(
    query: Tensor, key: Tensor, value: Tensor, fade: Tensor | None = None, past: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same as the equation stands."""
    groups = query.shape[2] // key.shape[2]
    level = _levels(fade, key).transpose(1, 2)  # [B|1, K, T]
    value = value.repeat_interleave(groups, 2)
    y = torch.einsum("bhtn,bnhe->bthe", weights(query, key, fade), value)
    left = (level[..., -1:] - level).exp().to(key)
    after = torch.einsum("bkn,bnkd,bnke->bkde", left.expand(len(key), -1, -1), key, value[:, :, ::groups])
    if past is None:
        return y, after
    kept = level.exp().to(key).transpose(1, 2)  # [B|1, T, K]
    asked = query * kept.repeat_interleave(groups, 2)[..., None]
    y = y + torch.einsum("bthd,bhde->bthe", asked, past.repeat_interleave(groups, 1))
    return y, after + kept[:, -1, :, None, None] * past


def weights(query: Tensor, key: Tensor, fade: Tensor | None = None) -> Tensor:
    """What each token takes of each of this call: a_{j+1} ··· a_i (q_i·k_j). [B, H, T, T], n² of them"""
    groups = query.shape[2] // key.shape[2]
    score = torch.einsum("bthd,bnhd->bhtn", query, key.repeat_interleave(groups, 2))
    near = _between(_levels(fade, key).transpose(1, 2), key.dtype)
    return score * near.repeat_interleave(groups, 1)


def must_rise(where: Stamps, who: str) -> None:
    """Raise if tokens do not come in the order of their revelation: a recurrence takes them as they come."""
    order = where.order
    if not where.span.run and bool(((order[:, 1:] <= order[:, :-1]) & where.real[:, 1:]).any()):
        raise InputError(f"{who} takes tokens as they come; their order must rise from column to column")


def _step(query: Tensor, key: Tensor, value: Tensor, fade: Tensor | None, past: Tensor) -> tuple[Tensor, Tensor]:
    """One token: the recurrence itself."""
    kept = past if fade is None else fade[:, 0].exp().to(past)[..., None, None] * past
    after = kept + key[:, 0, :, :, None] * value[:, 0, :, None]
    asked = query[:, 0].reshape(*key.shape[::2], -1, key.shape[3])  # [B, K, G, d]
    return (asked @ after).flatten(1, 2)[:, None], after


def _chunks(
    query: Tensor, key: Tensor, value: Tensor, fade: Tensor | None, past: Tensor, length: int
) -> tuple[Tensor, Tensor]:
    """Whole chunks of this length, all at once."""
    rows, tokens, heads, size = key.shape
    count, groups = tokens // length, query.shape[2] // heads
    query = query.reshape(rows, count, length, heads, groups, size).permute(0, 3, 1, 4, 2, 5)  # [B, K, n, G, c, d]
    key, value = (x.reshape(rows, count, length, heads, -1).permute(0, 3, 1, 2, 4) for x in (key, value))
    score = (query.flatten(3, 4) @ key.mT).view(rows, heads, count, groups, length, length)
    if fade is None:
        near, left, spent = score.tril(), key, key.new_zeros(1, heads, 1)
    else:
        level = _sums(fade, length)  # [B|1, K, n|1, c]
        near = score * _between(level, key.dtype).unsqueeze(-3)
        left = key * (level[..., -1:] - level).exp().to(key).unsqueeze(-1)
        query = query * level.exp().to(query)[..., None, :, None]
        spent = level[..., -1]
    before, after = entering((left.mT @ value).flatten(3), spent, past.flatten(2))
    y = near.flatten(3, 4) @ value + query.flatten(3, 4) @ before.reshape(rows, heads, count, size, -1)
    y = y.view(rows, heads, count, groups, length, -1).permute(0, 2, 4, 1, 3, 5)  # [B, n, c, K, G, e]
    return y.reshape(rows, tokens, heads * groups, -1), after.view_as(past)


def entering(added: Tensor, fade: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
    """The matrices, here as vectors, that are found before each of n steps, and that after the last.

    `added` [B, K, n, z], `fade` [B|1, K, n|1] and `past` [B, K, z] give [B, K, n, z] and [B, K, z]. Up to GROUP steps
    are one product with a triangle of decays; of more, groups are formed, which are the steps of a shorter recurrence.
    """
    rows, heads, steps, numbers = added.shape
    size = min(steps, GROUP)
    lacking = -steps % size
    fade = F.pad(fade.expand(-1, -1, steps), (0, lacking)).view(len(fade), heads, -1, size)  # [B|1, K, m, s]
    added = F.pad(added, (0, 0, 0, lacking)) if lacking else added
    added = added.reshape(rows, heads, -1, size, numbers)  # [B, K, m, s, z]
    level = fade.cumsum(-1)
    found = F.pad(level, (1, 0))  # what has faded when a step begins, and after the last
    gap = found[..., :, None] - level[..., None, :]
    ahead = torch.ones(size + 1, size, dtype=torch.bool, device=gap.device).triu()
    local = gap.masked_fill(ahead, -torch.inf).exp().to(added) @ added  # [B, K, m, s + 1, z]
    if added.shape[2] == 1:
        first, after = past.unsqueeze(2), local[..., 0, -1, :] + level[..., 0, -1:].exp().to(past) * past
    else:
        first, after = entering(local[..., -1, :], level[..., -1], past)
    before = torch.addcmul(local[..., :-1, :], found[..., :-1, None].exp().to(added), first.unsqueeze(3))
    return before.flatten(2, 3)[:, :, :steps], after


def _sums(fade: Tensor, length: int) -> Tensor:
    """How much has faded since each chunk began, its own token included. [B|1, T|1, K] -> [B|1, K, n|1, c], exactly"""
    if fade.shape[1] == 1:
        count = torch.arange(1, length + 1, device=fade.device)
        return fade.double().transpose(1, 2).unsqueeze(-1) * count
    return fade.double().reshape(len(fade), -1, length, fade.shape[2]).cumsum(2).permute(0, 3, 1, 2)


def _levels(fade: Tensor | None, key: Tensor) -> Tensor:
    """The same over a whole call, as one chunk. [B|1, T, K]"""
    if fade is None:
        return key.new_zeros(1, key.shape[1], key.shape[2])
    return _sums(fade, key.shape[1])[:, :, 0].transpose(1, 2)


def _between(level: Tensor, dtype: torch.dtype) -> Tensor:
    """a_{j+1} ··· a_i for all j <= i, 0 ahead. [..., c] -> [..., c, c]

    Sums of many decays are large where their differences are small: in float32 what is lost of a sum is kept beside it.
    """
    whole = level.to(dtype)
    rest = (level - whole).detach().to(dtype)
    gap = (whole[..., :, None] - whole[..., None, :]) + (rest[..., :, None] - rest[..., None, :])
    ahead = torch.ones(gap.shape[-2:], dtype=torch.bool, device=gap.device).triu(1)
    return gap.masked_fill(ahead, -torch.inf).exp()
