"""y = x Wᵀ + b with quantised weights, as operators of torch: `heed::int8`, `heed::w8a8`, `heed::grouped`,
`heed::two_bits`.

Each operator has a form written out in torch, which says what it computes; the kernel gives the same. Tokens are
quantised, too, each with a scale of its own, so that products are sums of integers: exact, in whatever order, and the
same for a token alone as for a token among others. No sum overflows 32 bits: with K inputs and weights up to 127 the
codes of a token reach to R = (2³¹ - 1) / 127·K at most, and never beyond 16 bits; where channels have 8 bits, too,
255·127·K stays below 2³¹ up to K = 66,311, and a wider matrix is not given to the kernel.

Where no kernel serves, the same sums are products of dequantised weights (`dequantised.py`), and only a float32 sum's
rounding is between them and the written-out form. Float64 is always written out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InputError
from ..threads.teams import team_size
from . import dequantised
from .abi import Matrix, Rounded, Weights
from .build import library, only_written_out
from .dispatch import must_have
from .refusals import must_be_done

GROUP = 32  # weights that share a scale
LARGEST = 127
SMALLEST = 1e-30  # the least that is divided by
HELD = dict.fromkeys((Weights.INT8, Weights.W8A8, Weights.GROUPS8), torch.int8) | {
    **dict.fromkeys((Weights.GROUPS4, Weights.TERNARY), torch.uint8),
    Weights.FLOAT32: torch.float32,
}

_DEFINED = torch.library.Library("heed", "DEF")  # type: ignore[no-untyped-call]
for _schema in (
    "int8(Tensor x, Tensor weights, Tensor scales, Tensor? bias) -> Tensor",
    "w8a8(Tensor x, Tensor weights, Tensor scales, Tensor? bias) -> Tensor",
    "grouped(Tensor x, Tensor weights, Tensor scales, Tensor? bias) -> Tensor",
    "two_bits(Tensor x, Tensor codes, Tensor scale, Tensor? bias, int rows) -> Tensor",
):
    _DEFINED.define(_schema)  # type: ignore[no-untyped-call]


def int8(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None = None) -> Tensor:
    """Weights [N, K] of 8 bits, times one scale per row [N]."""
    y: Tensor = torch.ops.heed.int8(x, weights, scales, bias)
    return y


def w8a8(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None = None) -> Tensor:
    """Weights as in `int8`, activations quantised to 8 bits as well: many tokens are multiplied twice as fast."""
    y: Tensor = torch.ops.heed.w8a8(x, weights, scales, bias)
    return y


def grouped(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None = None) -> Tensor:
    """Weights of 8 bits [N, K] or of 4 bits [N, K / 2], times one half-precision scale per 32 of them [N, K / 32]."""
    y: Tensor = torch.ops.heed.grouped(x, weights, scales, bias)
    return y


def two_bits(x: Tensor, codes: Tensor, scale: Tensor, bias: Tensor | None, rows: int) -> Tensor:
    """Weights -1, 0 and 1, four rows to a row of bytes [⌈N / 4⌉, K], times one scale [1]; channels of 8 bits."""
    y: Tensor = torch.ops.heed.two_bits(x, codes, scale, bias, rows)
    return y


def reach(inputs: int) -> int:
    """R: the largest code of a token where so many products are added up."""
    return min(2**15 - 1, (2**31 - 1) // (LARGEST * inputs))


def quantise_tokens(x: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Tokens as integer codes of at most so much in magnitude, and their scales."""
    exact = x.to(torch.promote_types(x.dtype, torch.float32))
    top = exact.abs().amax(-1, keepdim=True).clamp(min=SMALLEST)
    return (exact * (most / top)).round(), top / most


