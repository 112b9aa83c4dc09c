"""The laws once more in float32, in which kernels compute: padding that a kernel hears is seen near its module."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import MixerConfig
from heed.core.laws import LAWS, Case, Finding, Law, cost, padding, reach, rows, split
from heed.kernels import library, selective_scan, wkv_scan
from heed.mixers import MIXERS, Mamba, Rwkv
from heed.parts.feedforward import FEEDFORWARDS

WIDTH = 24
KINDS = (*MIXERS, *FEEDFORWARDS)
FEW = 3  # samples of a kind of which everything is asked; of the others, only what becomes of padding
EVERY = [sample for kind in KINDS for sample in kind.samples()]
MAIN = [sample for kind in KINDS for sample in kind.samples()[:FEW]]


def found(law: Law, sample: MixerConfig, tokens: int = 11) -> Finding:
    torch.manual_seed(0)
    return law(sample.build(WIDTH), Case.make(WIDTH, tokens=tokens, dtype=torch.float32))


@pytest.mark.parametrize("sample", EVERY, ids=repr)
def test_padding_changes_nothing(sample: MixerConfig) -> None:
    finding = found(padding, sample)
    assert finding.holds, finding


@pytest.mark.parametrize("law", [split, rows, cost, reach], ids=lambda law: law.__name__)
@pytest.mark.parametrize("sample", MAIN, ids=repr)
def test_law_holds(law: Law, sample: MixerConfig) -> None:
    finding = found(law, sample)
    assert finding.holds, finding


def test_all_of_them_are_asked_everything() -> None:
    assert len(MIXERS) == 44
    assert {padding, split, rows, cost, reach} == set(LAWS)


def test_the_bound_is_what_rounding_explains() -> None:
    """Tight enough to see one channel of one token in a thousand, and no tighter than what rounding does."""
    case = Case.make(WIDTH, dtype=torch.float32)
    assert case.bound == 8 * 2**-23 * (11 * WIDTH) ** 0.5 < 2e-5
    worst = max(found(split, sample).error for kind in KINDS for sample in kind.samples()[:1])
    assert 2**-23 < worst < case.bound


def _every_token_is_real(inputs: list[Tensor], states: Tensor, count: Tensor | None) -> Any:
    return _WKV(inputs, states, None)


def _no_step_is_zero(inputs: list[Tensor], states: Tensor) -> Any:
    inputs[0] = torch.where(inputs[0] == 0, 0.5, inputs[0])  # the caller's list keeps it alive
    return _SCAN(inputs, states)


_WKV, _SCAN = wkv_scan._given, selective_scan._scan


@pytest.mark.skipif(library() is None, reason="this machine has no C++ compiler")
@pytest.mark.parametrize(
    ("sample", "place", "wrong"),
    [
        (Rwkv.Config(), "heed.kernels.wkv_scan._given", _every_token_is_real),
        (Mamba.Config(), "heed.kernels.selective_scan._scan", _no_step_is_zero),
    ],
    ids=["rwkv", "mamba"],
)
def test_a_kernel_that_hears_padding_is_seen(
    sample: MixerConfig, place: str, wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float64, which kernels do not compute in, it is not."""
    monkeypatch.setattr(place, wrong)
    assert not found(padding, sample).holds
    assert padding(sample.build(WIDTH), Case.make(WIDTH)).holds
