"""Pre-training: every objective under padding, accumulation and several processes; stops; and what begins from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import heed
from heed.core.errors import ConfigError, RunError
from heed.runs import Recipe, Run, find, load
from heed.show.progress import Silent
from heed.tasks import Batch, Causal, Denoise, Item, MaskedTokens
from heed.train import checkpoint, resume, train
from heed.train.phases import PRETRAINED, before, objective
from tests.train.support import metrics, same_run

TINY = {
    "data.kind": "stdlib",
    "data.bytes": 12_000,
    "tokenizer": {"kind": "byte"},
    "task.context": 24,
    "model.width": 16,
    "model.depth": 1,
    "model.dropout": 0.0,
    "training.batch": 200,
    "training.steps": 4,
    "training.evaluate": 2,
    "training.save": 2,
    "training.log": 1,
    "training.schedule.warmup": 2,
}
SHORT = {key: value for key, value in TINY.items() if key.startswith(("training", "tokenizer"))}
SMALL = {"model.heads": 2, "model.hidden": 24}
KINDS: dict[str, dict[str, Any]] = {
    "masked": {"task.first_rate": 0.4, "model.mixer": [{"kind": "attention", "heads": 2, "mask": {"kind": "whole"}}]},
    "bert": {**SMALL, "model.length": 24},
    "denoise": SMALL,
    "t5": {**SMALL, "model.head_size": 8},
    "electra": {**SMALL, "model.length": 24},
}


def recipe(name: str, **changes: Any) -> Recipe:
    return Recipe.read(find(name), {**TINY, **KINDS[name], **changes})


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    path = tmp_path / "mine.tsv"
    words = ("good", "fine", "nice"), ("bad", "poor", "sad")
    rows = [(f"a {words[place % 2][place % 3]} film number {place}", str(place % 2)) for place in range(60)]
    path.write_text("\n".join("\t".join(row) for row in rows) + "\n")
    return path


@pytest.fixture
def double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("name", KINDS)
def test_splitting_a_batch_changes_nothing(name: str, tmp_path: Path) -> None:
    """Each of two means is over its own labels of the whole step."""
    for folder, count in (("one", 1), ("cut", 3)):
        train(recipe(name, **{"training.accumulate": count}), tmp_path / folder, Silent())
    one, cut = (load_file(tmp_path / folder / "state" / "00000004" / "model.safetensors") for folder in ("one", "cut"))
    assert max(float((one[key] - cut[key]).abs().max()) for key in one) < 1e-9
    for what in ("loss", "valid_loss"):
        whole, split = metrics(tmp_path / "one", what), metrics(tmp_path / "cut", what)
        assert whole
        for before_, after in zip(whole, split, strict=True):
            assert before_ == pytest.approx(after, rel=1e-5)


SCRIPT = """
import sys
from pathlib import Path
from heed.show.progress import Silent
from heed.train import train
from heed.train.parallel import group
from tests.train.test_pretrain import KINDS, phased, recipe

with group("cpu"):
    for name in KINDS:
        train(recipe(name, **{"training.accumulate": 2}), Path(sys.argv[1]) / name, Silent())
    train(phased(Path(sys.argv[2])), Path(sys.argv[1]) / "phased", Silent())
"""


def phased(data: Path) -> Recipe:
    """A classifier that is pre-trained on its own text."""
    small = {"model.width": 16, "model.depth": 1, "model.dropout": 0.0, "pretrain.steps": 3, "data.train": str(data)}
    return Recipe.read(find("classify"), {**SHORT, **small, "model.mixer": KINDS["masked"]["model.mixer"]})


def test_two_processes_train_like_one(labelled: Path, tmp_path: Path) -> None:
    """Sums in another order differ in the last digits of float32."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(script)]
    names = [str(tmp_path / "two"), str(labelled)]
    subprocess.run([*launch, *names], check=True, env=environment, capture_output=True, timeout=400)
    train(phased(labelled), tmp_path / "phased", Silent())
    for name in (*KINDS, "phased", f"phased/{PRETRAINED}"):
        if name in KINDS:
            train(recipe(name), tmp_path / name, Silent())
        for what in ("loss", "valid_loss"):
            one, two = metrics(tmp_path / name, what), metrics(tmp_path / "two" / name, what)
            assert [step for step, _ in one] == [step for step, _ in two]
            assert [loss for _, loss in one] == pytest.approx([loss for _, loss in two], rel=2e-5), name


