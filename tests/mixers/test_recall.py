"""Every mechanism learns two puzzles within two minutes, as well as its kind can."""

from __future__ import annotations

import pytest
import torch

from benchmarks.contenders import CONTENDERS
from benchmarks.recall import COPIED, GAP, PAIRS, PUZZLES, SYMBOLS, copy, learn, recall

FLOORS: dict[tuple[str, str], float] = {}


def test_recall_asks_for_what_was_shown() -> None:
    tokens, labels = recall(5, torch.Generator().manual_seed(0))
    for row, answers in zip(tokens.tolist(), labels.tolist(), strict=True):
        shown = dict(zip(row[: 2 * PAIRS : 2], row[1 : 2 * PAIRS : 2], strict=True))
        assert len(shown) == PAIRS
        for place in range(2 * PAIRS, 4 * PAIRS, 2):
            assert row[place + 1] == GAP
            assert answers[place] == -100
            assert answers[place + 1] == shown[row[place]]


def test_copy_asks_for_the_same_once_more() -> None:
    tokens, labels = copy(5, torch.Generator().manual_seed(0))
    assert torch.equal(labels[:, COPIED:], tokens[:, :COPIED])
    assert (tokens[:, COPIED:] == GAP).all()
    assert (labels[:, :COPIED] == -100).all()


@pytest.mark.slow
@pytest.mark.parametrize("puzzle", PUZZLES)
@pytest.mark.parametrize("name", CONTENDERS)
def test_it_learns(name: str, puzzle: str) -> None:
    chance = 1 / SYMBOLS
    outcome = learn(name, puzzle)
    assert outcome.right >= FLOORS.get((name, puzzle), 2 * chance), outcome
