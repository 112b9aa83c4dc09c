"""`heed verify --golden`: recorded runs computed again, with stated and with measured bounds; what differs is told."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from heed.cli import app
from heed.verify import recorded


def test_recorded_runs_are_computed_again(tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden"
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
    golden = Path(__file__).parents[1] / "golden"
    found = [check() for check in recorded([golden])]
    assert len(found) == len(list(golden.rglob("outputs.safetensors")))
    assert not [proof for proof in found if not proof.holds]
