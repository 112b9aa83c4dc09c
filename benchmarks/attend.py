"""Dense attention: what heed's call costs beside the bare kernel of torch that it ends in."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import grad

import heed
from heed.parts.masks import Causal

from .measure import Three, contiguous, race, swapped
from .report import Row, Target, compared

ROWS, HEADS, TOKENS, SIZE, KEYS = 8, 8, 512, 64, 1024
CAUSAL = Causal()
WITHIN = Target(1.05)


def rows(rounds: int | None) -> Iterator[Row]:
    """Causal attention of 8×8×512×64 in float32, without and with gradients; then one token against 1024 keys."""
    torch.manual_seed(0)
    mine = _inputs(TOKENS, TOKENS)
    same = swapped(mine)  # the memory of heed's layout, seen as torch wants it
    own = contiguous(same)  # torch's own layout
    with torch.no_grad():
        samples = race(
            {
                "heed": partial(heed.attend, *mine, CAUSAL),
                "own": partial(_kernel, *own),
                "same": partial(_kernel, *same),
                "again": partial(_kernel, *own),
            },
            rounds or 40,
        )
    yield compared("forward; peer: sdpa on [B, H, T, d]", samples["heed"], samples["own"], WITHIN)
    yield compared("forward; peer: sdpa on the same [B, T, H, d] tensors", samples["heed"], samples["same"], WITHIN)
    yield compared("the peer against itself: what the noise alone makes", samples["again"], samples["own"])

    for tensor in (*mine, *own):
        tensor.requires_grad_()
    upstream = torch.randn(ROWS, TOKENS, HEADS, SIZE)
    own_upstream = upstream.transpose(1, 2).contiguous()
    samples = race(
        {
            "heed": lambda: grad(heed.attend(*mine, CAUSAL), mine, upstream),
            "own": lambda: grad(_kernel(*own), own, own_upstream),
            "same": lambda: grad(_kernel(*swapped(mine)).transpose(1, 2), mine, upstream),
        },
        rounds or 20,
    )
    yield compared("forward and backward; peer: sdpa on [B, H, T, d]", samples["heed"], samples["own"], WITHIN)
    yield compared("forward and backward; peer: sdpa on the same tensors", samples["heed"], samples["same"], WITHIN)
    yield from _decoding(rounds)


def _decoding(rounds: int | None) -> Iterator[Row]:
    mine = _inputs(1, KEYS)
    same = swapped(mine)
    with torch.no_grad():
        samples = race(
            {
                "heed": partial(heed.attend, *mine, CAUSAL),
                "own": partial(F.scaled_dot_product_attention, *contiguous(same)),
                "same": partial(F.scaled_dot_product_attention, *same),
            },
            rounds or 40,
        )
    what = f"one token against {KEYS} keys; peer: sdpa on"
    yield compared(f"{what} [B, H, T, d]", samples["heed"], samples["own"])
    yield compared(f"{what} the same tensors", samples["heed"], samples["same"])


def _kernel(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


def _inputs(tokens: int, keys: int) -> Three:
    query, key, value = (torch.randn(ROWS, length, HEADS, SIZE) for length in (tokens, keys, keys))
    return query, key, value
