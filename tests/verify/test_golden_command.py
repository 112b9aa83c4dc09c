"""`heed verify --golden`: recorded runs computed again, with stated and with measured bounds; what differs is told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from math import inf, nan
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from typer.testing import CliRunner

from heed.cli import app
from heed.verify import Proof, golden, recorded

GOLDEN = Path(__file__).parents[1] / "golden"


def test_recorded_runs_are_computed_again(tmp_path: Path) -> None:
    golden = GOLDEN
    found = CliRunner().invoke(app, ["verify", "--golden", str(golden / "gpt2"), str(golden / "bert"), "--json"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)["proofs"]
    assert [proof["subject"] for proof in told] == ["gpt2/generate", "gpt2/lm", "bert/pretraining"]
    assert all(0 < proof["bound"] < 1e-4 and proof["error"] <= proof["bound"] for proof in told)

    shutil.copytree(golden / "gpt2" / "lm", tmp_path / "lm")  # no error is recorded here: it is measured
    assert CliRunner().invoke(app, ["verify", "--golden", str(tmp_path)]).exit_code == 0
    wanted = load_file(tmp_path / "lm" / "outputs.safetensors")
    save_file(wanted | {"logits": wanted["logits"] + 1e-3}, tmp_path / "lm" / "outputs.safetensors")
    wrong = CliRunner().invoke(app, ["verify", "--golden", str(tmp_path)])
    assert wrong.exit_code == 1
    assert "logits" in wrong.output
    (tmp_path / "lm" / "config.json").write_text('{"model_type": "gtp2"}')
    unknown = CliRunner().invoke(app, ["verify", "--golden", str(tmp_path)])
    assert unknown.exit_code == 1
    assert "did you mean gpt2?" in unknown.output.replace("\n", " ")
    assert "holds none" in str(CliRunner().invoke(app, ["verify", "--golden", str(tmp_path / "none")]).exception)


def test_every_recorded_run_holds() -> None:
    """Also those of authors that hide padding by masks of other names, or put time first."""
    golden = GOLDEN
    found = [check() for check in recorded([golden])]
    assert len(found) == len(list(golden.rglob("outputs.safetensors")))
    assert not [proof for proof in found if not proof.holds]


# --- the statement can fail ---


def at(place: tuple[int, ...], number: float) -> Callable[[Tensor], Tensor]:
    def change(tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        tensor[place] += number
        return tensor

    return change


def proved(tmp_path: Path, case: str, *, stated: float | None = None, **changed: Callable[[Tensor], Tensor]) -> Proof:
    """The proof of a copy whose outputs, or inputs, were changed."""
    copy = tmp_path / case
    shutil.copytree(GOLDEN / case, copy)
    if stated is not None:
        (tmp_path / "tolerances.json").write_text(json.dumps({case: {"absolute": stated}}))
    for name in ("inputs", "outputs"):
        held = load_file(copy / f"{name}.safetensors")
        save_file({n: changed.get(n, torch.clone)(t) for n, t in held.items()}, copy / f"{name}.safetensors")
    (check,) = recorded([tmp_path])
    return check()


@pytest.mark.parametrize("number", [1e-4, nan, inf, -inf])
@pytest.mark.parametrize("stated", [None, 2e-6])
def test_one_number_that_is_off_is_found(tmp_path: Path, stated: float | None, number: float) -> None:
    proof = proved(tmp_path, "gpt2/lm", stated=stated, logits=at((0, 3, 7), number))
    assert proof.fails
    assert proof.worst == "logits"


@pytest.mark.parametrize("stated", [inf, nan])
def test_a_bound_that_allows_anything_is_none(tmp_path: Path, stated: float) -> None:
    assert proved(tmp_path, "gpt2/lm", stated=stated).fails


def test_an_untouched_copy_holds_with_both_bounds(tmp_path: Path) -> None:
    assert proved(tmp_path / "a", "gpt2/lm").holds
    assert proved(tmp_path / "b", "gpt2/lm", stated=2e-6).holds


def test_whole_numbers_are_equal_or_not(tmp_path: Path) -> None:
    proof = proved(tmp_path, "gpt2/generate", sequences=at((1, 17), 1))
    assert (proof.fails, proof.worst, proof.error, proof.bound) == (True, "sequences", 1.0, 0.0)


def test_what_a_reference_gives_at_padding_means_nothing(tmp_path: Path) -> None:
    mask = load_file(GOLDEN / "bert/pretraining/inputs.safetensors")["attention_mask"]
    row, column = (int(v) for v in (mask == 0).nonzero()[0])
    hidden = {"hidden_states.1": at((row, column, 0), nan), "attentions.0": at((row, 0, column, 0), nan)}
    assert proved(tmp_path / "padding", "bert/pretraining", stated=None, **hidden).holds
    seen = {"attentions.0": at((row, 0, 0, 0), nan)}
    assert proved(tmp_path / "tokens", "bert/pretraining", stated=None, **seen).fails


def test_a_mask_that_hides_everything_leaves_nothing_to_compare(tmp_path: Path) -> None:
    proof = proved(tmp_path, "bert/pretraining", attention_mask=torch.zeros_like)
    assert proof.fails
    assert "hides every token" in proof.worst


def test_outputs_of_another_shape_and_outputs_that_heed_has_not_are_told(tmp_path: Path) -> None:
    proof = proved(tmp_path / "shape", "gpt2/lm", logits=lambda tensor: tensor[:1])
    assert proof.fails
    assert "heed gives logits as [2, 14, 99], not [1, 14, 99]" in proof.worst
    copy = tmp_path / "name" / "gpt2" / "lm"
    shutil.copytree(GOLDEN / "gpt2" / "lm", copy)
    save_file({"logit": torch.zeros(3)}, copy / "outputs.safetensors")
    (check,) = recorded([copy])
    assert "holds logit, which heed does not make" in check().worst
    save_file({}, copy / "outputs.safetensors")
    assert check().worst == "there is no sample to try it on"


def test_the_largest_of_an_output_is_told(tmp_path: Path) -> None:
    assert golden.grid(torch.tensor([1.0, -4.0, inf])) == 4 * 2**-24