def int8_written_out(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """y = s ⊙ t · (W x'), x' = round(x / t), t = max|x| / R."""
    return _by_rows(x, weights, scales, bias, reach(weights.shape[1]), _exact)


def w8a8_written_out(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """The same with R = 127."""
    return _by_rows(x, weights, scales, bias, LARGEST, _exact)


def int8_dequantised(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """Written out up to the rounding of float32 sums of W x'."""
    return _by_rows(x, weights, scales, bias, reach(weights.shape[1]), dequantised.by_rows)


def w8a8_dequantised(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """Written out, to the last bit."""
    return _by_rows(x, weights, scales, bias, LARGEST, dequantised.exactly_by_rows)


def _exact(codes: Tensor, weights: Tensor) -> Tensor:
    return codes.double() @ weights.double().T  # below 2³¹, which float64 holds exactly


def _by_rows(
    x: Tensor,
    weights: Tensor,
    scales: Tensor,
    bias: Tensor | None,
    most: int,
    sums: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    codes, scale = quantise_tokens(x, most)
    y = sums(codes, weights).to(scale.dtype) * (scales * scale)
    return (y if bias is None else y + bias).to(x.dtype)


def grouped_written_out(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """y = t · Σ_g s_g (W_g x'_g), a sum over groups of 32 inputs: integers within a group.

    The kernel adds groups up in float32, for a token in the same order alone as among others.
    """
    return _by_groups(x, weights, scales, bias, _exact_groups)


def grouped_dequantised(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """Written out up to the rounding of float32 sums of s_g W_g x'_g."""
    return _by_groups(x, weights, scales, bias, dequantised.by_groups)


def _exact_groups(codes: Tensor, weights: Tensor, scales: Tensor) -> Tensor:
    parts, numbers = (by_group(t).double() for t in (codes, ungrouped(weights)))
    sums = torch.einsum("...gk,ngk->...ng", parts, numbers)
    return (sums * scales.double()).sum(-1)


def _by_groups(
    x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None, sums: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Tensor:
    codes, scale = quantise_tokens(x, reach(GROUP))
    y = sums(codes, weights, scales).to(scale.dtype) * scale
    return (y if bias is None else y + bias).to(x.dtype)


def ungrouped(weights: Tensor) -> Tensor:
    """The integer codes of groups, of which four bits hold 8 more than they mean, low halves first. [N, K]"""
    if weights.dtype == torch.int8:
        return weights
    pairs = by_group(weights, GROUP // 2)
    return torch.cat((pairs & 15, pairs >> 4), -1).flatten(-2).to(torch.int8) - 8


def by_group(x: Tensor, size: int = GROUP) -> Tensor:
    """[..., K] -> [..., K / size, size]"""
    return torch.unflatten(x, -1, (x.shape[-1] // size, size))


def matrix_of_groups(weights: Tensor, scales: Tensor) -> Tensor:
    """What groups stand for. [N, K]"""
    return (by_group(ungrouped(weights)).float() * scales.float().unsqueeze(-1)).flatten(-2)


def two_bits_written_out(x: Tensor, codes: Tensor, scale: Tensor, bias: Tensor | None, rows: int) -> Tensor:
    """y = β·γ · (W x'), x' = clip( round(x / γ), -128, 127 ), γ = max|x| / 127 (Ma et al. 2024)."""
    return _by_fields(x, codes, scale, bias, rows, lambda tokens: tokens @ _ternary(codes, rows).to(tokens).T)


def two_bits_dequantised(x: Tensor, codes: Tensor, scale: Tensor, bias: Tensor | None, rows: int) -> Tensor:
    """Written out, to the last bit."""
    return _by_fields(x, codes, scale, bias, rows, lambda tokens: dequantised.by_fields(tokens, codes, rows))


def _by_fields(
    x: Tensor, codes: Tensor, scale: Tensor, bias: Tensor | None, rows: int, sums: Callable[[Tensor], Tensor]
) -> Tensor:
    exact = x.to(torch.promote_types(x.dtype, torch.float32))
    factor = LARGEST / exact.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    whole = (exact * factor).round().clamp(-LARGEST - 1, LARGEST)
    y = sums(whole).to(whole.dtype) * (scale * (1.0 / factor))
    return (y if bias is None else y + bias).to(x.dtype)


def _ternary(codes: Tensor, rows: int) -> Tensor:
    """-1, 0 and 1. [⌈N / 4⌉, K] -> [N, K]"""
    shifts = torch.arange(0, 8, 2, dtype=torch.uint8, device=codes.device)[:, None, None]
    return ((codes >> shifts) & 3).flatten(0, 1)[:rows].to(torch.int8) - 1


def product(
    kind: Weights,
    x: Tensor,
    weights: Tensor,
    scales: Tensor | None,
    bias: Tensor | None,
    rows: int,
    out: Tensor | None = None,
) -> Tensor:
    """The kernel: tokens [..., K] in float32 give [..., rows], which is written to `out` if that is given."""
    compiled = library()
    assert compiled is not None
    _must_fit(kind, x, weights, scales, bias, rows)
    tokens = x.reshape(-1, x.shape[-1]).contiguous()
    count, inputs = tokens.shape
    y = tokens.new_empty(count, rows) if out is None else out
    must_have("linear", (y, (count, rows)))
    if count and rows:
        shorts = tokens.new_empty(count, padded(inputs), dtype=torch.int16)
        steps, sums = tokens.new_empty(count), tokens.new_empty(count, dtype=torch.int32)
        pointer = shorts.data_ptr()
        scratch = Rounded(pointer, pointer, steps.data_ptr(), sums.data_ptr(), *shorts.shape)
        made = matrix(kind, weights, scales, bias, rows, inputs)
        given = (tokens.data_ptr(), count, ctypes.byref(scratch), y.data_ptr(), team_size())
        must_be_done(compiled.heed_linear(ctypes.byref(made), *given))
    return y.view(*x.shape[:-1], rows)


def _must_fit(kind: Weights, x: Tensor, weights: Tensor, scales: Tensor | None, bias: Tensor | None, rows: int) -> None:
    """Raise unless these are the numbers that the kernel will read."""
    inputs = x.shape[-1]
    shape, scaled = {
        Weights.GROUPS8: ((rows, inputs), (rows, inputs // GROUP)),
        Weights.GROUPS4: ((rows, inputs // 2), (rows, inputs // GROUP)),
        Weights.TERNARY: ((-(-rows // 4), inputs), (1,)),
    }.get(kind, ((rows, inputs), (rows,)))
    must_have("linear", (weights, shape), *(() if scales is None else ((scales, scaled),)))
    must_have("linear", *(() if bias is None else ((bias, (rows,)),)))
    held = HELD[kind]
    if weights.dtype != held or (bias is not None and bias.dtype != torch.float32):
        found = weights.dtype if bias is None else f"{weights.dtype} and a bias of {bias.dtype}"
        raise InputError(f"heed::linear was given weights of {found}; needed are {held}, and float32 for a bias")


def plain_(out: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """out = x Wᵀ + b in whatever precision, into memory that is there. [M, K], [N, K] -> [M, N]"""
    plain = weight.dtype == out.dtype == torch.float32 and (bias is None or bias.dtype == torch.float32)
    if plain and x.shape[1] and served(x, weight, bias, out):
        return product(Weights.FLOAT32, x, weight, None, bias, len(weight), out)
    return torch.mm(x, weight.T, out=out) if bias is None else torch.addmm(bias, x, weight.T, out=out)


def padded(inputs: int) -> int:
    """Channels of a quantised token that there is room for: whole bundles of groups, on any processor."""
    return -(-inputs // 128) * 128


def matrix(
    kind: Weights, weights: Tensor, scales: Tensor | None, bias: Tensor | None, rows: int, inputs: int
) -> Matrix:
    """A matrix as kernels read it. The caller keeps the tensors alive."""
    at = (None if tensor is None else tensor.data_ptr() for tensor in (weights, scales, bias))
    return Matrix(int(kind), rows, inputs, 0, *at)


def served(x: Tensor, *given: Tensor | None) -> bool:
    """Whether the kernel may be used: it is there, and numbers are float32 and lie in one piece."""
    plain = x.dtype == torch.float32 and all(t is None or t.is_contiguous() for t in given)
    return plain and library() is not None


def _int8(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    if served(x, weights, scales, bias) and scales.dtype == torch.float32:
        return product(Weights.INT8, x, weights, scales, bias, len(weights))
    return _int8_in_torch(x, weights, scales, bias)


def _w8a8(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    narrow = weights.shape[1] <= (2**31 - 1) // (255 * LARGEST)
    if narrow and served(x, weights, scales, bias) and scales.dtype == torch.float32:
        return product(Weights.W8A8, x, weights, scales, bias, len(weights))
    return _w8a8_in_torch(x, weights, scales, bias)


def _grouped(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    if served(x, weights, scales, bias) and scales.dtype == torch.float16:
        kind = Weights.GROUPS8 if weights.dtype == torch.int8 else Weights.GROUPS4
        return product(kind, x, weights, scales, bias, len(weights))
    return _grouped_in_torch(x, weights, scales, bias)


def _two_bits(x: Tensor, codes: Tensor, scale: Tensor, bias: Tensor | None, rows: int) -> Tensor:
    if served(x, codes, scale, bias) and scale.dtype == torch.float32:
        return product(Weights.TERNARY, x, codes, scale, bias, rows)
    return _two_bits_in_torch(x, codes, scale, bias, rows)


def _in_torch(written_out: Callable[..., Tensor], dequantised: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Without a kernel: written out to compare with and in float64, else as products of dequantised weights."""

    def form(x: Tensor, *given: Any) -> Tensor:
        exact = x.dtype == torch.float64 or only_written_out()
        return written_out(x, *given) if exact else dequantised(x, *given)

    return form


_int8_in_torch = _in_torch(int8_written_out, int8_dequantised)
_w8a8_in_torch = _in_torch(w8a8_written_out, w8a8_dequantised)
_grouped_in_torch = _in_torch(grouped_written_out, grouped_dequantised)
_two_bits_in_torch = _in_torch(two_bits_written_out, two_bits_dequantised)


def _matrix(kind: str, held: tuple[Tensor, ...], rows: int) -> Tensor:
    """What tokens are multiplied with. [N, K]"""
    weights, scales = held
    if kind in ("int8", "w8a8"):
        return weights.to(scales) * scales[:, None]
    if kind == "grouped":
        return matrix_of_groups(weights, scales)
    return _ternary(weights, rows).to(scales) * scales


def _learns(name: str) -> None:
    """Gradients pass to tokens, straight through their rounding (Bengio et al. 2013); quantised weights stay."""

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1], inputs[2])
        ctx.rows, ctx.given, ctx.dtype = output.shape[-1], len(inputs), inputs[0].dtype

    def gradient(ctx: Any, above: Tensor) -> tuple[Tensor | None, ...]:
        matrix = _matrix(name, ctx.saved_tensors, ctx.rows).to(above)
        return ((above @ matrix).to(ctx.dtype), *(None,) * (ctx.given - 1))

    torch.library.register_autograd(f"heed::{name}", gradient, setup_context=keep, lib=_DEFINED)


def _like(x: Tensor, weights: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(*x.shape[:-1], weights.shape[0])


def _like_rows(x: Tensor, codes: Tensor, scale: Tensor, bias: Tensor | None, rows: int) -> Tensor:
    return x.new_empty(*x.shape[:-1], rows)


for _name, _form, _in_torch_only, _fake in (
    ("int8", _int8, _int8_in_torch, _like),
    ("w8a8", _w8a8, _w8a8_in_torch, _like),
    ("grouped", _grouped, _grouped_in_torch, _like),
    ("two_bits", _two_bits, _two_bits_in_torch, _like_rows),
):
    _DEFINED.impl(_name, _form, "CPU")  # type: ignore[no-untyped-call]
    _DEFINED.impl(_name, _in_torch_only, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"heed::{_name}", _fake, lib=_DEFINED)
    _learns(_name)
