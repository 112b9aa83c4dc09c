"""Every mechanism learns two puzzles within two minutes, as well as its kind can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import recall as puzzles
from benchmarks.recall import GAP, KEYLESS, PUZZLES, SHOWN, WHO, Outcome, copy, learn, recall
from heed.parts.loss import NO_LABEL

# What a kind should reach, of recall and of copy: less than was measured, as luck differs from machine to machine.
FLOORS: dict[str, tuple[float, float]] = {
    "full": (0.99, 0.99),
    "full, both ways": (0.99, 0.99),
    "local": (0.3, 0.0),  # two layers see 30 tokens back, what is copied stands 32 back: chance
    "transformer-xl": (0.45, 0.9),
    "infini": (0.95, 0.2),
    "performer": (0.95, 0.6),
    "linformer": (0.1, 0.85),
    "fnet": (0.1, 0.99),
}


def test_recall_asks_for_what_stood_under_a_key() -> None:
    tokens, labels = recall(5, torch.Generator().manual_seed(0))
    for row, answers in zip(tokens.tolist(), labels.tolist(), strict=True):
        shown = {key: value for value, key in row[:SHOWN]}
        assert len(shown) == SHOWN
        assert answers[:SHOWN] == [NO_LABEL] * SHOWN
        assert [value for value, _ in row[SHOWN:]] == [GAP] * SHOWN
        assert answers[SHOWN:] == [shown[key] for _, key in row[SHOWN:]]
        assert {key for _, key in row[SHOWN:]} == set(shown)


def test_copy_asks_for_the_same_once_more() -> None:
    tokens, labels = copy(5, torch.Generator().manual_seed(0))
    assert torch.equal(labels[:, SHOWN:], tokens[:, :SHOWN, 0])
    assert (tokens[:, SHOWN:, 0] == GAP).all()
    assert (tokens[..., 1] == KEYLESS).all()
    assert (labels[:, :SHOWN] == NO_LABEL).all()


def test_no_time_is_used_but_that_of_the_processor() -> None:
    outcome = learn("full", "copy", seconds=0.2)
    assert 0.2 <= outcome.seconds < 2
    assert outcome.steps > 0
    assert outcome.state == 2 * 2 * SHOWN * (2 * 64 * 4 + 16)  # two layers, 64 tokens: key, value and stamps
    assert learn("full", "copy", enough=0.0).steps == 0


def test_outcomes_are_kept_until_the_model_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(puzzles, "RESULTS", tmp_path / "recall.json")
    outcome = Outcome(right=0.5, seconds=1.0, steps=3, state=0)
    for name, puzzle in (("local", "recall"), ("full", "copy"), ("full", "recall")):
        assert not puzzles.known(name)
        puzzles.record(name, puzzle, outcome)
    assert puzzles.known("full")
    assert not puzzles.known("local")
    found = json.loads((tmp_path / "recall.json").read_text())["outcomes"]
    assert list(found) == ["full", "local"]  # as they are listed, whoever was first
    assert found["full"]["copy"]["right"] == 0.5
    monkeypatch.setitem(WHO, "full", WHO["local"])
    assert not puzzles.known("full")
    puzzles.record("full", "copy", outcome)
    assert "recall" not in json.loads((tmp_path / "recall.json").read_text())["outcomes"]["full"]


@pytest.mark.slow
@pytest.mark.parametrize("puzzle", PUZZLES)
@pytest.mark.parametrize("name", WHO)
def test_it_learns(name: str, puzzle: str) -> None:
    if name not in FLOORS:
        pytest.fail(f"{name} has no floor: run python -m benchmarks recall, and write down what its kind can")
    floor = FLOORS[name][list(PUZZLES).index(puzzle)]
    outcome = learn(name, puzzle, enough=floor)
    assert outcome.right >= floor, outcome
