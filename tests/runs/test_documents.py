"""docs/training.md names every recipe, task, source, tokenizer and edit that there is, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from heed.core.config import kind_of
from heed.data import SOURCES
from heed.data.paths import ONE_BY_ONE, SUFFIXES
from heed.runs.evaluate import EvalOptions
from heed.runs.recipe import Recipe, descriptions
from heed.tasks import TASKS
from heed.text import TOKENIZERS
from heed.train.call import TrainOptions
from heed.train.start import MANY
from heed.weights.edits import EDITS

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def rows(heading: str) -> set[str]:
    """What stands in code in the first column of the table that begins so."""
    table = PAGE.split(f"| {heading} |")[1].split("\n\n")[0]
    first = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {name for cell in first for name in re.findall(r"`([^`]+)`", cell)}


TABLES: dict[str, Iterable[str]] = {
    "recipe": descriptions(),
    "`task.kind`": [kind_of(task) for task in TASKS],
    "`data.kind`": [kind_of(source) for source in SOURCES],
    "`edits.kind`": [kind_of(edit) for edit in EDITS],
    "file": SUFFIXES | ONE_BY_ONE,
}


@pytest.mark.parametrize("heading", TABLES)
def test_the_page_lists_what_there_is(heading: str) -> None:
    assert rows(heading) == set(TABLES[heading])


def test_the_page_names_tokenizers_parts_of_a_recipe_and_keywords() -> None:
    for kind in TOKENIZERS:
        assert f"`{kind_of(kind)}`" in PAGE
    for part in Recipe.model_fields:
        assert f"`{part}`" in PAGE
    assert rows("keyword of `heed.train`") == {"recipe", "data", *TrainOptions.__annotations__}
    assert f"more than {MANY} epochs" in PAGE
    for name in ("context", "stride", "first", "split"):
        assert name in EvalOptions.__annotations__
        assert name in PAGE
