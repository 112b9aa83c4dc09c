"""train, eval and run as a person types them, with good input and bad."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from heed.cli import main
from heed.cli.options import GenerationOptions, named_files
from heed.core.config import override
from heed.core.errors import HeedError, InputError, RunError, WeightsError
from heed.decode import Beam, Greedy, Sample
from heed.kernels import described
from heed.pipelines import GenerationConfig, TextGeneration
from heed.runs import evaluate, load
from heed.runs.recipe import data_settings
from heed.show.progress import Silent
from heed.train import train
from tests.train.support import TINY, language_model, trained

SMALL = [word for change in TINY for word in ("--set", change)]
TRAINING = [word for change in TINY if change.startswith("training") for word in ("--set", change)]
MODEL = ["--set", "model.width=16", "--set", "model.depth=1"]
PAIRS = "".join(f"word {n}\twort {n}\n" for n in range(30))

Heed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def heed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Heed:
    """What a command prints and its exit code."""

    def call(*words: str | Path, lines: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["heed", *map(str, words)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines), "utf-8"))
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
    code, told, _ = heed("eval", out, "--json")
    assert code == 0
    assert {"bleu", "exact", "loss", "signature"} <= json.loads(told)["valid"].keys()
    assert "| valid | bleu |" in (out / "README.md").read_text()
    (tmp_path / "more.tsv").write_text("word 1\twort 1\n")
    code, told, _ = heed("eval", out, "--data", tmp_path / "more.tsv", "--json", "--limit", "4")
    assert json.loads(told)["test"]["pairs"] == 1
    code, told, _ = heed("run", out, "word 3", "word 4", "--limit", "5")
    assert code == 0
    assert len(told.splitlines()) == 2
    assert heed("run", out, "--limit", "5", lines=b"word 3\nword 4\n")[1] == told


def test_a_language_model_of_a_text(heed: Heed, tmp_path: Path) -> None:
    (tmp_path / "text.txt.gz").write_bytes(gzip.compress(b"all work and no play makes jack a dull boy.\n" * 40))
    settings = ["--set", "task.context=16", "--set", "model.width=16", *TRAINING]
    code, _, said = heed(
        "train", "characters", "--data", tmp_path / "text.txt.gz", "--out", tmp_path / "out", *settings
    )
    assert code == 0, said
    told = heed("run", tmp_path / "out", "all work", "--temperature", "0.8", "--limit", "20", "--seed", "3")[1]
    assert told.startswith("all work")
    options = ("--temperature", "0.8", "--limit", "20", "--seed", "3")
    assert heed("run", tmp_path / "out", *options, lines=b"all work\n")[1] == told
    scores = json.loads(heed("eval", tmp_path / "out", "--json")[1])["valid"]
    assert scores["bits_per_byte"] > 0


def test_answers_for_machines(heed: Heed, run: Path) -> None:
    options = ("--beam", "3", "--best", "2", "--limit", "6")
    code, told, _ = heed("run", run, "--json", *options, lines=b"3 mai 2024\r\n1.2.2003")
    assert code == 0
    answers = [json.loads(line) for line in told.splitlines()]
    assert [answer["text"] for answer in answers] == ["3 mai 2024", "1.2.2003"]
    assert all(len(answer["answers"]) == 2 for answer in answers)
    assert heed("run", run)[:2] == (0, "")


def test_verbose_tells_what_runs_compiled_and_why_not(heed: Heed, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = heed("run", run, "3 mai 2024", "--limit", "5")
    code, told, said = heed("run", run, "3 mai 2024", "--limit", "5", "--verbose")
    assert (code, told) == plain[:2]
    assert "encoder.stack (Stack): compiled" in said
    assert "model (steps): compiled" in said
    assert f"kernels: {described()}" in said
    assert "model (steps): compiled" in heed("eval", run, "--first", "1", "--limit", "5", "--verbose")[2]
    monkeypatch.setattr("heed.engine.report.library", lambda: None)
    said = heed("run", run, "3 mai 2024", "--limit", "5", "--verbose")[2]
    assert "model (steps): plain, " in said
    assert "there are no kernels" in said


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
    "beams and chance": (("run", "{run}", "x", "--beam", "2", "--top-p", "0.5"), "top_p cannot go with it"),
    "beams and repetition": (("run", "{run}", "x", "--beam", "2", "--repetition", "2"), "takes no repetition penalty"),
    "a probability above 1": (("run", "{run}", "x", "--top-p", "2"), "top_p"),
    "no beams": (("run", "{run}", "x", "--beam", "0"), "beams"),
    "an empty stop string": (("run", "{run}", "x", "--stop", ""), "stop strings must be"),
    "a penalty beyond reason": (("run", "{run}", "x", "--length-penalty", "1000"), "length_penalty"),
    "a seed of 65 bits": (("run", "{run}", "x", "--temperature", "1", "--seed", str(2**64)), "seed"),
    "a text where a folder belongs": (("run", "word " * 100), "File name too long"),
    "a setting inside a number": (("train", "dates", "--set", "model.width.x=1"), "nothing inside to set"),
    "a device that is not here": (("train", "dates", "--set", "training.device=gpu"), "training.device is 'gpu'"),
    "home of no user": (("train", "characters", "--data", "~nobody9/x.txt"), "there is no user of that name"),
    "more answers than beams": (("run", "{run}", "x", "--beam", "2", "--best", "3"), "best"),
    "a negative temperature": (("run", "{run}", "x", "--temperature", "-1"), "temperature"),
    "no tokens at all": (("run", "{run}", "x", "--max-new-tokens", "0"), "max_new_tokens"),
    "a text that is too long": (("run", "{run}", "9" * 99), "has 99 tokens, the model was trained on at most 63"),
    "a split of another name": (("eval", "{run}", "--data", "dev=a"), "there is no file"),
    "a model that cannot be measured so": (("eval", "{run}", "--stride", "3"), "measured pair by pair"),
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


def test_zero_temperature_is_greedy_and_a_seed_alone_changes_nothing() -> None:
    for more in (
        GenerationOptions(temperature=0.0),
        GenerationOptions(temperature=0.0, seed=1),
        GenerationOptions(temperature=0.0, top_k=3),
        GenerationOptions(seed=4),
    ):
        assert more.config(Greedy()).strategy == Greedy()
    assert GenerationOptions(seed=4).config(Beam()).strategy == Beam()
    assert GenerationOptions(top_k=4, seed=2).config(Beam()).strategy == Sample(top_k=4, seed=2)
    assert GenerationOptions(best=2).config(Beam(beams=7)).strategy == Beam(beams=7, best=2)


def test_input_that_is_no_text(heed: Heed, run: Path) -> None:
    code, _, said = heed("run", run, lines=b"1 mai 2024\n\xff\n")
    assert code == 2
    assert "line 2 of the input is not UTF-8 at byte 1" in " ".join(said.replace("│", " ").split())


def test_a_pair_that_is_too_long_is_counted_not_fatal(heed: Heed, run: Path, tmp_path: Path) -> None:
    (tmp_path / "some.tsv").write_text("1 mai 2024\t2024-05-01\n" + "1" * 99 + "\t2024-05-01\n")
    found = json.loads(heed("eval", run, "--data", tmp_path / "some.tsv", "--json", "--limit", "9")[1])["test"]
    assert (found["pairs"], found["left_out"]) == (1, 1)


def test_eval_scores_the_split_that_was_given(heed: Heed, run: Path, tmp_path: Path) -> None:
    (tmp_path / "v.tsv").write_text("1 mai 2024\t2024-05-01\n")
    card = (run / "README.md").read_text()
    said = heed("eval", run, "--data", f"valid={tmp_path / 'v.tsv'}", "--json", "--limit", "3")[1]
    assert json.loads(said).keys() == {"valid"}
    assert (run / "README.md").read_text() == card  # other data, another way of answering


def test_a_wrong_change_leaves_the_run_as_it_was(heed: Heed, run: Path) -> None:
    before = (run / "config.json").read_bytes()
    assert heed("train", "--resume", run, "--data", "nowhere.tsv")[0] == 2
    assert (run / "config.json").read_bytes() == before


@pytest.mark.parametrize("name", ['a "b".tsv', "a=b.tsv", "é.tsv", "😀.tsv", "a\\b.tsv"])
def test_paths_hold_anything(name: str) -> None:
    found = override({}, data_settings(named_files([name], alone="train"), "train"))["data"]
    assert Path(found["train"]) == Path(name).absolute()


def test_data_by_split() -> None:
    assert named_files([], alone="test") is None
    assert named_files(["a", "b=c"], alone="test") == ["a", "b=c"]
    assert named_files(["a", "valid=b", "valid=c"], alone="train") == {"train": ["a"], "valid": ["b", "c"]}


def test_scores_are_shown_even_if_they_cannot_be_written(
    heed: Heed, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise RunError("read-only")

    monkeypatch.setattr(evaluate, "add_metrics", full)
    code, told, said = heed("eval", run, "--json")
    assert code == 0
    assert json.loads(told).keys() == {"valid", "test"}
    assert "could not be written down: read-only" in said


def test_what_is_not_a_number_is_null(heed: Heed, tmp_path: Path) -> None:
    train(language_model(), tmp_path / "run", Silent())
    weights = load_file(tmp_path / "run" / "model.safetensors")
    save_file({name: tensor * float("nan") for name, tensor in weights.items()}, tmp_path / "run" / "model.safetensors")
    (tmp_path / "run" / "SHA256SUMS").unlink()  # or they would be called damaged
    told = heed("eval", tmp_path / "run", "--json", "--split", "valid")[1]
    assert json.loads(told, parse_constant=pytest.fail)["valid"]["loss"] is None
    assert heed("eval", tmp_path / "run", "--beam", "3")[0] == 2  # scores of a language model need no answers


def test_a_reader_that_leaves_hears_no_complaint() -> None:
    process = subprocess.Popen([sys.executable, "-m", "heed", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() in (0, 1)
    process.stderr.close()


def test_a_model_with_a_last_position_writes_up_to_it(tmp_path: Path) -> None:
    places = ("model.position.kind=learned", "model.position.length=24")
    train(language_model(*places), tmp_path / "run", Silent())
    model = load(tmp_path / "run")
    assert isinstance(model, TextGeneration)
    ask = GenerationConfig(strategy=Sample(temperature=5.0, seed=1))
    assert len(model.tokenizer.encode(model.generate("x" * 20, ask))) <= 4
    first, _ = model.completions(["x" * 20, "y"], ask)
    assert first[0].text == model.generate("x" * 20, ask)
    with pytest.raises(InputError, match="has 24 tokens, the model has places for 24"):
        model.generate("x" * 24)


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
    for words in ("## Data", 'kind = "dates"', "| split | holds |", "heed run . ", "weights"):
        assert words in card
