"""Quantised tokens times quantised weights where no kernel serves: without a compiler, on a GPU, in half precision.

Some rows of weights at a time become float32 in scratch memory that a cache holds, and torch multiplies; nothing is
kept. So a model takes the bytes of its codes and some 10 MiB. On one core a product takes about as long as one of
float32 weights, which are four times the bytes to be read; with four bits a third longer for one token, an eighth for
many. Threads gain less than with float32 (docs/speed.md has figures).

Tokens of 8 bits times weights of 8 bits, or ternary ones, are summed exactly: in float32 up to 2²⁴, which 1,024 such
products cannot exceed, or 65,536, and such sums as integers. That is the same in any order, for a token alone as among
others. With tokens of 16 bits, or scales within the sum, a float32 sum of K products is off by K · 2⁻²⁴ of the
magnitudes that it adds up, at most.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

PIECE = 1 << 21  # weights that are dequantised at once
EXACT = 1 << 24  # up to here float32 holds all integers
MASKS = (3, 12, 48, 192)  # where the four ternary weights of a byte stand: as they are, times 4, 16 and 64


def by_rows(tokens: Tensor, weights: Tensor) -> Tensor:
    """Weights of 8 bits. [..., K], [N, K] -> [..., N]"""
    flat = _flat(tokens)
    sums = _rounded(flat, len(weights), lambda begin, to: to.copy_(weights[begin : begin + len(to)]))
    return sums.view(*tokens.shape[:-1], len(weights))


def exactly_by_rows(tokens: Tensor, weights: Tensor) -> Tensor:
    """The same for tokens of 8 bits, to the last bit."""
    flat = _flat(tokens)
    sums = _exact(flat, len(weights), lambda begin, to: to.copy_(weights[begin : begin + len(to)]), EXACT >> 14)
    return sums.view(*tokens.shape[:-1], len(weights))


def by_groups(tokens: Tensor, weights: Tensor, scales: Tensor) -> Tensor:
    """Weights of 8 or 4 bits, times a scale per group: what 11 · 8 bits make, float32 holds. [..., K] -> [..., N]

    Four bits come out of their bytes in pairs (`_pairs`), and tokens are put in this order.
    """
    flat, groups = _flat(tokens), scales.shape[1]
    paired = weights.dtype == torch.uint8
    ordered = _paired(flat, groups) if paired else flat
    exact = scales.to(flat.dtype)[:, :, None]

    def dequantise(begin: int, to: Tensor) -> None:
        some = weights[begin : begin + len(to)]
        to.copy_(_pairs(some) if paired else some)
        torch.unflatten(to, 1, (groups, -1)).mul_(exact[begin : begin + len(to)])

    return _rounded(ordered, len(weights), dequantise).view(*tokens.shape[:-1], len(weights))


def _pairs(codes: Tensor) -> Tensor:
    """Low and high half of each byte side by side: 16 times the one, and the other. [N, K / 2] -> [N, K]

    Halves hold 8 more than they mean: with their top bits turned they are signed. Four steps to the left in 16 bits,
    the low half then ends a byte, and the high one with its sign is the next. Passes over bytes are cheap ones, and a
    group stays in one piece, of 32 numbers, which torch scales three times as fast as two of 16.
    """
    return (codes ^ 0x88).view(torch.int8).to(torch.int16).mul_(16).view(torch.int8)


def _paired(tokens: Tensor, groups: int) -> Tensor:
    """Tokens in the order of `_pairs`, those of low halves divided by 16. [T, K]"""
    halves = torch.unflatten(tokens, 1, (groups, 2, -1)) * tokens.new_tensor((1 / 16, 1))[:, None]
    return halves.transpose(2, 3).reshape(tokens.shape)


def by_fields(tokens: Tensor, codes: Tensor, rows: int) -> Tensor:
    """Ternary weights, four rows to a row of bytes, with tokens of 8 bits: to the last bit. [..., K] -> [..., N]

    Weights stay where they are in a byte, times a power of two that sums are divided by; and plus one, which is taken
    off the sums. All of it is exact: sums of multiples of 64 reach 64 times as far.
    """
    flat = _flat(tokens)
    masks = torch.tensor(MASKS, dtype=codes.dtype, device=codes.device)[:, None, None]
    some = max(1, _some(flat, len(MASKS) * len(codes)) // len(MASKS))
    sums = torch.cat([_by_field(flat, part, masks) for part in torch.split(codes, some)], 2)
    sums.div_(masks[:, 0] // 3, rounding_mode=None if sums.is_floating_point() else "floor")
    sums = sums.flatten(1)[:, :rows] - flat.sum(1, keepdim=True).to(sums)
    return sums.view(*tokens.shape[:-1], rows)


def _by_field(tokens: Tensor, codes: Tensor, masks: Tensor) -> Tensor:
    """[T, K], [R, K] -> [T, 4, R]"""
    fields = (codes & masks).flatten(0, 1)
    sums = _exact(tokens, len(fields), lambda begin, to: to.copy_(fields[begin : begin + len(to)]), EXACT >> 8)
    return sums.view(len(tokens), len(masks), len(codes))


def _flat(tokens: Tensor) -> Tensor:
    return tokens.reshape(-1, tokens.shape[-1])


def _rounded(tokens: Tensor, rows: int, dequantise: Callable[[int, Tensor], object]) -> Tensor:
    """Tokens times rows of weights, in float32. [T, K] -> [T, N]

    `dequantise(begin, to)` writes the rows from the given one on. Products go to memory that is given, which autocast
    leaves in float32.
    """
    sums = tokens.new_empty(len(tokens), rows)
    scratch = _scratch(tokens, rows)
    for begin in range(0, rows, max(1, len(scratch))):
        out = sums[:, begin : begin + len(scratch)]
        matrix = scratch[: out.shape[1]]
        dequantise(begin, matrix)
        torch.mm(tokens, matrix.T, out=out)
    return sums


def _exact(tokens: Tensor, rows: int, dequantise: Callable[[int, Tensor], object], most: int) -> Tensor:
    """The same where float32 sums `most` products exactly: integers, as float32 if that holds them, else as such."""
    inputs = tokens.shape[1]
    if inputs <= most:
        return _rounded(tokens, rows, dequantise)
    sums = tokens.new_zeros(len(tokens), rows, dtype=torch.int64)
    scratch = _scratch(tokens, rows)
    for begin in range(0, rows, max(1, len(scratch))):
        out = sums[:, begin : begin + len(scratch)]
        matrix, part = scratch[: out.shape[1]], tokens.new_empty(out.shape)
        dequantise(begin, matrix)
        for first in range(0, inputs, most):
            torch.mm(tokens[:, first : first + most], matrix[:, first : first + most].T, out=part)
            out += part.to(sums.dtype)
    return sums


def _scratch(tokens: Tensor, rows: int) -> Tensor:
    return tokens.new_empty(_some(tokens, rows), tokens.shape[1])


def _some(tokens: Tensor, rows: int) -> int:
    """How many rows at a time; on other devices all of them, since there calls cost more than memory."""
    return min(rows, max(1, PIECE // max(1, tokens.shape[1]))) if tokens.is_cpu else rows
