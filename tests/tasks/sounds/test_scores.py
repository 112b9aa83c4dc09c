"""Error rates as jiwer counts them, the worst transcripts, and what of a checkpoint is measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from heed.core.errors import MissingExtra
from heed.runs.evaluate import Evaluation
from heed.runs.page import write_page
from heed.tasks.sounds.scores import Heard, error_rates, worst

WANTED = ["one two three", "four", "", "five six"]
FOUND = ["one too three", "four", "a", "six"]


def distance(one: list[str], other: list[str]) -> int:
    """Levenshtein's, written out."""
    table = [[i + j if not i * j else 0 for j in range(len(other) + 1)] for i in range(len(one) + 1)]
    for i, a in enumerate(one, 1):
        for j, b in enumerate(other, 1):
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a != b))
    return table[-1][-1]


def test_they_are_edits_by_length() -> None:
    found = error_rates(FOUND, WANTED)
    words = sum(distance(a.split(), b.split()) for a, b in zip(FOUND, WANTED, strict=True))
    letters = sum(distance(list(a), list(b)) for a, b in zip(FOUND, WANTED, strict=True))
    assert found["wer"] == pytest.approx(100 * words / sum(len(one.split()) for one in WANTED))
    assert found["cer"] == pytest.approx(100 * letters / sum(map(len, WANTED)))
    assert (found["exact"], found["words"], found["characters"]) == (25.0, 6, sum(map(len, WANTED)))
    assert error_rates(WANTED, WANTED)["wer"] == 0
    assert error_rates(["  one  two three ", "four", "", "five\tsix"], WANTED)["cer"] == 0  # spaces are spaces


def test_the_worst_come_first() -> None:
    found = worst(["a.wav", "b.wav", "c.wav", "d.wav"], FOUND, WANTED)
    assert [(one.cell, one.errors) for one in found] == [("d.wav", 5), ("c.wav", 1), ("a.wav", 1)]
    heard = Heard.of(["a.wav", "b.wav", "c.wav", "d.wav"], FOUND, WANTED)
    assert "d.wav: 'five six' heard as 'six'" in heard.table()
    assert Heard.of(["a.wav"], ["x"], ["x"]).table() == ""


def test_they_are_shown_on_a_page(tmp_path: Path) -> None:
    heard = Heard.of(["a.wav", "b.wav", "c.wav", "d<.wav"], FOUND, WANTED)

    class Named:
        what = "a model that hears"

    write_page(tmp_path / "page.html", Evaluation({"test": heard}), Named())  # type: ignore[arg-type]  # its name
    page = (tmp_path / "page.html").read_text()
    assert "d&lt;.wav" in page
    assert "five six" in page
    assert "the worst transcripts" in page
    assert "heard as" in repr(Evaluation({"test": heard}))


def test_without_the_library_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jiwer", None)
    with pytest.raises(MissingExtra, match=r"heed-attention\[audio\]"):
        error_rates(["a"], ["a"])
