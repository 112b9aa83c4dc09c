"""The demo in small: what it leaves behind, what it says, and that it says so when it falls short."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from heed.cli import app
from heed.core.errors import ConfigError, RunError
from heed.data import Dates
from heed.data.dates import BY_CODE
from heed.decode.generated import Generated, Why
from heed.demo import Report, align, demo, tell
from heed.demo.examples import samples
from heed.demo.report import Reading
from heed.pipelines import Text2TextGeneration
from heed.runs import Run, load
from heed.show.progress import Reporter
from heed.tasks import Metrics
from heed.train.checkpoint import Progress
from heed.train.start import Outcome
from heed.verify.trained import STATEMENTS
from tests.data.support import texts_of

TINY = (
    'data.languages=["fr","de","zh","ru"]',
    "data.held=40",
    "data.round=1000",
    "task.longest=40",
    "model.width=16",
    "model.depth=2",
    "model.heads=2",
    "model.hidden=16",
    "training.steps=3",
    "training.batch=256",
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, str]:
    """The demo with three steps, and what it said meanwhile."""
    said = StringIO()
    report = demo(tmp_path_factory.mktemp("runs") / "demo", Reporter(Console(file=said, width=200)), changes=TINY)
    return report, said.getvalue()


def told(report: Report, width: int = 200) -> str:
    out = StringIO()
    tell(report, Console(file=out, width=width))
    return out.getvalue()


def test_it_leaves_a_run_with_scores_and_a_picture(shown: tuple[Report, str]) -> None:
    report, said = shown
    run = Run.open(report.run)
    assert set(run.evaluated) == {"valid", "test"}
    assert run.evaluated["valid"]["pairs"] == 40
    assert report.steps == 3
    assert report.weights == sum(weight.numel() for weight in run.model().parameters())
    assert report.picture.parent == report.run
    picture = report.picture.read_text(encoding="utf-8")
    assert picture.count("<svg") == 3 * (1 + 2 * 2)  # of three examples the mean, and two heads in two layers
    assert picture.count("<h2>") == 3
    assert "training: 3 of 3" in said
    assert "tokenizer round trip" in said
    assert set(report.seconds) == {"training", "evaluating", "looking", "proving"}


def test_it_is_honest_about_what_three_steps_are_worth(shown: tuple[Report, str]) -> None:
    report, _ = shown
    assert not report.holds
    assert len(report.missed) == 2
    assert "the goal is 99 %" in report.missed[0]
    assert "the goal is 90 %" in report.missed[1]
    text = told(report)
    assert "This is not what the demo promises" in text
    assert "Every goal" not in text
    assert [proof.statement for proof in report.proofs] == list(STATEMENTS)
    assert all(proof.holds for proof in report.proofs)


def scored(report: Report, **found: float) -> Report:
    numbers: dict[str, Metrics] = {name: {"exact": exact, "pairs": 40} for name, exact in found.items()}
    return replace(report, metrics=numbers)


@pytest.mark.parametrize(
    ("valid", "test", "holds"), [(99.0, 90.0, True), (98.9, 99.0, False), (100.0, 89.9, False), (0.0, 0.0, False)]
)
def test_goals(shown: tuple[Report, str], valid: float, test: float, holds: bool) -> None:
    report = scored(shown[0], valid=valid, test=test)
    assert report.holds is holds
    assert ("Every goal is reached" in told(report)) is holds


def test_a_statement_that_does_not_hold_is_a_miss(shown: tuple[Report, str]) -> None:
    fine = scored(shown[0], valid=100.0, test=100.0)
    bad = replace(fine.proofs[0], error=float("inf"), worst="cut 3+1")
    report = replace(fine, proofs=(bad, *fine.proofs[1:]))
    assert report.missed == [f"{bad.statement} does not hold: cut 3+1"]
    assert "11 of 12 statements hold" in told(report)
    assert json.dumps(report.plain(), allow_nan=False)


def test_it_tells_all_it_found(shown: tuple[Report, str]) -> None:
    report, _ = shown
    text = told(report)
    for reading in report.readings:
        assert reading.sample.text in text
        assert reading.sample.wanted in text
    assert "kept out" in text
    assert "of training" in text
    assert "0.0 %" in text
    assert "█" in text
    for command, _ in report.commands:
        assert command in text
    assert f'heed run {report.run} "3 mai 2024"' in text
    narrow = told(report, width=64)
    assert all(reading.sample.language in narrow and reading.sample.wanted in narrow for reading in report.readings)
    chart = narrow.split("Where it looks")[1].split("mean of all")[0]
    assert all(cell_len(line) <= 64 for line in chart.splitlines()[1:])


def test_commands_can_be_pasted(shown: tuple[Report, str]) -> None:
    report = replace(shown[0], run=Path("my runs/it's"), picture=Path("my runs/alignment.html"))
    assert report.commands[3][0] == """heed verify 'my runs/it'"'"'s'"""
    assert "my%20runs/alignment.html" in report.commands[4][0]


# --- examples ---


def test_examples_take_turns_between_formats_of_training_and_others() -> None:
    source = Dates(held=400)
    found = samples(source)
    assert [sample.language for sample in found] == [BY_CODE[code].name for code in source.languages]
    assert [sample.kept for sample in found] == [False, True] * 9
    splits = {name: set(source.split(name, ("source", "target"))) for name in ("valid", "test")}
    for sample, code in zip(found, source.languages, strict=True):
        assert (sample.text, sample.wanted) in splits["test" if sample.kept else "valid"]
        assert sample.text in texts_of(date.fromisoformat(sample.wanted), BY_CODE[code]).values()


# --- alignments ---


def test_an_alignment_is_what_the_model_did_while_it_wrote(shown: tuple[Report, str]) -> None:
    ready = load(shown[0].run)
    assert isinstance(ready, Text2TextGeneration)
    text = "2024年5月3日"
    found = align(ready, text)
    assert found.source == (*text, "</s>")
    answer = "".join(token for token in found.target if token != "</s>")
    assert answer.replace("␣", " ") == ready.translate([text])[0]
    layers, heads, rows, columns = found.weights.shape
    assert (layers, heads, rows, columns) == (2, 2, len(found.target), len(found.source))
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(layers, heads, rows))
    assert torch.equal(torch.tensor(found.mean.weights), found.weights.mean((0, 1)))
    titles = [figure.title for figure in found.figures("a part")]
    assert titles[1:] == [f"layer {layer}, head {head}" for layer in (1, 2) for head in (1, 2)]


def test_the_end_is_aligned_too(shown: tuple[Report, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it ended by itself it also attended to something when it chose to end."""
    ready = load(shown[0].run)
    assert isinstance(ready, Text2TextGeneration)
    tokens = tuple(ready.tokenizer.encode("2024"))
    wanted: dict[Why, tuple[str, ...]] = {"end": ("2", "0", "2", "4", "</s>"), "limit": ("2", "0", "2", "4")}
    for why, target in wanted.items():
        made = Generated(tokens, 0.0, why)
        module = importlib.import_module("heed.demo.align")  # the package has a function of this name
        monkeypatch.setattr(module, "generate", lambda *given, made=made, **more: ((made,),))
        found = align(ready, "2024年5月3日")
        assert found.target == target
        assert found.weights.shape[2] == len(target)


