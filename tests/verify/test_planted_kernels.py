"""Every statement about kernels, and about what is used without them, fails when just that is a little wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_double, c_float, c_int64
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.laws import Finding
from heed.engine.execution import Execution
from heed.kernels import build, dequantised, library
from heed.kernels.abi import Weights
from heed.kernels.build import Loaded
from heed.verify.base import Proof, compared
from heed.verify.kernels import DEQUANTISED, KERNELS, _both_ways

compiled = pytest.mark.skipif(library() is None, reason="this machine has no C++ compiler")
Meddle = Callable[..., None]  # of what a kernel was given, after it has run
Plant = Callable[[pytest.MonkeyPatch], None]
SLOW = {"a program = its model", "a pass = its stack"}


class Meddled:
    """The kernels of this machine; after one of them has run, somebody changes what it wrote."""

    def __init__(self, right: ctypes.CDLL, name: str, meddle: Meddle) -> None:
        self._right, self._name, self._meddle = right, name, meddle

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._right, name)
        if name != self._name:
            return function

        def both(*given: Any) -> Any:
            made = function(*given)
            self._meddle(*given)
            return made

        return both


def _number(place: int, kind: Any = c_float, times: float = 1.01, plus: float = 1e-3) -> None:
    number = kind.from_address(place)
    number.value = number.value * times + plus


def _last_bit(place: int) -> None:
    number = c_float.from_address(place)
    number.value = float(torch.nextafter(torch.tensor(number.value), torch.tensor(torch.inf)))


def after(name: str, meddle: Meddle) -> Plant:
    """A kernel of this name with a meddler behind it."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = build._loaded()
        assert right.library is not None
        meddled: Any = Meddled(right.library, name, meddle)
        patch.setattr(build, "_loaded", cache(lambda: Loaded(meddled, right.words)))

    return plant


def product(kind: Weights, change: Callable[[int], None]) -> Plant:
    """The first number of what matrices of this kind give."""

    def meddle(matrix: Any, x: int, count: int, scratch: Any, y: int, threads: int) -> None:
        if matrix._obj.kind == kind:
            change(y)

    return after("heed_linear", meddle)


def argument(name: str, place: int, kind: Any = c_float) -> Plant:
    """The first number of what a kernel writes to one of its arguments."""
    return after(name, lambda *given: _number(given[place], kind))


def gradient(name: str, field: str) -> Plant:
    """The first number of one of the gradients that a kernel finds."""
    return after(name, lambda scan, gradients, threads: _number(getattr(gradients._obj, field)))


