"""A window over a long text: n = 16,384 tokens that look at 256 each. Time, and memory beyond the inputs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import grad

import heed
from benchmarks.measure import Figure, Runner, Three, peak, race, swapped
from benchmarks.report import Row, Target, compared
from heed.parts.masks import Window

HEADS, SIZE, BACK = 8, 64, 255
LONG, HALF, LENGTHS = 16_384, 8_192, (4_096, 8_192, 16_384, 32_768)
BLOCKS = (64, 128, 256)  # for the peer to choose from
Form: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]  # [1, n, heads, size] three times -> the same


def windowed(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """heed's call."""
    return heed.attend(query, key, value, Window(back=BACK))


def dense(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """torch's kernel with the window written out as a mask of n×n."""
    mask = band(query.shape[1], query.shape[1]) if mask is None else mask
    return F.scaled_dot_product_attention(*swapped((query, key, value)), attn_mask=mask).transpose(1, 2)


def full(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """torch's kernel with no window at all: causal, so it can skip half of the pairs."""
    return F.scaled_dot_product_attention(*swapped((query, key, value)), is_causal=True).transpose(1, 2)


def blocked(query: Tensor, key: Tensor, value: Tensor, block: int = 128) -> Tensor:
    """The best that plain torch gives us for just this window, n a multiple of the block.

    Every block of queries is a row of one call of torch's kernel; its keys are an overlapping view, not a copy, and all
    rows share one small mask. The first tokens, whose window sticks out of the text, go beforehand.
    """
    reach = -(-BACK // block) * block

    def near(tensor: Tensor) -> Tensor:  # [n/b, H, r+b, d]
        return tensor[0].unfold(0, reach + block, block).transpose(2, 3)

    own = query[0, reach:].unfold(0, block, block).transpose(2, 3)  # [n/b, H, b, d]
    rest = F.scaled_dot_product_attention(own, near(key), near(value), attn_mask=band(block, reach + block))
    head = dense(query[:, :reach], key[:, :reach], value[:, :reach])
    return torch.cat((head, rest.transpose(1, 2).flatten(0, 1)[None]), 1)


def band(queries: int, keys: int) -> Tensor:
    """Who sees whom, where the queries are the last of the keys. [queries, keys]"""
    gap = torch.arange(keys - queries, keys, dtype=torch.int32)[:, None] - torch.arange(keys, dtype=torch.int32)
    return (gap >= 0) & (gap <= BACK)


def rows(rounds: int | None) -> Iterator[Row]:
    """Against a dense mask, a blocked form written for this purpose, and full attention; then growth and gradients."""
    torch.manual_seed(0)
    with torch.no_grad():
        block = _best_block(lambda block: partial(blocked, *_inputs(HALF), block))
        yield from _forward(rounds, block)
    yield from _memory(block)
    yield from _growth(rounds)
    yield from _gradients(rounds)


def _forward(rounds: int | None, block: int) -> Iterator[Row]:
    inputs = _inputs(LONG)
    _agree(inputs, block)
    quick: dict[str, Runner] = {
        "heed": partial(windowed, *inputs),
        "blocked": partial(blocked, *inputs, block),
    }
    samples = race(quick, rounds or 15)
    yield compared(
        f"{LONG:,} tokens; peer: blocked, in blocks of {block}", samples["heed"], samples["blocked"], Target(1.0)
    )
    slow: dict[str, Runner] = {
        "heed": partial(windowed, *inputs),
        "dense": partial(dense, *inputs, band(LONG, LONG)),  # its mask made beforehand
        "full": partial(full, *inputs),
    }
    samples = race(slow, min(rounds or 3, 3))
    yield compared(f"{LONG:,} tokens; peer: sdpa with a ready dense mask", samples["heed"], samples["dense"])
    yield compared(f"{LONG:,} tokens; peer: sdpa, full causal", samples["heed"], samples["full"])


def _memory(block: int) -> Iterator[Row]:
    mine = peak(prepare, windowed, LONG)
    for what, form, target in (
        ("sdpa with a dense mask", dense, Target(0.1)),
        ("blocked", partial(blocked, block=block), None),
        ("sdpa, full causal", full, None),
    ):
        peer = peak(prepare, form, LONG)
        share = Figure.exact(mine.middle / peer.middle, "×")
        yield Row(f"{LONG:,} tokens, memory; peer: {what}", mine, peer, share, target)


def _growth(rounds: int | None) -> Iterator[Row]:
    """Beside what would be linear, from the shortest length on."""
    runners: dict[str, Runner] = {str(length): partial(windowed, *_inputs(length)) for length in LENGTHS}
    with torch.no_grad():
        samples = race(runners, rounds or 9)
    first = LENGTHS[0]
    room = {length: peak(prepare, windowed, length) for length in LENGTHS}
    for length in LENGTHS[1:]:
        linear = [sample * length / first for sample in samples[str(first)]]
        yield compared(f"{length:,} tokens; peer: linear from {first:,}", samples[str(length)], linear)
    for length in LENGTHS[1:]:
        line = room[first].times(length / first)
        share = Figure.exact(room[length].middle / line.middle, "×")
        yield Row(f"{length:,} tokens, memory; peer: linear from {first:,}", room[length], line, share)


def _gradients(rounds: int | None) -> Iterator[Row]:
    inputs = _inputs(HALF)
    for tensor in inputs:
        tensor.requires_grad_()
    upstream = torch.randn_like(inputs[0])

    def both(form: Form) -> Runner:
        return lambda: grad(form(*inputs), inputs, upstream)

    block = _best_block(lambda block: both(partial(blocked, block=block)))
    samples = race({"heed": both(windowed), "blocked": both(partial(blocked, block=block))}, rounds or 9)
    what = f"{HALF:,} tokens, forward and backward; peer: "
    yield compared(f"{what}blocked, in blocks of {block}", samples["heed"], samples["blocked"], Target(1.0))
    samples = race({"heed": both(windowed), "full": both(full)}, min(rounds or 5, 5))
    yield compared(f"{what}sdpa, full causal", samples["heed"], samples["full"])


def prepare(form: Form, length: int) -> Runner:
    """For `peak`: inputs of this length; a short call loads what torch loads late."""
    torch.set_grad_enabled(False)
    form(*_inputs(1024))
    return partial(form, *_inputs(length))


def _inputs(length: int) -> Three:
    query, key, value = (torch.randn(1, length, HEADS, SIZE) for _ in range(3))
    return query, key, value


def _best_block(runner: Callable[[int], Runner]) -> int:
    """The peer chooses its block size on this machine."""
    samples = race({str(block): runner(block) for block in BLOCKS}, 5)
    return int(min(samples, key=lambda block: statistics.median(samples[block])))


def _agree(inputs: Three, block: int) -> None:
    """What is compared computes the same."""
    error = float((windowed(*inputs) - blocked(*inputs, block)).abs().max())
    if error > 1e-4:
        raise RuntimeError(f"heed's window and the blocked peer differ by {error:.1e}, which no rounding explains")
