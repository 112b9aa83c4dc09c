"""The site is built without a link that leads nowhere, with every page in its menu, a search and a reference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import site


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return site.build(tmp_path_factory.mktemp("site")).parent


def test_it_is_built_with_a_reference_from_docstrings(built: Path) -> None:
    page = (built / "reference" / "heed.mixers.html").read_text(encoding="utf-8")
    assert "Every token asks all tokens it may see" in page


def test_what_is_written_is_found_by_the_search(built: Path) -> None:
    index = json.dumps(json.loads((built / "search.json").read_text(encoding="utf-8")), ensure_ascii=False)
    assert "KV cache" in index
    assert "softmax" in index


def test_the_menu_names_every_page_and_no_other(built: Path) -> None:
    pages = built.parent / "pages"
    named = set(flat(site.settings(pages)["project"]["nav"]))
    assert named == {str(path.relative_to(pages)) for path in pages.rglob("*.md")}


def flat(entries: object) -> list[str]:
    match entries:
        case str():
            return [entries]
        case dict():
            return [name for value in entries.values() for name in flat(value)]
        case list():
            return [name for value in entries for name in flat(value)]
    raise TypeError(entries)


def test_links_lead_to_pages_and_code_is_left_alone() -> None:
    every = site.places()
    text = "[a](docs/contract.md#x) [b](heed/core/state.py) `[c](docs/contract.md)` [d](https://e.org) [e](docs/bugs)"
    led = site.page(text, site.ROOT / "README.md", every)
    assert led == ("[a](contract.md#x) `b` `[c](docs/contract.md)` [d](https://e.org) [e](bugs/README.md)")


def test_formulas_become_mathml_and_prices_do_not() -> None:
    every = site.places()
    made = site.page("$$\ny = \\sqrt{x}\n$$\n\nwith $x > 0$, for 3$ or 4$ a `$x$`", site.ROOT / "README.md", every)
    assert made.count("<math") == 2
    assert "<msqrt>" in made
    assert made.endswith("for 3$ or 4$ a `$x$`")
