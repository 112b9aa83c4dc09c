"""train, eval and run as a person types them, with good input and bad."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from heed.cli import main
from heed.core.errors import HeedError, RunError, WeightsError
from heed.runs import load
from tests.train.support import TINY, trained

SMALL = [word for change in TINY for word in ("--set", change)]
TRAINING = [word for change in TINY if change.startswith("training") for word in ("--set", change)]
MODEL = ["--set", "model.width=16", "--set", "model.depth=1"]
PAIRS = "".join(f"word {n}\twort {n}\n" for n in range(30))

Heed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def heed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Heed:
    """What a command prints and its exit code."""

    def call(*words: str | Path, lines: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["heed", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        told = capsys.readouterr()
        return int(stop.value.code or 0), told.out, told.err

    return call


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run."""
    path = tmp_path_factory.mktemp("runs") / "tiny"
    trained(path)
    return path


def test_train_eval_and_run(heed: Heed, tmp_path: Path) -> None:
    """Somebody with a file of sentence pairs: one command each."""
    (tmp_path / "pairs.tsv").write_text(PAIRS)
    out = tmp_path / "out"
    code, told, said = heed(
        *("train", "translation", "--data", tmp_path / "pairs.tsv", "--out", out, "--json", *TRAINING, *MODEL),
        *("--set", "model.hidden=8", "--set", "tokenizer.size=270", "--set", "model.heads=2"),
    )
    assert code == 0
    assert json.loads(told)["finished"] is True
    assert "28 examples" in said  # the others are kept for validation, and that is said too
    assert "2 pairs" in said
    code, told, _ = heed("eval", out, "--json", "--beam", "2", "--limit", "8")
    assert code == 0
    assert {"bleu", "exact", "loss", "signature"} <= json.loads(told)["valid"].keys()
    assert "| valid | bleu |" in (out / "README.md").read_text()
    (tmp_path / "more.tsv").write_text("word 1\twort 1\n")
    code, told, _ = heed("eval", out, "--data", tmp_path / "more.tsv", "--json", "--limit", "4")
    assert json.loads(told)["test"]["pairs"] == 1
    code, told, _ = heed("run", out, "word 3", "word 4", "--limit", "5")
    assert code == 0
    assert len(told.splitlines()) == 2
    assert heed("run", out, "--limit", "5", lines="word 3\nword 4\n")[1] == told


def test_a_language_model_of_a_text(heed: Heed, tmp_path: Path) -> None:
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress(b"all work and no play makes jack a dull boy.\n" * 40))
    settings = ["--set", "task.context=16", "--set", "model.width=16", *TRAINING]
    code, _, said = heed(
        "train", "characters", "--data", tmp_path / "text.txt.gz", "--out", tmp_path / "out", *settings
    )
    assert code == 0, said
    told = heed("run", tmp_path / "out", "all work", "--temperature", "0.8", "--limit", "20", "--seed", "3")[1]
    assert told.startswith("all work")
    again = heed("run", tmp_path / "out", "--temperature", "0.8", "--limit", "20", "--seed", "3", lines="all work\n")[1]
    assert again == told
    scores = json.loads(heed("eval", tmp_path / "out", "--json")[1])["valid"]
    assert scores["bits_per_byte"] > 0


def test_answers_for_machines(heed: Heed, run: Path) -> None:
    code, told, _ = heed(
        "run", run, "--json", "--beam", "3", "--best", "2", "--limit", "6", lines="3 mai 2024\n1.2.2003\n"
    )
    assert code == 0
    answers = [json.loads(line) for line in told.splitlines()]
    assert [answer["text"] for answer in answers] == ["3 mai 2024", "1.2.2003"]
    assert all(len(answer["answers"]) == 2 for answer in answers)
    assert heed("run", run, lines="")[:2] == (0, "")


def test_resume_after_the_end_changes_nothing(heed: Heed, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "copy")
    code, told, _ = heed("train", "--resume", tmp_path / "copy", "--json")
    assert code == 0
    assert json.loads(told)["step"] == 6
    assert (tmp_path / "copy" / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


BAD = {
    "no such recipe": (("train", "datas"), "neither a file nor a recipe that comes with heed; did you mean dates?"),
    "no recipe at all": (("train",), "name either a recipe to begin with or, with --resume"),
    "a file that is not there": (("train", "characters", "--data", "{tmp}/nowhere.txt"), "nowhere.txt"),
    "an empty file": (("train", "characters", "--data", "{tmp}/empty.txt"), "empty"),
    "binary garbage": (("train", "translation", "--data", "{tmp}/garbage.tsv"), "garbage.tsv"),
    "a missing column": (("train", "translation", "--data", "{tmp}/one.tsv"), "one.tsv"),
    "a misspelt setting": (("train", "dates", "--set", "training.stepps=3"), "did you mean steps?"),
    "an impossible value": (("train", "dates", "--set", "training.steps=many"), "training.steps is 'many'"),
    "not a setting": (("train", "dates", "--set", "steps"), "write it as place.in.the.tree=value"),
    "no run folder": (("run", "{tmp}/nothing", "x"), "is not a folder"),
    "a folder that is no run": (("eval", "{tmp}"), "holds no config.json"),
    "an unknown split": (
        ("eval", "{run}", "--split", "tset"),
        "there is no split 'tset' in this data; did you mean test?",
    ),
    "beams and chance": (("run", "{run}", "x", "--beam", "2", "--temperature", "1"), "give --beam or --temperature"),
    "more answers than beams": (("run", "{run}", "x", "--beam", "2", "--best", "3"), "best"),
    "a negative temperature": (("run", "{run}", "x", "--temperature", "-1"), "temperature"),
    "no tokens at all": (("run", "{run}", "x", "--limit", "0"), "limit"),
    "a text that is too long": (("run", "{run}", "9" * 99), "has 99 tokens, the model was trained on at most 63"),
    "two files for one split": (("eval", "{run}", "--data", "a", "--data", "b"), "names two files for test"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_a_message_not_a_traceback(case: str, heed: Heed, run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "garbage.tsv").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "one.tsv").write_text("only one column\n" * 3)
    words, wanted = BAD[case]
    code, told, said = heed(*(word.format(tmp=tmp_path, run=run) for word in words))
    assert code == 2
    assert wanted in " ".join(said.replace("│", " ").split())
    assert not told
    assert "Traceback" not in said


BROKEN: dict[str, Callable[[Path], object]] = {
    "config.json": Path.unlink,
    "config.json ": lambda path: path.write_text(path.read_text()[:50]),
    "tokenizer.json": Path.unlink,
    "tokenizer.json ": lambda path: path.write_text("{}"),
    "model.safetensors": Path.unlink,
    "model.safetensors ": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "model.safetensors  ": lambda path: path.write_bytes(b""),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_folder_that_is_not_whole(name: str, run: Path, tmp_path: Path) -> None:
    """The error names the file."""
    shutil.copytree(run, tmp_path / "copy")
    BROKEN[name](tmp_path / "copy" / name.strip())
    with pytest.raises((RunError, WeightsError), match=name.strip().replace(".", r"\.")) as error:
        load(tmp_path / "copy")
    assert isinstance(error.value, HeedError)


def test_the_card_says_what_matters(run: Path) -> None:
    card = (run / "README.md").read_text()
    for words in ("## Data", 'kind = "dates"', "| split | holds |", "heed run tiny", "weights"):
        assert words in card
