"""`heed.train(...)` as hands type it: names, files, keywords, what it says and what it gives back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import nn

import heed
from heed.core.errors import ConfigError, HeedError, InputError
from heed.data import Stdlib
from heed.pipelines import TextGeneration
from heed.runs import Recipe, Run, find
from heed.runs.recipe import descriptions
from heed.show.progress import Silent
from heed.train import Outcome, train
from heed.train.call import TrainOptions, _settings
from heed.train.start import MANY
from tests.train.support import language_model, recipe, resumed, trained

TINY: dict[str, Any] = {
    "model.width": 16,
    "model.depth": 1,
    "task.context": 16,
    "training.evaluate": 3,
    "training.save": 3,
    "training.log": 1,
    "training.schedule.warmup": 2,
}


def test_a_keyword_wins_over_a_setting() -> None:
    for name in ("settings", "set"):
        told: Any = {"steps": 3, name: {"training.steps": 5, "training.seed": 1}}
        assert _settings(told) == {"training.steps": 3, "training.seed": 1}


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A text in a folder of its own, where the user works."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "book.txt").write_text("all work and no play makes jack a dull boy.\n" * 40)
    return tmp_path / "book.txt"


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a training tells people."""
    lines = list[str]()
    monkeypatch.setattr("heed.show.progress.Reporter.say", lambda _, text: lines.append(text))
    return lines


def test_a_recipe_by_name_and_a_file(book: Path) -> None:
    result = heed.train("characters", data="book.txt", steps=6, batch=64, quiet=True, settings=TINY)
    assert result.path == Path("runs/characters")
    assert result.finished
    assert isinstance(result.load(), TextGeneration)
    assert result.metrics["steps"] == 6
    assert result.metrics["valid_loss"] == result.progress.best
    assert [line["step"] for line in result.history if "loss" in line] == [1, 2, 3, 4, 5, 6]
    assert result.metrics["loss"] == [line["loss"] for line in result.history if "loss" in line][-1]
    assert result.run.recipe.dump()["data"]["train"] == str(book)  # absolute, to be resumed from anywhere
    told = str(result)
    assert told == repr(result)
    assert told.startswith("runs/characters is ready · 6 steps in 0:0")
    assert 'heed eval runs/characters       heed.eval("runs/characters")' in told
    again = heed.train("characters", data=book, steps=1, batch=64, quiet=True, settings=TINY)
    assert again.path == Path("runs/characters-2")


def test_keywords_are_settings(book: Path) -> None:
    changes = [f"{name}={value}" for name, value in TINY.items()]
    one = heed.train("characters", book, steps=2, lr=1e-3, batch=32, seed=7, device="cpu", settings=changes, quiet=True)
    training = one.run.recipe.training
    assert (training.steps, training.batch, training.seed, training.device) == (2, 32, 7, "cpu")
    assert training.optimizer.lr == 1e-3
    other = heed.train("characters", book, steps=2, out="other", set={**TINY, "training.seed": 9}, quiet=True)
    assert (other.path, other.run.recipe.training.seed) == (Path("other"), 9)


def test_a_recipe_may_be_a_path_a_mapping_or_an_object(book: Path, tmp_path: Path) -> None:
    tiny = language_model("training.steps=1")
    tiny.write(tmp_path / "mine.toml")
    paths = [heed.train(given, quiet=True).path for given in (tmp_path / "mine.toml", "mine.toml", tiny.dump(), tiny)]
    assert list(map(str, paths)) == ["runs/mine", "runs/mine-2", "runs/causal", "runs/causal-2"]
    source = heed.train(tiny, data=Stdlib(bytes=9000), quiet=True).run.recipe.data
    assert source == Stdlib(bytes=9000)
    with pytest.raises(ConfigError, match="a recipe is a name, a path, a mapping or a Recipe, not int"):
        heed.train(3)  # type: ignore[arg-type]


def test_splits_and_folders(book: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "more" / name).write_text(book.read_text())
    one = heed.train("characters", {"train": "more", "valid": book}, steps=1, settings=TINY, quiet=True)
    data = one.run.recipe.dump()["data"]
    assert (data["train"], data["valid"]) == (str(tmp_path / "more"), str(book))
    two = heed.train("characters", ["more/a.txt", "more/b.txt"], steps=1, settings=TINY, quiet=True)
    assert len(two.run.recipe.dump()["data"]["train"]) == 2


def test_resume_and_base(book: Path) -> None:
    first = heed.train("characters", book, steps=3, settings=TINY, quiet=True)
    more = heed.train(resume=first.path, steps=5, quiet=True)
    assert (more.path, more.progress.step) == (first.path, 5)
    tuned = heed.train("characters", book, base=first.path, steps=1, quiet=True, out="tuned")
    assert tuned.run.recipe.base == str(first.path.absolute())
    for name in (None, "characters"):
        with pytest.raises(
            ConfigError, match="name either a recipe to begin with or.*\n.*\n(.*\n)*  characters   A text"
        ):
            heed.train(name, resume=None if name is None else first.path)
    with pytest.raises(ConfigError, match="is for new runs"):
        heed.train(resume=first.path, out="x")