def last_state(name: str, parts: int, used: int) -> Plant:
    """The last number that a scan leaves to the next call; each state has so many parts, of which some have slopes."""

    def meddle(scan: Any, y: int, threads: int) -> None:
        given = scan._obj
        numbers = given.numbers if name == "heed_selective_scan" else parts
        states = (-(-given.tokens // given.chunk) + 1) * given.rows
        _number(given.states + 4 * ((states * numbers - (parts - used)) * given.channels - 1))

    return after(name, meddle)


def other_token(*given: Any) -> None:
    """Another token than the kernel chose, with the log-probability of that one."""
    token = c_int64.from_address(given[7])
    token.value = (token.value + 1) % given[0]._obj.registers[given[2]].width


def twice(*given: Any) -> None:
    """The first of the most probable tokens in the place of the second, too."""
    if given[3] > 1:
        tokens = (c_int64 * 2).from_address(given[4])
        tokens[1] = tokens[0]


def arena(method: str) -> Plant:
    """All that a program leaves in its registers."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = getattr(Execution, method)

        def wrong(self: Execution, *given: Any, **named: Any) -> Any:
            made = right(self, *given, **named)
            self._arena.mul_(1.001)
            return made

        patch.setattr(Execution, method, wrong)

    return plant


SCAN, WKV = "heed_selective_scan", "heed_wkv"
FAULTS: dict[str, dict[str, Plant]] = {
    "int8 = written out": {"a bit": product(Weights.INT8, _last_bit)},
    "w8a8 = written out": {"a bit": product(Weights.W8A8, _last_bit)},
    "two bits = written out": {"a bit": product(Weights.TERNARY, _last_bit)},
    "groups = written out": {
        "of 8 bits": product(Weights.GROUPS8, _number),
        "of 4 bits": product(Weights.GROUPS4, _number),
    },
    "float32 = written out": {"a product": product(Weights.FLOAT32, _number)},
    "entropy = written out": {
        "slopes": argument("heed_entropy", 0),
        "nats": argument("heed_entropy", 5, c_double),
        "their spread": argument("heed_entropy", 6, c_double),
    },
    "state space = written out": {
        "outputs": argument(SCAN, 1),
        "the last state": last_state(SCAN, 1, 1),
        **{f: gradient(f"{SCAN}_back", f) for f in ("step", "input", "start", "write", "read", "rates")},
    },
    "weighted means = written out": {
        "outputs": argument(WKV, 1),
        "the last sums": last_state(WKV, 3, 2),
        **{f: gradient(f"{WKV}_back", f) for f in ("key", "value", "start", "fade", "bonus")},
    },
    "choice = written out": {
        "another token": after("heed_write", other_token),
        "its log-probability": argument("heed_write", 8),
    },
    "top-k log-probabilities = written out": {
        "log-probabilities": argument("heed_topk_logprobs", 5),
        "a token twice": after("heed_topk_logprobs", twice),
    },
    "a program = its model": {"registers": arena("step")},
    "a pass = its stack": {"registers": arena("prefill")},
}
EACH = [(statement, fault) for statement, faults in FAULTS.items() for fault in faults]


def failed(statements: dict[str, Callable[[], list[Finding]]]) -> list[str]:
    proofs = (compared("kernels", statement, compare)() for statement, compare in statements.items())
    return [proof.statement for proof in proofs if proof.fails]


@compiled
@pytest.mark.parametrize(("statement", "fault"), EACH)
def test_a_kernel_that_is_a_little_off_is_found(statement: str, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FAULTS[statement][fault](monkeypatch)
    assert failed({statement: KERNELS[statement]}) == [statement]


@compiled
@pytest.mark.parametrize("statement", KERNELS)
def test_only_the_statement_about_it_fails(statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement that has no fault planted here is one that nobody has seen fail."""
    asked = {name: compare for name, compare in KERNELS.items() if name not in SLOW or name == statement}
    next(iter(FAULTS[statement].values()))(monkeypatch)
    assert failed(asked) == [statement]


def _grown(name: str, times: float) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        right = getattr(dequantised, name)
        patch.setattr(dequantised, name, lambda *given: right(*given) * times)

    return plant


def _of_bits(dtype: torch.dtype) -> Plant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        right = dequantised.by_groups

        def wrong(codes: Tensor, weights: Tensor, scales: Tensor) -> Tensor:
            return right(codes, weights, scales) * (1.0 + 1e-4 * (weights.dtype == dtype))

        patch.setattr(dequantised, "by_groups", wrong)

    return plant


IN_TORCH: dict[str, Plant] = {
    "int8 = written out": _grown("by_rows", 1 + 1e-4),
    "w8a8 = written out": _grown("exactly_by_rows", 1 + 2**-23),
    "two bits = written out": _grown("by_fields", 1 + 2**-23),
    "groups of 8 bits = written out": _of_bits(torch.int8),
    "groups of 4 bits = written out": _of_bits(torch.uint8),
}


@pytest.mark.parametrize("statement", DEQUANTISED)
def test_only_the_statement_about_what_is_used_without_kernels_fails(
    statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    IN_TORCH[statement](monkeypatch)
    assert failed(DEQUANTISED) == [statement]


@compiled
@pytest.mark.parametrize("method", ["DecoderProgram", "passed"])
def test_where_nothing_has_a_program_that_is_told(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are there, and no sample uses them: a failure, not a statement that was not tried."""
    from heed.engine.program import Uncompiled

    def never(*given: Any) -> None:
        if method == "DecoderProgram":
            raise Uncompiled("sample", "none has one")

    monkeypatch.setattr(f"heed.verify.kernels.{method}", never)
    statement = "a program = its model" if method == "DecoderProgram" else "a pass = its stack"
    proof = compared("kernels", statement, KERNELS[statement])()
    assert proof.fails
    assert (proof.samples, proof.worst) == (0, "there is no sample to try it on")


@pytest.mark.parametrize("place", range(3))
def test_no_number_among_outputs_or_slopes_is_far_apart(place: int) -> None:
    """The largest of numbers, of which one is none, may be any of them."""

    def form(*given: Tensor) -> tuple[Tensor, ...]:
        outputs = [given[0] * 1.0, given[1] * 2.0, given[2] * 3.0]
        if given[0].dtype == torch.float32:
            outputs[place] = outputs[place] + torch.tensor([torch.nan, 0.0])
        return tuple(outputs)

    assert _both_ways(form, (torch.ones(2),) * 3) == torch.inf
    assert not Proof.of("x", "y", [Finding("y", _both_ways(form, (torch.ones(2),) * 3), 1.0, "")]).holds
