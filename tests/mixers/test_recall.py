"""Every mechanism learns two puzzles within two minutes, as well as its kind can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import recall as puzzles
from benchmarks.recall import GAP, KEYLESS, PUZZLES, SHOWN, WHO, Outcome, copy, learn, recall
from heed.parts.outputs.loss import NO_LABEL

# What a kind should reach, of recall and of copy: less than `recall.json` tells, as luck differs between machines.
# Chance is a sixteenth: 0 stands for those who do not get beyond it in their time, and for those who cannot. (What is
# copied stands 32 tokens back. Two layers with windows of 16 see 30, two convolutions of 7 taps see 12.)
FLOORS: dict[str, tuple[float, float]] = {
    "full": (0.99, 0.99),
    "full, both ways": (0.99, 0.99),
    "local": (0.15, 0.0),
    "atrous": (0.23, 0.9),
    "local and atrous": (0.35, 0.9),
    "sparse": (0.35, 0.9),
    "sparse, both ways": (0.39, 0.9),
    "fixed": (0.0, 0.17),
    "longformer": (0.0, 0.0),
    "bigbird": (0.43, 0.56),
    "longnet": (0.0, 0.4),
    "transient-global": (0.0, 0.0),
    "reformer": (0.9, 0.24),
    "clustered": (0.0, 0.0),
    "linformer": (0.0, 0.53),
    "performer": (0.9, 0.26),
    "nystromformer": (0.34, 0.9),
    "yoso": (0.0, 0.0),
    "fnet": (0.0, 0.9),
    "memory-compressed": (0.9, 0.9),
    "transformer-xl": (0.41, 0.9),
    "infini": (0.9, 0.2),
    "infini, delta rule": (0.37, 0.19),
    "subspace attention": (0.9, 0.9),
    "retention": (0.9, 0.9),
    "gated retention": (0.9, 0.9),
    "linear attention": (0.9, 0.24),
    "linear attention, both ways": (0.9, 0.0),
    "gated attention unit": (0.9, 0.9),
    "rwkv": (0.0, 0.34),
    "mamba": (0.0, 0.0),
    "s4": (0.0, 0.9),
    "lstm": (0.0, 0.0),
    "gru": (0.0, 0.28),
    "convolution": (0.0, 0.0),
    "dilated convolution": (0.0, 0.9),
    "grouped convolution": (0.0, 0.0),
    "separable convolution": (0.0, 0.9),
    "light convolution": (0.0, 0.9),
    "dynamic convolution": (0.0, 0.9),
    "involution": (0.0, 0.0),
    "long-short range": (0.9, 0.9),
    "memory tokens": (0.18, 0.0),
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
    assert list(found) == ["full", "local"]  # as they are listed, whichever was first
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