FOREIGN = {
    "stps": r"train takes no stps; did you mean steps\?",
    "epochs": "train takes no epochs; heed counts steps: write steps=",
    "num_train_epochs": "heed counts steps",
    "learning_rate": "write lr=",
    "batch_size": "write batch=, which counts tokens",
    "output_dir": "write out=",
    "dataset": "write data=",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_other_names_are_told_what_they_are_called_here(name: str) -> None:
    given: Any = {name: 3}
    with pytest.raises(InputError, match=FOREIGN[name]):
        heed.train("characters", **given)


def test_what_is_wrong_is_said_before_anything_is_written(book: Path) -> None:
    wrong: dict[str, tuple[Any, dict[str, Any]]] = {
        "did you mean characters": ("charcters", {"data": book}),
        "book.txt is not a recipe": ("book.txt", {}),
        "there is no data to learn from; give your files: --data PATH, in Python data=PATH": ("characters", {}),
        "tsv or csv .source, target in this order": ("translation", {}),
        "training.steps is 'many'": ("characters", {"data": book, "steps": "many"}),
        "is not a setting": ("characters", {"settings": {"": 3}}),
        "there is no file": ("characters", {"data": "nowhere.txt"}),
    }
    for words, (name, options) in wrong.items():
        with pytest.raises(HeedError, match=words):
            heed.train(name, quiet=True, **options)
    assert not Path("runs").exists()


def test_a_recipe_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(ConfigError) as caught:
        find("nonesuch")
    for name, line in descriptions().items():
        assert f"  {name:12} {line}" in str(caught.value)
        assert line.endswith(".")
        Recipe.read(find(name), ["data.kind=stdlib"])


# --- what is said at the start and at the end ---


def test_the_start_tells_where_how_many_and_how_often(book: Path, said: list[str]) -> None:
    heed.train("characters", book, steps=60, batch=256, settings={**TINY, "training.evaluate": 60})
    assert said[0] == "the run is written to runs/characters"
    assert "1 text in windows" in " ".join(said)
    planned = next(line for line in said if line.startswith("model: "))
    assert planned.endswith("parameters; 60 steps of at most 256 tokens; 7 steps an epoch, 8.57 epochs")
    assert not [line for line in said if "warning" in line]


def test_steps_out_of_proportion_are_warned_of_once(book: Path, said: list[str]) -> None:
    often = {**TINY, "training.evaluate": 999, "training.save": 999}
    heed.train("characters", book, steps=MANY + 1, batch=4096, settings=often)
    (warning,) = [line for line in said if line.startswith("warning")]
    assert warning.startswith(f"warning: {MANY + 1} epochs of so little data are learnt by heart")
    assert "training.steps=10 is 10 epochs" in warning
    said.clear()
    heed.train("characters", book, steps=2, batch=64, settings=often)
    (warning,) = [line for line in said if line.startswith("warning")]
    assert warning.startswith("warning: the steps see only 8 % of the data; training.steps=25 sees all of it once")
    said.clear()
    heed.train(resume="runs/characters-2", steps=3)
    assert not [line for line in said if "warning" in line]
    heed.train("characters", book, steps=MANY + 1, batch=4096, settings={**often, "training.patience": 3})
    assert not [line for line in said if "warning" in line]


def test_an_endless_source_has_no_epochs(tmp_path: Path, said: list[str]) -> None:
    from heed.show.progress import Reporter

    train(recipe("training.steps=2"), tmp_path / "run", Reporter())
    assert next(line for line in said if line.startswith("model: ")).endswith("2 steps of at most 200 tokens")


def test_going_on_after_the_end_has_no_empty_brackets(tmp_path: Path, said: list[str]) -> None:
    from heed.show.progress import Reporter
    from heed.train import resume

    trained(tmp_path / "run")
    resume(tmp_path / "run", (), Reporter())
    assert said[-1].startswith("6 steps in 0:0")
    assert "()" not in said[-1]
    assert said[-1].endswith("all were made before: set training.steps to a larger number to go on")
    assert resumed(tmp_path / "run").progress.step == 6


def test_a_stopped_training_says_how_to_go_on(tmp_path: Path) -> None:
    done = trained(tmp_path / "run")
    stopped = Outcome(done.run, done.progress, finished=False)
    assert str(stopped).splitlines()[1].startswith(f"go on with  heed train --resume {tmp_path}")


# --- packages that can be called ---


def test_packages_that_are_called_stay_packages() -> None:
    for package in (heed.train, heed.check):
        assert isinstance(package, ModuleType)
        assert callable(package)
    from heed.check import Report

    assert heed.check.Report is Report
    assert heed.train.train is train
    assert heed.train.Outcome is Outcome
    assert "Train a model" in (type(heed.train).__call__.__doc__ or "")
    assert Run.__module__ == "heed.runs.folder"


def test_check_is_called_and_prints_well() -> None:
    report = heed.check(nn.MultiheadAttention(8, 2, batch_first=True), only=["future"])
    assert repr(report) == str(report)
    assert "MultiheadAttention" in str(report)


def test_train_options_are_known_to_the_docstring() -> None:
    words = type(heed.train).__call__.__doc__ or ""
    assert not [name for name in TrainOptions.__annotations__ if name not in words]


def test_importing_heed_imports_no_training() -> None:
    code = "import sys, heed; print([m for m in ('torch', 'heed.train', 'heed.check') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_old_names_still_work(tmp_path: Path) -> None:
    assert heed.train.resume(trained(tmp_path / "run").path, ["training.steps=7"], Silent()).progress.step == 7
