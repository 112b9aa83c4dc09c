"""One text as a file: it opens from the disk in Chromium, asks nobody, and shows the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from heed.studio import Opening, record, studio_of
from heed.studio.scenes import Given
from tests.studio.serving import Page, studio_of_recorded


def test_a_file_shows_what_the_studio_shows(chromium: Any, tmp_path: Path) -> None:
    studio, _, _ = studio_of_recorded("gpt2/lm")
    file = tmp_path / "seen.html"
    file.write_text(record(studio, "recorded", Given(text="1 2 3")), encoding="utf-8")
    assert file.stat().st_size < 1 << 20
    key = studio.read("recorded", Given(text="1 2 3"))["id"]
    at = {"layer": 1, "head": "2", "row": 7, "column": 3}
    page = Page(chromium, file.as_uri(), view=at)
    assert page.value("#weight") == pytest.approx(studio.exact(key, ("self", 1, "2"), 7, 3)["weight"], rel=1e-6)
    names = [name.strip() for name in page.at.locator("nav button").all_inner_texts()]
    assert [name[1:] for name in names] == ["Maps", "Text", "Influence", "Next token"]
    page.at.locator("nav button", has_text="Influence").click()
    assert page.value("#ahead") == 0
    page.at.get_by_role("button", name="exact").click()
    page.at.get_by_text("This file holds the answers for one text").wait_for()
    page.at.locator("nav button", has_text="Next token").click()
    assert page.value("#entropy") > 0
    assert page.hosts == {""}, "nothing is asked of anybody"
    assert page.wrong == []
    page.close()


def test_an_opening_is_of_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="there are no runs here"):
        studio_of(None)
    with pytest.raises(ValueError, match="holds no model"):
        studio_of(tmp_path)
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "one" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    found = studio_of(Opening().path)
    assert (list(found.sources), list(found.runs)) == ([], ["one"])