def test_a_reading_is_marked_by_what_is_right(shown: tuple[Report, str]) -> None:
    sample = shown[0].readings[0].sample
    for read, mark in ((sample.wanted, "✓"), ("2024-99-99", "✗")):
        report = replace(shown[0], readings=(Reading(sample, read),))
        (line,) = (line for line in told(report).splitlines() if sample.text in line and sample.wanted in line)
        assert line.strip().startswith(mark)


# --- the command ---


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, words)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


@pytest.mark.parametrize("reached", [True, False])
def test_the_command_reports_to_machines_and_exits_with_1_if_it_fell_short(
    shown: tuple[Report, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reached: bool
) -> None:
    report = scored(shown[0], valid=100.0, test=100.0 * reached)
    asked: list[tuple[Path, list[str]]] = []

    def ready(out: Path, reporter: Reporter | None = None, *, changes: Sequence[str] = ()) -> Report:
        asked.append((out, list(changes)))
        return report

    monkeypatch.setattr("heed.demo.demo", ready)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "demo").mkdir(parents=True)
    code, out = run("demo", "--json", "--set", "a=1", "--set", "b=2")
    assert asked == [(Path("runs/demo-2"), ["a=1", "b=2"])]
    assert code == (0 if reached else 1)
    found = json.loads(out)
    assert found["holds"] is reached
    assert {example["language"] for example in found["examples"]} == {"French", "German", "Chinese", "Russian"}
    assert all(example["right"] == (example["read"] == example["wanted"]) for example in found["examples"])
    sizes = {len(row) for row in found["alignment"]["weights"]}
    assert sizes == {len(found["alignment"]["columns"])}
    assert len(found["alignment"]["weights"]) == len(found["alignment"]["rows"])
    assert all(proof["holds"] for proof in found["proofs"])
    code, out = run("demo", "--out", "elsewhere")
    assert asked[-1] == (Path("elsewhere"), [])
    assert code == (0 if reached else 1)
    assert "What to try next" in out


def test_what_is_there_is_never_written_over(shown: tuple[Report, str]) -> None:
    with pytest.raises(RunError, match="already exists"):
        demo(shown[0].run, changes=TINY)


@pytest.mark.parametrize("change", ["data.kind=stdlib", "task.kind=causal"])
def test_the_demo_is_about_dates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dates").write_text("a file of the user's, called as the recipe is", encoding="utf-8")
    with pytest.raises(ConfigError, match="the demo translates dates"):
        demo(tmp_path / "run", changes=[change])
    assert not (tmp_path / "run").exists()


def test_a_training_that_was_stopped_is_no_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from heed.demo import tour

    stopped = Outcome(Run(tmp_path), Progress(), finished=False)
    monkeypatch.setattr(tour, "train", lambda recipe, out, reporter: stopped)
    with pytest.raises(RunError, match="heed train --resume"):
        demo(tmp_path / "run", changes=TINY)
