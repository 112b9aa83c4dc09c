"""The race at equal parameters and equal time: what is equal, what is counted, and that outcomes are kept."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from benchmarks import shakespeare as race
from benchmarks.shakespeare import CONTEXT, LONG, Outcome, entrants, learn, letters, parameters, score, windows
from heed.core.contract import Where
from heed.parts.layers.bitnet import TernaryLinear

TEXT = letters("the quick brown fox jumps over the lazy dog, and so on; " * 100)


def test_all_have_as_many_parameters() -> None:
    counts = {name: parameters(entrant.config) for name, entrant in entrants().items()}
    full = counts["full attention"]
    assert all(abs(count / full - 1) < 0.03 for count in counts.values()), counts
    assert len(counts) == 14


def test_one_has_ternary_layers() -> None:
    model = entrants()["full attention, b1.58"].build()
    assert sum(isinstance(layer, TernaryLinear) for layer in model.modules()) == 4 * 6


def test_letters_are_counted_from_those_that_occur() -> None:
    assert letters("banana").tolist() == [1, 0, 2, 0, 2, 0]
    assert windows(torch.arange(500), torch.tensor([3, 7]))[:, [0, -1]].tolist() == [[3, 3 + CONTEXT], [7, 7 + CONTEXT]]


@torch.no_grad()
def test_the_loss_is_the_mean_over_all_windows() -> None:
    torch.manual_seed(0)
    model, text = entrants()["retention"].build(), TEXT[: 3 * CONTEXT + 5]
    total = 0.0
    for begin in range(0, 3 * CONTEXT, CONTEXT):
        scores, _ = model(text[None, begin : begin + CONTEXT], Where.run(1, CONTEXT))
        chances = scores[0].log_softmax(-1)
        total -= sum(float(chances[t, text[begin + t + 1]]) for t in range(CONTEXT))
    assert score(model, text) == pytest.approx(total / (3 * CONTEXT), rel=1e-5)


@pytest.mark.parametrize("name", ["full attention", "rwkv"])
def test_time_is_that_of_the_processor(name: str) -> None:
    outcome = learn(name, 0.3, TEXT)
    assert outcome.tokens == outcome.steps * race.ROWS * CONTEXT > 0
    assert 0 < outcome.loss < 6
    assert outcome.bits == outcome.loss / math.log(2)
    if name == "full attention":
        assert (outcome.state, outcome.long) == tuple(4 * n * (2 * 96 * 4 + 16) for n in (CONTEXT, LONG))
    else:
        assert outcome.state == outcome.long


def test_outcomes_are_kept_until_the_model_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "RESULTS", tmp_path / "shakespeare.json")
    outcomes = {"mamba": Outcome(1.5, 9, 3, 3072, 7, 7), "full attention": Outcome(2.0, 9, 4, 4096, 8, 16)}
    for name, outcome in outcomes.items():
        assert not race.known(name)
        race.record(name, outcome)
        assert race.known(name)
    assert race.outcomes() == outcomes
    assert [line.split(" | ")[0] for line in race.table().splitlines()[2:]] == ["| mamba", "| full attention"]
    other = dict(entrants())
    other["mamba"] = other["lstm"]
    monkeypatch.setattr(race, "entrants", lambda: other)
    assert not race.known("mamba")
    monkeypatch.delenv("HEED_DATA", raising=False)
    with pytest.raises(SystemExit, match="set HEED_DATA to a folder that holds lm/tinyshakespeare.txt.gz"):
        race.measure(["mamba"])