def test_the_rate_follows_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From `first_rate` at the first step towards `rate` after the last."""
    seen = list[float]()
    batch = MaskedTokens.batch

    def watched(self: MaskedTokens, items: Sequence[Item]) -> Batch:
        seen.append(self.rate)
        return batch(self, items)

    monkeypatch.setattr(MaskedTokens, "batch", watched)
    train(recipe("masked", **{"training.evaluate": 9, "task.rate": 0.2}), tmp_path / "run", Silent())
    assert seen[:4] == pytest.approx([0.4, 0.35, 0.3, 0.25])
    assert set(seen[4:]) == {0.2}  # evaluations


class Stop:
    """The disk fails at a file; the checkpoints before are whole."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, tensors: dict[str, Tensor], path: Path) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        save_file(tensors, path)


@pytest.mark.parametrize("name", KINDS)
def test_a_stop_changes_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks, spans and what a generator drew are those that would have come without; the rate, too."""
    train(recipe(name, **{"model.dropout": 0.2}), tmp_path / "whole", Silent())
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", Stop(len(checkpoint.PARTS) + 1))
        with pytest.raises(KeyboardInterrupt):
            train(recipe(name, **{"model.dropout": 0.2}), tmp_path / "cut", Silent())
    assert [path.name for path in checkpoint.found(Run(tmp_path / "cut"))] == ["00000002"]
    assert resume(tmp_path / "cut", reporter=Silent()).progress.step == 4
    assert same_run(tmp_path / "whole", tmp_path / "cut")
    found = heed.eval(tmp_path / "whole", quiet=True)["valid"]
    assert found["loss"] == pytest.approx(metrics(tmp_path / "whole", "valid_loss")[-1][1], rel=1e-4)


@pytest.mark.parametrize("name", ["masked", "bert", "electra"])
def test_what_was_pretrained_is_begun_from(name: str, labelled: Path, tmp_path: Path) -> None:
    """All weights but the heads are those of the run that was begun from: of ELECTRA, the discriminator's."""
    train(recipe(name), tmp_path / "base", Silent())
    still = {
        **SHORT,
        "task.longest": 24,
        "training.steps": 1,
        "training.optimizer.lr": 1e-30,
        "training.optimizer.decay": 0.0,
    }
    made = heed.train("classify", labelled, base=tmp_path / "base", out=tmp_path / "run", settings=still, quiet=True)
    old, new = (load_file(tmp_path / folder / "model.safetensors") for folder in ("base", "run"))
    old = {key.removeprefix("discriminator."): weight for key, weight in old.items()}
    kept = [key for key in new if "heads." not in key]
    assert kept
    assert all(torch.equal(new[key], old[key]) for key in kept)
    assert {key.split(".")[1] for key in new if key.startswith("heads.")} == {"pooled"}
    assert made.load().classify("a good film")


