"""`heed eval` and `heed.eval`: runs and checkpoints, tables and mappings, and what is refused in time."""

from __future__ import annotations

import json
import sys
from math import exp, log
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import heed
from heed.cli import app
from heed.core.contract import Where
from heed.core.errors import InputError, MissingExtra
from heed.pipelines import GenerationConfig, GenerationPipeline, TextGeneration
from heed.runs import Run
from heed.runs.evaluate import Evaluation
from heed.show.progress import Silent
from heed.tasks import Metrics
from heed.train import train
from tests.tasks.test_measures import gpt2, spoken, text_of
from tests.train.support import language_model, trained
from tests.weights.formats.test_gguf_families import CASES
from tests.weights.formats.test_gguf_quantised import packed
from tests.weights.hubs import served
from tests.weights.live import saved
from tests.weights.test_hub import worker

RUNNER = CliRunner()


def told(*words: object) -> Any:
    found = RUNNER.invoke(app, ["eval", *map(str, words), "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learnt to read text."""
    path = tmp_path_factory.mktemp("runs") / "reader"
    train(language_model(), path, Silent())
    return path


@pytest.fixture(scope="module")
def dates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learnt to translate dates."""
    path = tmp_path_factory.mktemp("runs") / "dates"
    trained(path)
    return path


@pytest.fixture
def book(tmp_path: Path) -> Path:
    (tmp_path / "book.txt").write_text("def f(x):\n    return x + 1\n" * 9)
    return tmp_path / "book.txt"


# --- what comes back ---


def test_metrics_are_a_mapping_and_a_table() -> None:
    valid: Metrics = {"loss": 1.25, "tokens": 12345, "signature": "a|b"}
    both = Evaluation({"valid": valid, "test": {"loss": 2.0, "signature": "a|b"}})
    assert list(both) == ["valid", "test"]
    assert both["test"]["loss"] == 2.0
    assert repr(both).splitlines() == [
        "         valid  test",
        "loss      1.25     2",
        "tokens  12,345",
        "signature: a|b",
    ]
    with pytest.raises(KeyError, match="'loss' was not measured; known: test, valid"):
        both["loss"]  # of which split?
    one = Evaluation({"test": {"loss": 2.0, "perplexity": 7.4}})
    assert one["perplexity"] == one["test"]["perplexity"] == 7.4
    assert dict(one) == {"test": {"loss": 2.0, "perplexity": 7.4}}
    with pytest.raises(KeyError, match="did you mean perplexity"):
        one["perplexty"]


# --- runs ---


def test_a_run_is_measured_by_its_task(dates: Path, reader: Path) -> None:
    found = heed.eval(dates, quiet=True)
    assert list(found) == ["valid", "test"]
    assert {"bleu", "chrf", "exact", "loss", "signature"} <= found["test"].keys()
    assert Run.open(dates).evaluated.keys() == {"valid", "test"}
    assert "| valid | bleu |" in (dates / "README.md").read_text()
    found = heed.eval(str(reader), split="valid", quiet=True)
    assert found["bits_per_byte"] > 0
    assert list(heed.eval(reader, split=["test"], first=1, quiet=True)) == ["test"]
    assert "test" not in Run.open(reader).evaluated  # some examples do not speak for all
    assert told(reader, "--split", "valid", "--quiet")["valid"]["loss"] == found["loss"]


def test_a_run_in_windows_that_overlap(reader: Path, book: Path) -> None:
    """Every token is predicted with at least so much before it: the loss of each window, computed by hand."""
    found = heed.eval(reader, data=book, context=12, stride=5, quiet=True)
    run = Run.open(reader)
    model, tokenizer = run.model().eval(), run.tokenizer
    ids, nats, done = [tokenizer.need("end"), *tokenizer.encode(book.read_text())], 0.0, 1
    for begin in range(0, len(ids), 5):
        window = ids[begin : begin + 12]
        with torch.no_grad():
            logits = model(torch.tensor([window]), Where.run(1, len(window)))[0].log_softmax(-1)[0]
        for place in range(done, min(begin + 12, len(ids))):
            nats -= float(logits[place - begin - 1, ids[place]])
        done = max(done, min(begin + 12, len(ids)))
    assert found["tokens"] == len(ids) - 1
    assert found["loss"] == pytest.approx(nats / (len(ids) - 1), rel=1e-5)
    assert found["bits_per_byte"] == pytest.approx(nats / log(2) / book.stat().st_size, rel=1e-5)
    assert heed.eval(reader, data=book, stride=5, quiet=True)["context"] == 24  # of its task
    assert told(reader, "--data", book, "--context", 12, "--stride", 5)["test"]["loss"] == found["loss"]


def test_a_run_may_be_loaded_otherwise(reader: Path) -> None:
    """As `heed.load` has it; then the metrics are not those of the run, and not written on its card."""
    exact = heed.eval(reader, split="valid", quiet=True)["loss"]
    before = (reader / "README.md").read_text()
    rounded = heed.eval(reader, split="valid", quantise="int8", quiet=True)["loss"]
    assert rounded != exact
    assert rounded == pytest.approx(exact, rel=0.05)
    assert (reader / "README.md").read_text() == before
    with pytest.raises(InputError, match="quantise: how a model is loaded; this one is loaded already"):
        heed.eval(heed.load(reader), data=reader / "README.md", quantise="int8")


def test_a_folder_of_splits_is_evaluated_on_what_was_not_learnt_from(dates: Path, tmp_path: Path) -> None:
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.csv").write_text("source,target\n1 mai 2024,2024-05-01\n")
    found = heed.eval(dates, data=tmp_path, config=GenerationConfig(max_new_tokens=3), quiet=True)
    assert list(found) == ["valid", "test"]
    assert found["test"]["pairs"] == 1  # not two: the first line holds names
    loaded = heed.eval(heed.load(dates), data=tmp_path, config=GenerationConfig(max_new_tokens=3), quiet=True)
    assert loaded == found


# --- checkpoints ---


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    saved(gpt2(), tmp_path / "gpt2").float().save_pretrained(tmp_path / "gpt2")
    spoken(tmp_path / "gpt2")
    (tmp_path / "words.txt").write_text(text_of(60))
    return tmp_path / "gpt2"


def test_a_checkpoint_by_command_by_path_and_loaded(checkpoint: Path) -> None:
    words = checkpoint.parent / "words.txt"
    found = heed.eval(checkpoint, data=words, quiet=True)
    assert heed.eval(heed.load(checkpoint), data=str(words), quiet=True) == found
    assert told(checkpoint, "--data", words, "--quiet") == dict(found)
    assert found["perplexity"] == pytest.approx(exp(found["loss"]))
    table = RUNNER.invoke(app, ["eval", str(checkpoint), "--data", str(words), "-q"]).stdout
    assert table.strip() == repr(found).strip()
    assert [line.split()[0] for line in table.splitlines()[1:]] == [
        *("loss", "perplexity", "bits_per_byte", "tokens", "bytes", "context", "stride")
    ]


def test_an_id_of_the_hub_is_a_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    words = checkpoint.parent / "words.txt"
    (tmp_path / "cache").mkdir()
    with served() as hub, worker(hub, tmp_path / "cache") as ask:
        hub.add("org/words", checkpoint)
        found = ask(["eval", "org/words", "--data", str(words), "--json", "--quiet"], "command")
    assert json.loads(found["text"]) == dict(heed.eval(checkpoint, data=words, quiet=True))


def test_a_gguf_file_is_a_checkpoint(tmp_path: Path) -> None:
    letters = [*"▁abcdefghijklmnopqrstuvwxyz", *(f"<{number}>" for number in range(37))]
    vocabulary = {
        "tokens": ["<unk>", "<s>", "</s>", *letters],
        "scores": [0.0] * 67,
        "token_type": [2, 3, 3] + [1] * 64,
    }
    metadata = {f"tokenizer.ggml.{key}": value for key, value in {"model": "llama", **vocabulary}.items()}
    path = packed(CASES["llama"], tmp_path, more=metadata)
    (tmp_path / "a.txt").write_text("a quick brown fox")
    found, ours = heed.eval(path, data=tmp_path / "a.txt", quiet=True), heed.load(path)
    assert isinstance(ours, TextGeneration)
    ids = ours.prompt("a quick brown fox")
    with torch.no_grad():
        logits = ours.model(torch.tensor([ids]), Where.run(1, len(ids)))[0].log_softmax(-1)[0]
    nats = -sum(float(logits[place, token]) for place, token in enumerate(ids[1:]))
    assert found["loss"] == pytest.approx(nats / (len(ids) - 1), rel=1e-5)


def test_rows_and_lines_are_texts(checkpoint: Path, tmp_path: Path) -> None:
    lines = [text_of(7, seed) for seed in range(5)]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    (tmp_path / "rows.csv").write_text("id,text\n" + "".join(f"{n},{line}\n" for n, line in enumerate(lines)))
    by_line = heed.eval(checkpoint, tmp_path / "lines.txt", settings={"data.lines": True}, quiet=True)
    assert by_line == heed.eval(checkpoint, tmp_path / "rows.csv", quiet=True)
    assert by_line["tokens"] == 5 * 6
    assert told(checkpoint, "--data", tmp_path / "lines.txt", "--set", "data.lines=true") == dict(by_line)
    assert heed.eval(checkpoint, tmp_path / "rows.csv", first=2, quiet=True)["tokens"] == 12


# --- what is refused ---


def test_what_is_missing_or_misspelt_is_said(checkpoint: Path, reader: Path, book: Path) -> None:
    with pytest.raises(
        InputError, match="say what to evaluate on: --data PATH, in Python data=PATH. This is a language"
    ):
        heed.eval(checkpoint, quiet=True)
    strange: dict[str, Any] = {"splt": "test"}
    with pytest.raises(InputError, match=r"eval takes no splt; did you mean split\?"):
        heed.eval(reader, **strange)
    last_release: dict[str, Any] = {"splits": ["test"], "reporter": Silent()}
    with pytest.warns(DeprecationWarning, match="splits is called split now"):
        assert list(heed.eval(reader, **last_release)) == ["test"]
    strange = {"batch_size": 3}
    with pytest.raises(InputError, match="eval takes no batch_size; write batch="):
        heed.eval(reader, **strange)
    with pytest.raises(InputError, match="without generating text"):
        heed.eval(checkpoint, data=book, config=GenerationConfig(max_new_tokens=3), quiet=True)
    asked = RUNNER.invoke(app, ["eval", str(checkpoint), "--data", str(book), "--beam", "3"])
    assert "without generating text" in str(asked.exception)


def test_sacrebleu_is_asked_for_before_anything_is_decoded(dates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def decoded(*_: object, **__: object) -> None:
        pytest.fail("hours of decoding, and then the metrics cannot be computed")

    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    monkeypatch.setattr(GenerationPipeline, "completions", decoded)
    with pytest.raises(MissingExtra, match="sacrebleu is not installed"):
        heed.eval(dates, quiet=True)


def test_a_progress_is_told(checkpoint: Path, tmp_path: Path) -> None:
    steps = list[int]()

    class Heard(Silent):
        def at(self, step: int, news: str = "") -> None:
            steps.append(step)

    (tmp_path / "long.txt").write_text(text_of(6000))
    heed.eval(checkpoint, tmp_path / "long.txt", reporter=Heard())
    assert len(steps) > 2
    assert steps == sorted(steps)
