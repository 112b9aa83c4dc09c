"""Linear (kernelised) attention: sums over the features of keys serve every query, so that n tokens cost O(n).

    y_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j) = φ(q_i)·S / φ(q_i)·z,   S = Σ_j φ(k_j) v_jᵀ,  z = Σ_j φ(k_j)

All features come as logarithms. Of every feature the sums are kept relative to its largest key so far, the *level*, as
in a softmax over a stream: they neither overflow nor vanish, and a quotient does not know its scale. That level is no
function of the tokens as far as gradients go, since nothing depends on it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

CHUNK = 64  # tokens that a causal form takes at once


class Sums(NamedTuple):
    """What queries need to know of keys: exp(level) · (values, total) are S and z."""

    values: Tensor  # [B, K, m, e]
    total: Tensor  # [B, K, m]
    level: Tensor  # [B, K, m] -inf before the first key

    @classmethod
    def none(cls, key: Tensor, value: Tensor) -> Sums:
        """Of no keys at all; `key` and `value` are like those to come."""
        shape = key.shape[0], *key.shape[2:]
        zeros = key.new_zeros(shape)
        return cls(key.new_zeros(*shape, value.shape[-1]), zeros, torch.full_like(zeros, float("-inf")))

    def join(self, key: Tensor, value: Tensor) -> Sums:
        """With these keys, too. [B, N, K, m], [B, N, K, e]"""
        level = torch.maximum(self.level, key.detach().amax(1))
        kept = (self.level - _finite(level)).exp()  # exp(-inf) = 0 where there was nothing
        feature = (key - _finite(level)[:, None]).exp()
        values = kept[..., None] * self.values + torch.einsum("bnkm,bnke->bkme", feature, value)
        return Sums(values, kept * self.total + feature.sum(1), level)


def hidden(key: Tensor, real: Tensor) -> Tensor:
    """Log features without those of padding, which counts as nothing. [B, N, K, m], [B, N]"""
    return key.masked_fill(~real[..., None, None], float("-inf"))


def both_ways(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Every query beside all keys. [B, T, K, G, m], [B, N, K, m], [B, N, K, e] -> [B, T, K, G, e]"""
    sums = Sums.none(key, value).join(key, value)
    share, _ = _shares(query, sums, sums.level[:, None])
    return _quotient(torch.einsum("btkgm,bkme->btkge", share, sums.values), _old(share, sums))


def causal(query: Tensor, key: Tensor, value: Tensor, sums: Sums) -> tuple[Tensor, Sums]:
    """Every query beside the keys up to its own and those of `sums`, chunk by chunk; and the sums after all."""
    made = []
    # Split, not sliced: the gradient of a slice is as large as what it was cut from.
    for q, k, v in zip(*(torch.split(x, CHUNK, 1) for x in (query, key, value)), strict=True):
        share, crest = _shares(q, sums, _levels(k, sums))
        score = _lower(_scores(q, k, crest))
        above = torch.einsum("bkgtn,bnke->btkge", score, v) + torch.einsum("btkgm,bkme->btkge", share, sums.values)
        made.append(_quotient(above, score.sum(-1).permute(0, 3, 1, 2) + _old(share, sums)))
        sums = sums.join(k, v)
    return torch.cat(made, 1), sums


def weights(query: Tensor, key: Tensor, sums: Sums | None = None) -> Tensor:
    """What each query takes of each key: causal beside `sums`, both ways without. [B, K·G, T, N], n² of them"""
    ahead = sums is None
    sums = Sums.none(key, key[..., :0]) if sums is None else sums
    levels = key.detach().amax(1, keepdim=True) if ahead else _levels(key, sums)
    share, crest = _shares(query, sums, levels)
    score = _exactly(query, key, crest)
    score = score if ahead else _lower(score)
    whole = score.sum(-1) + _old(share, sums).permute(0, 2, 3, 1)
    return (score / whole.masked_fill(whole == 0, 1.0)[..., None]).flatten(1, 2)


def _levels(key: Tensor, sums: Sums) -> Tensor:
    """The level that each token finds. [B, T, K, m]"""
    return torch.cat((sums.level[:, None], key.detach()), 1).cummax(1).values[:, 1:]


def _shares(query: Tensor, sums: Sums, levels: Tensor) -> tuple[Tensor, Tensor]:
    """What each query takes of each feature of `sums`, and the *crest* by which it is divided.

    That is the largest product of a query and a level that it finds: so no share is above 1, and some key's is 1.
    """
    crest = _finite((query.detach() + levels.unsqueeze(3)).amax(-1, keepdim=True))  # [B, T, K, G, 1]
    return (query + sums.level[:, None, :, None] - crest).exp(), crest


def _scores(query: Tensor, key: Tensor, crest: Tensor) -> Tensor:
    """Σ_f exp(query_if + key_jf - crest_i), one matrix product where its two factors can be told apart.

    Later keys of a chunk may tower so high above the earlier ones that one factor overflows: then feature by feature.
    """
    level = key.detach().amax(1, keepdim=True)  # [B, 1, K, m]
    exponent = query + level.unsqueeze(3) - crest
    if exponent.numel() and float(exponent.detach().amax()) > math.log(torch.finfo(query.dtype).max) / 1.5:
        return _exactly(query, key, crest)
    return torch.einsum("btkgm,bnkm->bkgtn", exponent.exp(), (key - _finite(level)).exp())


def _exactly(query: Tensor, key: Tensor, crest: Tensor) -> Tensor:
    """The same, written out. [B, K, G, T, N]"""
    asked, given = (query - crest).permute(0, 2, 3, 1, 4), key.transpose(1, 2).unsqueeze(2)
    score = asked.new_zeros(*asked.shape[:4], key.shape[1])
    for one, other in zip(asked.unbind(-1), given.unbind(-1), strict=True):
        score = score + _bounded(one[..., None] + other[..., None, :]).exp()
    return score


def _bounded(exponent: Tensor) -> Tensor:
    """Exponents of keys that a query does not see may be above 0; they are hidden afterwards."""
    return exponent.clamp(max=1.0)


def _lower(score: Tensor) -> Tensor:
    """Without what lies ahead."""
    return score.tril()


def _old(share: Tensor, sums: Sums) -> Tensor:
    return torch.einsum("btkgm,bkm->btkg", share, sums.total)


def _quotient(above: Tensor, below: Tensor) -> Tensor:
    """A query that sees nothing gets zeros."""
    return above / below.masked_fill(below == 0, 1.0)[..., None]


def _finite(level: Tensor) -> Tensor:
    return level.masked_fill(level == float("-inf"), 0.0)
