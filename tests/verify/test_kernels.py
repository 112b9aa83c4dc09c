"""What a user's machine computes with is tested on that machine; a kernel that is off is found."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from heed.cli import app
from heed.core.laws import Finding
from heed.kernels import build, dequantised, library, linear
from heed.kernels.build import Loaded
from heed.verify import proofs
from heed.verify.base import compared
from heed.verify.kernels import DEQUANTISED, KERNELS

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


@pytest.fixture
def _no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "_loaded", cache(lambda: Loaded(None, "none: there is no compiler")))
    build._loaded()


def _verify(*names: str) -> tuple[int, Any]:
    told = CliRunner().invoke(app, ["verify", *names, "--json"])
    return told.exit_code, json.loads(told.stdout)


@pytest.mark.usefixtures("_no_kernels")
def test_without_kernels_nothing_is_shown_about_them() -> None:
    """Asked for by name that is a failure; in no case does a statement about nothing hold."""
    code, told = _verify("kernels")
    assert code == 1
    assert not told["holds"]
    (proof,) = told["proofs"]
    assert proof["missing"] == "no kernels here (there is no compiler)"
    assert (proof["holds"], proof["samples"], proof["error"]) == (False, 0, None)
    shown = CliRunner().invoke(app, ["verify", "kernels", "scores"])
    assert shown.exit_code == 1
    assert "not proven: no kernels here (there is no compiler)" in shown.stdout
    assert "1 of 2 statements hold, 1 could not be tried" in shown.stdout


@pytest.mark.usefixtures("_no_kernels")
def test_among_everything_what_cannot_be_tried_is_told_and_does_not_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heed.verify.proof.tables", tuple)  # everything but the tables, which take their time
    code, told = _verify()
    assert code == 0
    assert not told["holds"]
    assert [proof["subject"] for proof in told["proofs"] if not proof["holds"]] == ["kernels"]


def test_what_is_used_without_kernels_holds_with_and_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [check() for check in proofs(["dequantised"])]
    assert [proof.statement for proof in found] == list(DEQUANTISED)
    assert all(proof.holds and proof.samples >= 20 for proof in found), found
    right = dequantised.by_groups
    monkeypatch.setattr(dequantised, "by_groups", lambda *given: right(*given) * (1 + 1e-4))
    wrong = [proof.statement for check in proofs(["dequantised"]) if not (proof := check()).holds]
    assert wrong == ["groups of 8 bits = written out", "groups of 4 bits = written out"]


def test_no_sample_is_no_proof() -> None:
    found: list[Finding] = []
    proof = compared("thing", "is right", lambda: found)()
    assert not proof.holds
    assert proof.fails
    assert proof.worst == "there is no sample to try it on"
