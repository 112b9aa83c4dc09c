"""What a user's machine computes with is tested on that machine; a kernel that is off is found."""

from __future__ import annotations

import pytest
import torch

from heed.kernels import library, linear
from heed.verify import proofs
from heed.verify.kernels import KERNELS

compiled = pytest.mark.skipif(library() is None, reason="this machine has no C++ compiler")


@compiled
def test_all_active_kernels_hold() -> None:
    found = [check() for check in proofs(["kernels"])]
    assert [proof.statement for proof in found] == list(KERNELS)
    assert all(proof.holds for proof in found), found
    assert all(proof.samples >= 3 for proof in found)


@compiled
def test_a_kernel_that_is_off_by_little_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = linear.int8
    monkeypatch.setattr(linear, "int8", lambda *given: torch.nextafter(right(*given), torch.tensor(torch.inf)))
    assert [proof.statement for check in proofs(["kernels"]) if not (proof := check()).holds] == ["int8 = written out"]


def test_without_kernels_there_is_nothing_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heed.verify.kernels.library", lambda: None)
    found = [check() for check in proofs(["kernels"])]
    assert all(proof.holds and "no kernels" in proof.worst for proof in found)