def test_one_command_pretrains_on_its_own_text(labelled: Path, tmp_path: Path) -> None:
    settings = {**SHORT, "pretrain.steps": 3, "pretrain.lr": 5e-4, "model.width": 16, "model.depth": 1}
    made = heed.train("classify", labelled, pretrain="self", out=tmp_path / "run", settings=settings, quiet=True)
    first, second = Run.open(tmp_path / "run" / PRETRAINED), Run.open(tmp_path / "run")
    assert first.recipe.task.dump()["kind"] == "masked"
    assert first.recipe.task.dump()["of"]["kind"] == "classify"
    assert (first.recipe.training.steps, first.recipe.training.optimizer.lr) == (3, 5e-4)
    assert second.recipe.base == str((tmp_path / "run" / PRETRAINED).absolute())
    assert second.tokenizer.to_json() == first.tokenizer.to_json()
    assert made.progress.step == 4
    assert "fill" in load(first.path).can
    assert "classify" in made.load().can
    again = heed.train(resume=tmp_path / "run", settings={"training.steps": 5}, quiet=True)
    assert again.progress.step == 5
    with pytest.raises(RunError, match="already exists"):
        heed.train("classify", labelled, pretrain="self", out=tmp_path / "run", settings=settings, quiet=True)


@pytest.mark.parametrize("files", [1, 2])
def test_a_stop_in_either_phase_changes_nothing(
    files: int, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first after its first checkpoint, or in the second after its first."""
    settings = {**SHORT, "pretrain.steps": 4, "model.width": 16, "model.depth": 1, "model.dropout": 0.2}
    options: dict[str, Any] = {"pretrain": "self", "settings": settings, "quiet": True}
    heed.train("classify", labelled, out=tmp_path / "whole", **options)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", Stop((2 * files - 1) * len(checkpoint.PARTS) + 1))
        with pytest.raises(KeyboardInterrupt):
            heed.train("classify", labelled, out=tmp_path / "cut", **options)
    assert (tmp_path / "cut" / "config.json").exists() == (files == 2)
    place = tmp_path / "cut" / PRETRAINED if files == 1 else tmp_path / "cut"  # what is told to go on with
    assert heed.train(resume=place, quiet=True).progress.step == 4
    for part in (".", PRETRAINED):
        assert same_run(tmp_path / "whole" / part, tmp_path / "cut" / part)


def test_what_is_learnt_first_fits_the_model() -> None:
    translate = Recipe.read(find("dates"), {"pretrain.on": "self"})
    assert isinstance(objective(translate), Denoise)
    classify = Recipe.read(find("classify"), {"pretrain.on": "self"})
    assert isinstance(objective(classify), MaskedTokens)
    decoder = {"kind": "decoder", "width": 16, "depth": 1}
    assert isinstance(
        objective(classify.model_copy(update={"model": Recipe.load({**classify.dump(), "model": decoder}).model})),
        Causal,
    )
    short = {"kind": "bert", "width": 16, "depth": 1, "length": 40}
    found = objective(Recipe.load({**classify.dump(), "model": short}))
    assert isinstance(found, MaskedTokens)
    assert found.context == 40
    told = Recipe.read(find("classify"), {"pretrain.on": "self", "pretrain.task": {"kind": "masked", "rate": 0.3}})
    assert before(told).task.dump()["rate"] == 0.3
    wrong = Recipe.read(find("classify"), {"pretrain.on": "self", "pretrain.task": {"kind": "translate"}})
    with pytest.raises(ConfigError, match="pretrain.task is translate, which needs more than texts; use masked"):
        objective(wrong)
    with pytest.raises(ConfigError, match="pretrain.on"):
        Recipe.read(find("classify"), {"pretrain.on": "others"})


def test_the_command_line(labelled: Path, tmp_path: Path) -> None:
    sets = [f"{key}={json.dumps(value)}" for key, value in SHORT.items() if key.startswith("training")]
    options = [part for one in [*sets, "tokenizer.kind=byte", "pretrain.steps=2"] for part in ("--set", one)]
    command = [sys.executable, "-m", "heed", "train", "classify", "--data", str(labelled), "--pretrain", "self"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    where = ["--out", str(tmp_path / "run"), "--json", *options]
    done = subprocess.run([*command, *where], check=True, env=environment, capture_output=True, text=True, timeout=300)
    assert json.loads(done.stdout)["step"] == 4
    assert (tmp_path / "run" / PRETRAINED / "model.safetensors").is_file()
