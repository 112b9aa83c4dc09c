"""Every code block of the documents runs, and the catalogue in the README is the catalogue."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from benchmarks import bugs, mechanisms
from heed.catalogue import entries

ROOT = Path(__file__).parents[1]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def blocks(name: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_code_blocks_run(name: str) -> None:
    """In order, in one namespace, as a reader would type them."""
    space = {"__name__": "document"}
    for number, block in enumerate(blocks(name)):
        exec(compile(block, f"{name}, block {number}", "exec", dont_inherit=True), space)


def test_the_readme_has_code() -> None:
    assert len(blocks("README.md")) > 3


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_examples_run_and_are_short(example: Path) -> None:
    assert len(example.read_text().splitlines()) <= 60
    runpy.run_path(str(example), run_name="__main__")


def test_the_readme_lists_the_catalogue() -> None:
    section = (ROOT / "README.md").read_text().split("## The catalogue")[1].split("##")[0]
    lines = {cells[1].strip(): cells[2] for line in section.splitlines() if len(cells := line.split("|")) > 3}
    for entry in entries():
        assert re.search(rf"(?<![\w-]){re.escape(entry.name)}(?![\w-])", lines[entry.table]), f"README lacks {entry}"


@pytest.mark.parametrize("name", [*DOCUMENTS, "SECURITY.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text()):
        if "://" not in target:
            assert ((ROOT / name).parent / target).exists(), f"{name} links to {target}, which is not there"


def test_the_pages_of_bugs_are_made_anew_when_bugs_change() -> None:
    """`make docs` writes them from heed/check/bugs.toml."""
    for name, text in bugs.pages().items():
        assert (bugs.FOLDER / name).read_text(encoding="utf-8") == text, f"docs/bugs/{name} is old; run: make docs"


def test_the_pages_of_mechanisms_are_made_anew_when_docstrings_change() -> None:
    """`make docs` writes them; the drawings beside them are measured, and so left out here."""
    for page in mechanisms.pages():
        written = (mechanisms.FOLDER / page.name).read_text(encoding="utf-8")
        assert written == page.text, f"docs/mechanisms/{page.name} is old; run: make docs"
