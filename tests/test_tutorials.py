"""README and tutorials are tests: every command and every line of Python in them runs, and prints what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents import ROOT, Block, Play, blocks

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("[!R]*.md"))


def test_there_are_tutorials() -> None:
    assert len(TUTORIALS) >= 6


def test_the_readme_is_the_same_in_both_languages() -> None:
    english, chinese = (
        list(blocks((ROOT / name).read_text(encoding="utf-8"))) for name in ("README.md", "README.zh.md")
    )
    assert len(english) >= 5
    assert [(block.kind, bare(block.code), block.wanted) for block in english] == [
        (block.kind, bare(block.code), block.wanted) for block in chinese
    ]


def bare(code: str) -> str:
    """Code without its comments, which each language has its own."""
    return re.sub(r"\s+#.*", "", code)


@pytest.mark.parametrize("path", [ROOT / "README.md", *TUTORIALS], ids=lambda path: path.stem)
def test_a_tutorial_does_what_it_says(path: Path, tmp_path: Path) -> None:
    play = Play(tmp_path, path.name)
    found = list(blocks(path.read_text(encoding="utf-8")))
    assert any(block.wanted for block in found)
    for block in found:
        play.check(block)


def test_what_is_printed_is_compared(tmp_path: Path) -> None:
    shell = "```sh\necho one two three\n```\n\n```text\none ... three\n```\n\n"
    text = shell + "```python\nx = 2\n```\n\n```python\nprint(x)\n```\n"
    first, second, third = blocks(text)
    assert [block.kind for block in (first, second, third)] == ["sh", "python", "python"]
    play = Play(tmp_path, "made up")
    for block in (first, second, third):
        play.check(block)
    assert play.run(third) == "2\n"
    with pytest.raises(AssertionError, match="and prints\none two three"):
        play.check(Block("sh", first.code, 1, "one two four\n"))
    with pytest.raises(AssertionError, match="made up, line 7"):
        play.check(Block("sh", "exit 3", 7))
