"""Entry points of the kernels beside a program: each refuses what cannot be right, and so do operators of torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.errors import InputError
from heed.kernels import entropy_, library, selective, wkv
from heed.kernels.abi import (
    OpenMp,
    Rounded,
    SelectiveScan,
    SelectiveScanGradients,
    Weights,
    Wkv,
    WkvGradients,
)
from heed.kernels.linear import matrix
from heed.kernels.refusals import Refusal

pytestmark = pytest.mark.skipif(library() is None, reason="there is no compiler")

HUGE = 1 << 62
BROKEN_COUNTS = (-1, -HUGE, HUGE)


def _kernels() -> Any:
    found = library()
    assert found is not None
    return found


def test_a_linear_layer() -> None:
    x, y, weights, scales = torch.randn(3, 32), torch.zeros(3, 4), torch.ones(4, 32, dtype=torch.int8), torch.ones(4)
    shorts = torch.zeros(3, 128, dtype=torch.int16)
    steps, sums = torch.zeros(3), torch.zeros(3, dtype=torch.int32)

    def run(
        fields: Mapping[str, int | None] = {}, given_tokens: int = 3, threads: int = 1, x_at: int | None = x.data_ptr()
    ) -> int:
        made = matrix(Weights.INT8, weights, scales, None, 4, 32)
        at = shorts.data_ptr()
        room = Rounded(at, at, steps.data_ptr(), sums.data_ptr(), *shorts.shape)
        for name, value in fields.items():
            setattr(room if name in dict(Rounded._fields_) else made, name, value)
        given = (x_at, given_tokens, ctypes.byref(room), y.data_ptr(), threads)
        return int(_kernels().heed_linear(ctypes.byref(made), *given))

    assert run() == Refusal.DONE
    assert bool(y.abs().sum() > 0)
    y.zero_()
    for threads in (0, -1, 1 << 20):
        assert run(threads=threads) == Refusal.THREADS
    for count in BROKEN_COUNTS:
        assert run(given_tokens=count) == Refusal.SIZES
        assert run({"inputs": min(0, count)}) == Refusal.SIZES
    for wrong in ({"rows": -1}, {"columns": 0}, {"columns": -1}, {"kind": -1}, {"kind": 6}, {"across": 4}):
        assert run(wrong) == Refusal.SIZES
    for wrong in ({"tokens": 2}, {"inputs": 31}, {"kind": Weights.GROUPS8, "columns": 33}, {"columns": 2**31 - 1}):
        assert run(wrong) == Refusal.SIZES
    assert run({"kind": Weights.W8A8, "columns": 66_312}) == Refusal.SIZES  # whose sums would overflow
    for missing in ("weights", "scales", "shorts", "bytes", "steps", "sums"):
        assert run({missing: None}) == Refusal.MISSING
    assert run(x_at=None) == Refusal.MISSING
    assert _kernels().heed_linear(None, None, 0, None, None, 1) == Refusal.MISSING
    assert not y.abs().sum()


def test_the_loss() -> None:
    logits, labels, both = torch.randn(3, 5), torch.tensor([0, 4, 2]), torch.zeros(2, 3, dtype=torch.float64)

    def run(rows: int = 3, count: int = 5, threads: int = 1, **missing: None) -> int:
        at = {"logits": logits.data_ptr(), "labels": labels.data_ptr(), "nats": both[0].data_ptr()} | missing
        last = missing.get("spreads", both[1].data_ptr())
        return int(_kernels().heed_entropy(at["logits"], at["labels"], rows, count, 0.1, at["nats"], last, threads))

    for count in BROKEN_COUNTS:
        assert run(rows=count) == run(count=count) == Refusal.SIZES
    assert run(threads=0) == run(threads=-1) == Refusal.THREADS
    assert run(count=4) == run(count=0) == Refusal.VALUES
    assert run(labels=None) == run(logits=None) == run(nats=None) == run(spreads=None) == Refusal.MISSING
    assert run(0, logits=None, labels=None) == Refusal.DONE
    with pytest.raises(InputError, match="labels are 0 to 4; the classes are 0 to 3"):
        entropy_(torch.randn(3, 4), labels)


def test_the_largest_logits() -> None:
    scores, tokens, logp = torch.randn(2, 5), torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3)
    at = scores.data_ptr(), tokens.data_ptr(), logp.data_ptr()

    def run(rows: int = 2, count: int = 5, k: int = 3, threads: int = 1, place: int | None = at[0]) -> int:
        return int(_kernels().heed_topk_logprobs(place, rows, count, k, *at[1:], threads))

    assert run() == Refusal.DONE
    assert run(threads=0) == Refusal.THREADS
    assert run(place=None) == Refusal.MISSING
    for count in BROKEN_COUNTS:
        assert run(rows=count) == run(count=count) == run(k=count) == Refusal.SIZES
    assert run(k=0) == run(k=6) == Refusal.SIZES


def _at(*tensors: Tensor) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


def test_a_selective_scan() -> None:
    rows, tokens, channels, numbers = 2, 3, 4, 2
    step, u, write, read = (torch.rand(rows, tokens, n) for n in (channels, channels, numbers, numbers))
    rates, states, y = torch.rand(numbers, channels), torch.zeros(rows, 2, numbers, channels), torch.zeros(2, 3, 4)
    given = [y, states[:, 0].clone(), torch.zeros_like(y), torch.zeros_like(y), states[:, 0].clone()]
    sums = [torch.zeros_like(write), torch.zeros_like(read), torch.zeros_like(rates)]

    def run(
        fields: Mapping[str, int | None] = {}, threads: int = 1, out: int | None = y.data_ptr(), grads: str = ""
    ) -> list[int]:
        scan = SelectiveScan(rows, tokens, channels, numbers, 64, *_at(step, u, write, read, rates, states))
        back = SelectiveScanGradients(*_at(*given, *sums))
        for name, value in fields.items():
            setattr(scan, name, value)
        if grads:
            setattr(back, grads, None)
        forth = _kernels().heed_selective_scan(ctypes.byref(scan), out, threads)
        return [int(forth), int(_kernels().heed_selective_scan_back(ctypes.byref(scan), ctypes.byref(back), threads))]

    assert run() == [Refusal.DONE] * 2
    assert run(threads=0) == run(threads=-1) == [Refusal.THREADS] * 2
    for count in BROKEN_COUNTS:
        for size in ("rows", "tokens", "channels", "numbers", "chunk"):
            assert run({size: count}) == [Refusal.SIZES] * 2, size
    assert run({"chunk": 0}) == [Refusal.SIZES] * 2
    for missing in ("step", "input", "write", "read", "rates", "states"):
        assert run({missing: None}) == [Refusal.MISSING] * 2
    assert run(out=None) == [Refusal.MISSING, Refusal.DONE]
    for name, *_ in SelectiveScanGradients._fields_:
        assert run(grads=name) == [Refusal.DONE, Refusal.MISSING]
    assert _kernels().heed_selective_scan(None, None, 1) == Refusal.MISSING
    assert _kernels().heed_selective_scan_back(None, None, 1) == Refusal.MISSING


def test_wkv() -> None:
    rows, tokens, channels = 2, 3, 4
    key, value, fade, bonus = torch.rand(2, 3, 4), torch.rand(2, 3, 4), -torch.rand(4), torch.rand(4)
    states, y, ends = torch.zeros(rows, 2, 3, channels), torch.zeros(2, 3, 4), torch.tensor([3, 2])
    given = [
        y,
        torch.zeros(rows, 2, channels),
        y.clone(),
        y.clone(),
        torch.zeros(rows, 2, channels),
        fade * 0,
        bonus * 0,
    ]

    def run(
        fields: Mapping[str, int | None] = {}, threads: int = 1, out: int | None = y.data_ptr(), grads: str = ""
    ) -> list[int]:
        scan = Wkv(rows, tokens, channels, 64, *_at(ends, key, value, fade, bonus, states))
        back = WkvGradients(*_at(*given))
        for name, number in fields.items():
            setattr(scan, name, number)
        if grads:
            setattr(back, grads, None)
        forth = _kernels().heed_wkv(ctypes.byref(scan), out, threads)
        return [int(forth), int(_kernels().heed_wkv_back(ctypes.byref(scan), ctypes.byref(back), threads))]

    assert run() == [Refusal.DONE] * 2
    assert run(threads=0) == run(threads=-1) == [Refusal.THREADS] * 2
    for count in BROKEN_COUNTS:
        for size in ("rows", "tokens", "channels", "chunk"):
            assert run({size: count}) == [Refusal.SIZES] * 2, size
    assert run({"chunk": 0}) == [Refusal.SIZES] * 2
    for missing in ("key", "value", "fade", "bonus", "states"):
        assert run({missing: None}) == [Refusal.MISSING] * 2
    assert run(out=None) == [Refusal.MISSING, Refusal.DONE]
    for name, *_ in WkvGradients._fields_:
        assert run(grads=name) == [Refusal.DONE, Refusal.MISSING]
    for count in (-1, tokens + 1):
        ends[1] = count
        assert run() == [Refusal.SIZES] * 2
    assert _kernels().heed_wkv(None, None, 1) == _kernels().heed_wkv_back(None, None, 1) == Refusal.MISSING


def test_huge_pages_and_threads() -> None:
    many = (ctypes.c_int64 * 1)(0), (ctypes.c_int64 * 1)(0)
    run = _kernels().heed_huge_pages
    assert run(*many, 1, 0) == run(None, None, 0, 0) == Refusal.DONE
    assert [run(*many, count, 0) for count in BROKEN_COUNTS] == [Refusal.SIZES] * 3
    assert run(None, many[1], 1, 0) == run(many[0], None, 1, 0) == Refusal.MISSING
    many[1][0] = -1
    assert run(*many, 1, 0) == Refusal.SIZES
    assert _kernels().heed_threads(None) == _kernels().heed_threads(ctypes.byref(OpenMp())) == Refusal.MISSING


# --- what operators are given ---


@pytest.mark.parametrize("place", range(1, 6))
def test_a_scan_of_another_shape_is_refused(place: int) -> None:
    given = [
        torch.rand(2, 3, 4),
        torch.rand(2, 3, 4),
        torch.rand(2, 3, 5),
        torch.rand(2, 3, 5),
        torch.rand(5, 4),
        torch.rand(2, 5, 4),
    ]
    selective(*given)
    given[place] = given[place][..., :-1].contiguous()
    with pytest.raises(InputError, match="was given a tensor of shape"):
        selective(*given)


@pytest.mark.parametrize("place", range(8))
def test_a_scans_gradient_of_another_shape_is_refused(place: int) -> None:
    step, u, write, read = torch.rand(2, 3, 4), torch.rand(2, 3, 4), torch.rand(2, 3, 5), torch.rand(2, 3, 5)
    rates, last, states = torch.rand(5, 4), torch.rand(2, 5, 4), torch.rand(2, 2, 5, 4)
    given = [torch.rand(2, 3, 4), last, step, u, write, read, rates, states]
    torch.ops.heed.selective_back(*given)
    given[place] = given[place][..., :-1].contiguous()
    with pytest.raises(InputError, match="was given a tensor of shape"):
        torch.ops.heed.selective_back(*given)


@pytest.mark.parametrize("place", range(7))
def test_the_gradient_of_wkv_of_another_shape_is_refused(place: int) -> None:
    key, value, fade, bonus = torch.rand(2, 3, 4), torch.rand(2, 3, 4), -torch.rand(4), torch.rand(4)
    given = [torch.rand(2, 3, 4), torch.rand(3, 2, 4), key, value, fade, bonus, torch.rand(2, 2, 3, 4)]
    torch.ops.heed.wkv_back(*given, None)
    given[place] = given[place][..., :-1].contiguous()
    with pytest.raises(InputError, match="was given a tensor of shape"):
        torch.ops.heed.wkv_back(*given, None)


def test_more_tokens_than_there_are_in_a_row_are_refused() -> None:
    given = torch.rand(2, 3, 4), torch.rand(2, 3, 4), -torch.rand(4), torch.rand(4), torch.zeros(3, 2, 4)
    wkv(*given, torch.tensor([3, 0]))
    for count in (-1, 4):
        with pytest.raises(InputError, match="counts that do not fit together"):
            wkv(*given, torch.tensor([3, count]))


WEIGHTS = torch.ones(4, 32, dtype=torch.int8)
HALVES, FIELDS = torch.ones(4, 16, dtype=torch.uint8), torch.ones(1, 32, dtype=torch.uint8)
GROUPED, LAYERS = torch.ones(4, 1, dtype=torch.half), torch.ops.heed


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: LAYERS.int8(x, WEIGHTS[:, :31].contiguous(), torch.ones(4), None),
        lambda x: LAYERS.int8(x, WEIGHTS, torch.ones(3), None),
        lambda x: LAYERS.int8(x, WEIGHTS, torch.ones(4), torch.ones(3)),
        lambda x: LAYERS.int8(x, WEIGHTS, torch.ones(4), torch.ones(4).half()),
        lambda x: LAYERS.int8(x, HALVES.new_ones(4, 32), torch.ones(4), None),
        lambda x: LAYERS.w8a8(x, WEIGHTS[:, :8].contiguous(), torch.ones(4), None),
        lambda x: LAYERS.grouped(x, HALVES[:, :8].contiguous(), GROUPED, None),
        lambda x: LAYERS.grouped(x, WEIGHTS, GROUPED[:3], None),
        lambda x: LAYERS.two_bits(x, FIELDS, torch.ones(1), None, 5),
        lambda x: LAYERS.two_bits(x, FIELDS[:, :31].contiguous(), torch.ones(1), None, 4),
        lambda x: LAYERS.two_bits(x, FIELDS, torch.ones(0), None, 4),
    ],
)
def test_a_layer_of_another_shape_or_dtype_is_refused(wrong: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(InputError, match="heed::linear was given"):
        wrong(torch.randn(3, 32))
