"""The page of maps: its bytes give the numbers back, it stays small, and a real browser shows them."""

from __future__ import annotations

import json
import re
import shutil
import zlib
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heed.core.errors import InputError
from heed.show.viewer import MOST, Grid, Panel, Table, viewer

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 60_000  # milliseconds that a busy machine may take
EVIL = "</script><img src=x onerror=alert(1)>"


def grids(layers: int = 2, heads: int = 2, tokens: int = 4, sign: int = 1) -> list[Grid]:
    draw = np.random.default_rng(0)
    names = [f"t{place}" for place in range(tokens)]
    return [
        Grid(f"layer {layer}", names, names, list(range(heads)), draw.random((heads, tokens, tokens)) * sign)
        for layer in range(layers)
    ]


def held(page: str) -> list[dict[str, Any]]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    panels: list[dict[str, Any]] = json.loads(found[1])["panels"]
    return panels


def numbers(grid: dict[str, Any]) -> Any:
    """As the script reads them."""
    codes = np.frombuffer(zlib.decompress(b64decode(grid["data"])), np.uint8).astype(float)
    shaped = codes.reshape(len(grid["heads"]), len(grid["rows"]), len(grid["columns"]))
    units = (shaped - 128) / 127 if grid["signed"] else shaped / 255
    return units * np.array(grid["scales"])[:, None, None]


@pytest.mark.parametrize("sign", [1, -1])
def test_the_bytes_give_the_weights_back(sign: int) -> None:
    some = grids(sign=sign)
    for packed, grid in zip(held(viewer("a", [], [Panel("self", some)]))[0]["grids"], some, strict=True):
        bound = np.abs(grid.weights).max((1, 2), keepdims=True) / (510 if sign > 0 else 254)
        assert packed["signed"] is (sign < 0)
        assert (np.abs(numbers(packed) - grid.weights) <= bound + 1e-12).all()


def test_maps_that_are_too_large_are_pooled_and_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST * 4 / 3 < 7e6  # bytes in base64, if nothing could be compressed: a page stays below 8 MB
    monkeypatch.setattr("heed.show.viewer.MOST", 3000)
    names = list(map(str, range(101)))
    weights = np.random.default_rng(0).random((1, 101, 101))
    weights[:, 100, 3] = 7.0
    page = viewer("a", [], [Panel("self", [Grid("layer 0", names, names, [0], weights)])])
    (packed,) = held(page)[0]["grids"]
    assert packed["pooled"] == 2
    found = numbers(packed)
    assert found.size <= 3000
    assert found[0, 50, 1] == 7.0  # the strongest of its squares, at the edge, too
    assert packed["rows"][:2] == ["0 1", "2 3"]


def test_no_weights_are_no_page() -> None:
    with pytest.raises(InputError, match="at least one"):
        viewer("a", [], [])
    with pytest.raises(InputError, match=r"needs weights of shape \(1, 2, 2\)"):
        Grid("layer 0", ["a", "b"], ["a", "b"], [0], np.zeros((1, 2, 3)))
    with pytest.raises(InputError, match="no numbers"):
        Grid("layer 0", ["a"], ["a"], [0], np.full((1, 1, 1), np.nan))


def test_what_a_token_holds_stays_text() -> None:
    grid = Grid(EVIL, [EVIL], [EVIL], [0], np.ones((1, 1, 1)))
    page = viewer(EVIL, [EVIL], [Panel(EVIL, [grid])], [Table(EVIL, [EVIL], [[EVIL]])])
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert held(page)[0]["grids"][0]["rows"] == [EVIL]
    assert "{{" not in page


def test_a_token_of_braces_stays_as_it_is() -> None:
    page = viewer("{{data}}", ["{{title}}"], [Panel("self", grids())])
    assert "<h1>{{data}}</h1>" in page
    assert "<p>{{title}}</p>" in page


# --- in a browser ---


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    playwright: Any = pytest.importorskip("playwright.sync_api", reason="the page was not tested: no playwright here")
    if CHROMIUM is None:
        pytest.skip("the page was not tested: there is no Chromium here")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def opened(chromium: Any, path: Path, panels: list[Panel], **context: Any) -> tuple[Any, list[str]]:
    """The page from the disk, when it is drawn, and what went wrong in it."""
    path.write_text(viewer("maps", [EVIL], panels), encoding="utf-8")
    at, wrong = chromium.new_context(**context).new_page(), list[str]()
    at.on("console", lambda told: wrong.append(told.text) if told.type == "error" else None)
    at.on("pageerror", lambda error: wrong.append(str(error)))

    def asked(dialog: Any) -> None:
        wrong.append(dialog.message)
        dialog.dismiss()

    at.on("dialog", asked)
    at.set_default_timeout(PATIENCE)
    at.goto(path.as_uri())
    at.wait_for_selector("body[data-ready=yes]")
    return at, wrong


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_on_the_screen_are_the_weights(chromium: Any, tmp_path: Path, scheme: str) -> None:
    some = grids()
    at, wrong = opened(chromium, tmp_path / "maps.html", [Panel("self", some)], color_scheme=scheme)
    at.locator("#layer").select_option("1")
    at.locator("#head").select_option("1")
    at.locator("#map").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        at.keyboard.press(key)
    told = at.locator("#told").text_content()
    assert told.startswith("t2 (2) looks at t1 (1): ")
    weights = some[1].weights[1]
    assert float(told.rpartition(" ")[2]) == pytest.approx(weights[2, 1], abs=weights.max() / 510 + 1e-4)
    at.locator("#head").select_option("2")  # the mean of both
    mean = float(at.locator("#told").text_content().rpartition(" ")[2])
    assert mean == pytest.approx(some[1].weights.mean(0)[2, 1], abs=0.01)
    assert at.locator("#thumbs canvas").count() == 4
    assert wrong == []


def test_a_token_is_pointed_at_and_pinned(chromium: Any, tmp_path: Path) -> None:
    at, wrong = opened(chromium, tmp_path / "maps.html", [Panel("self", grids())])
    at.get_by_role("button", name="t3", exact=True).hover()
    assert at.locator("#told").text_content().startswith("t3 (3) looks at")
    at.get_by_role("button", name="t1", exact=True).click()
    assert "pinned" in at.locator("#told").text_content()
    at.get_by_role("button", name="t2", exact=True).hover()
    assert at.locator("#told").text_content().startswith("t1 (1) looks at")
    at.get_by_role("button", name="layer 1, head 0").click()
    assert at.locator("#layer").input_value() == "1"
    assert wrong == []
