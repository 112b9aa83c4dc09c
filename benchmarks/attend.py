"""Dense attention: what heed's call costs beside the bare kernel of torch that it ends in."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import grad

import heed
from benchmarks.measure import Three, contiguous, race, swapped
from benchmarks.report import Row, Target, compared
from heed.parts.masks import Causal

ROWS, HEADS, TOKENS, SIZE, KEYS = 8, 8, 512, 64, 1024
CAUSAL = Causal()
WITHIN = Target(1.05)
LAYOUTS = ("heads first", "tokens first")


def rows(rounds: int | None) -> Iterator[Row]:
    """Causal attention of 8×8×512×64 in float32, without and with gradients; then one token against 1024 keys."""
    torch.manual_seed(0)
    tokens_first = _inputs(TOKENS, TOKENS)  # [B, T, H, d], as projections make them
    heads_first = contiguous(swapped(tokens_first))  # [B, H, T, d], as the kernel likes them best
    with torch.no_grad():
        samples = race(
            {
                "heed, heads first": partial(heed.attend, *swapped(heads_first), CAUSAL),
                "bare, heads first": partial(_kernel, *heads_first),
                "heed, tokens first": partial(heed.attend, *tokens_first, CAUSAL),
                "bare, tokens first": partial(_kernel, *swapped(tokens_first)),
                "again": partial(_kernel, *heads_first),
            },
            rounds or 40,
        )
    for layout in LAYOUTS:
        what = f"forward; peer: sdpa on the same tensors, {layout} in memory"
        yield compared(what, samples[f"heed, {layout}"], samples[f"bare, {layout}"], WITHIN)
    heed_own, best = samples["heed, tokens first"], samples["bare, heads first"]
    yield compared("forward, tokens first; peer: sdpa, heads first", heed_own, best)
    yield compared("the peer against itself: what the noise alone makes", samples["again"], best)
    yield from _gradients(tokens_first, heads_first, rounds)
    yield from _decoding(rounds)


def _gradients(tokens_first: Three, heads_first: Three, rounds: int | None) -> Iterator[Row]:
    for tensor in (*tokens_first, *heads_first):
        tensor.requires_grad_()
    upstream = torch.randn(ROWS, TOKENS, HEADS, SIZE)
    turned = upstream.transpose(1, 2).contiguous()
    samples = race(
        {
            "heed, heads first": lambda: grad(
                heed.attend(*swapped(heads_first), CAUSAL).transpose(1, 2), heads_first, turned
            ),
            "bare, heads first": lambda: grad(_kernel(*heads_first), heads_first, turned),
            "heed, tokens first": lambda: grad(heed.attend(*tokens_first, CAUSAL), tokens_first, upstream),
            "bare, tokens first": lambda: grad(_kernel(*swapped(tokens_first)).transpose(1, 2), tokens_first, upstream),
        },
        rounds or 20,
    )
    for layout in LAYOUTS:
        what = f"forward and backward; peer: sdpa on the same tensors, {layout} in memory"
        yield compared(what, samples[f"heed, {layout}"], samples[f"bare, {layout}"], WITHIN)


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
