"""Every rule on pieces of wrong code in strangers' styles: the fix, applied, makes the check pass."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from heed.check.bugs import BUGS
from heed.check.source.code import apply
from heed.check.source.rules import RULES
from tests.check.source.snippets import Snippet, snippets

SNIPPETS = list(snippets(Path(__file__).parent))


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[f"{one.slug}-{one.name}" for one in SNIPPETS])
def test_it_is_mended(snippet: Snippet, tmp_path: Path) -> None:
    wrong, right = tmp_path / "wrong.py", tmp_path / "right.py"
    report = snippet.report(wrong, snippet.text)
    if not snippet.handed:
        assert snippet.slug in [one.bug.slug for one in report.likely], report
    fix = snippet.fix(wrong, report)
    assert fix is not None, report
    assert fix.file == str(wrong)
    text = apply(fix, snippet.text)
    ast.parse(text)
    mended = snippet.report(right, text)
    assert snippet.slug not in mended.slugs, f"{fix}\n{mended}"
    assert mended.ok or set(mended.slugs) < set(report.slugs), f"{fix}\n{mended}"  # one bug after the other


def test_rules_are_for_bugs_that_are_known() -> None:
    assert set(RULES) <= set(BUGS)
