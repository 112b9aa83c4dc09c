"""The studio in Chromium: every view, on models of every kind; the numbers on the page are those of `heed.look`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import heed
from heed.core.spec import price
from heed.core.state import nbytes
from heed.parts.masks import Window
from tests.studio.serving import Live, Page, running, studio_of_recorded

IDS = {"text": "1 2 3", "model": "recorded"}
KINDS = ("gpt2/lm", "bert/pretraining", "t5/seq2seq", "vit/cls", "whisper/seq2seq")
STATES = ("rwkv/lm_state", "mamba/lm")
WAITED = {"compare": ".cells", "cost": "tr[data-version]", "masks": ".cells"}  # what a view shows when it is there
AXE = Path(__file__).parents[2] / "studio" / "web" / "node_modules" / "axe-core" / "axe.min.js"


def looked(model: Any, given: Any) -> dict[str, Tensor]:
    """The weights of every point, as `heed.look` shows them. [H, T, N]"""
    with torch.no_grad(), heed.look(model, "*.weights") as seen:
        given.run(model)
    return {name: shown[0][0] for name, shown in seen.items() if shown}


def point_of(part: str, layer: int) -> str:
    where = {"self": "", "encoder": "encoder.", "decoder": "decoder.", "cross": "decoder."}[part]
    return f"{where}stack.blocks.{layer}.{'cross' if part == 'cross' else 'mixer'}.weights"


@pytest.mark.parametrize("place", KINDS)
def test_weights_on_the_page_are_those_of_look(chromium: Any, place: str) -> None:
    studio, m, given = studio_of_recorded(place)
    wanted = looked(m.model, given)
    with running(studio) as live:
        for part in ("self",) if len(given.tokens) == 0 or given.source is None else ("encoder", "decoder", "cross"):
            weights = wanted[point_of(part, 1)]
            row, column = weights.shape[1] - 1, 1
            at = {"part": part, "layer": 1, "head": "1", "row": row, "column": column}
            page = Page(chromium, live.url, view={**IDS, **at})
            assert page.value("#weight") == pytest.approx(float(weights[1, row, column]), rel=1e-6)
            assert page.at.locator(".thumb").count() == sum(
                len(shown) for name, shown in wanted.items() if name in {point_of(part, n) for n in range(9)}
            )
            assert page.hosts == {f"127.0.0.1:{live.port}"}, "nothing comes from elsewhere"
            assert page.wrong == []
            page.close()


def test_a_map_is_hovered_pinned_zoomed_and_read_as_a_table(chromium: Any, gpt2: Live) -> None:
    key = gpt2.json("api/read", {"model": "recorded", "text": "1 2 3"})["id"]
    exact = gpt2.json("api/exact", id=key, part="self", layer=0, head=2, row=7, column=3)
    page = Page(chromium, gpt2.url, view={**IDS, "head": "2"})
    page.until("document.querySelector('.cells canvas') !== null")
    box = page.at.locator(".above").bounding_box()

    def cell(row: float, column: float) -> tuple[float, float]:
        return box["x"] + (column + 0.5) * box["width"] / 12, box["y"] + (row + 0.5) * box["height"] / 12

    page.at.mouse.move(*cell(7, 3))
    page.until("document.querySelector('.told').textContent.includes('→')")
    assert f"{exact['weight']:.4g}"[:5] in page.at.locator(".told").inner_text()
    assert page.at.locator(".strip .marked").count() == page.at.locator(".strip .second").count() == 1
    page.at.mouse.click(*cell(7, 3))
    assert page.value("#weight") == pytest.approx(exact["weight"], rel=1e-6)
    assert "row=7" in page.at.url
    assert "column=3" in page.at.url
    page.at.mouse.move(*cell(2, 2))
    page.at.mouse.down()
    page.at.mouse.move(*cell(6, 5), steps=4)
    page.at.mouse.up()
    page.until("location.hash.includes('zoom=2%2C7%2C2%2C6')")
    page.at.get_by_role("button", name="Show all").click()
    page.at.get_by_role("button", name="Table").click()
    cells = page.at.locator("table.numbers tbody td").all_inner_texts()
    assert len(cells) == 12 * 12
    assert float(cells[7 * 12 + 3].replace("−", "-")) == pytest.approx(exact["weight"], rel=0.01)
    status, table = gpt2.ask("api/table.csv", id=key, part="self", layer=0, head="2")
    assert status == 200
    assert float(table.decode().splitlines()[8].split(",")[4]) == pytest.approx(exact["weight"], rel=1e-6)
    assert page.wrong == []
    page.close()


def test_all_of_it_is_reached_by_keys(chromium: Any, gpt2: Live) -> None:
    page = Page(chromium, gpt2.url, view=IDS)
    page.until("document.querySelector('.cells canvas') !== null")
    page.at.keyboard.press("]")
    page.until("location.hash.includes('head=1')")
    page.at.keyboard.press("}")
    page.until("location.hash.includes('layer=1')")
    page.at.locator(".cells").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "Enter"):
        page.at.keyboard.press(key)
    page.until("location.hash.includes('row=2') && location.hash.includes('column=1')")
    page.at.keyboard.press("Escape")
    page.until("!location.hash.includes('row=')")
    page.at.keyboard.press("+")
    page.until("location.hash.includes('zoom=')")
    page.at.keyboard.press("0")
    page.until("!location.hash.includes('zoom=')")
    page.at.locator("h2").first.click()
    page.at.keyboard.press("3")
    page.until("location.hash.includes('view=influence')")
    nameless = page.at.evaluate(
        "[...document.querySelectorAll('input, select, textarea, button')].filter(one => !(one.labels?.length"
        " || one.textContent.trim() || one.ariaLabel)).map(one => one.outerHTML)"
    )
    assert nameless == []
    page.close()


def test_a_text_is_shaded_by_what_a_token_read_and_by_what_reads_it(chromium: Any, gpt2: Live) -> None:
    key = gpt2.json("api/read", {"model": "recorded", "text": "1 2 3"})["id"]
    page = Page(chromium, gpt2.url, view={**IDS, "view": "text", "layer": 1, "head": "3"})
    page.at.locator(".strip button").nth(9).click()
    page.until("document.querySelector('.strip button[data-value]') !== null")

    def shown() -> list[float]:
        return [
            float(one)
            for one in page.at.evaluate("[...document.querySelectorAll('.strip button')].map(b => b.dataset.value)")
        ]

    exact = gpt2.json("api/exact", id=key, part="self", layer=1, head=3, row=9, column=4)
    np.testing.assert_allclose(shown(), exact["row"], rtol=1e-6)
    page.at.get_by_role("button", name="what reads it").click()
    page.at.locator(".strip button").nth(4).click()
    page.until("location.hash.includes('column=4')")
    page.at.wait_for_timeout(100)
    np.testing.assert_allclose(shown(), exact["column"], rtol=1e-6)
    page.close()


@pytest.mark.parametrize("place", [*KINDS[:2], *STATES])
def test_influence_is_shown_of_any_mixer(chromium: Any, place: str) -> None:
    studio, _, _ = studio_of_recorded(place)
    with running(studio) as live:
        key = live.json("api/read", {"model": "recorded", "text": "1 2 3"})["id"]
        layer = studio.reading(key).layer("self", 1)
        wanted = heed.views.influence_of(layer.mixer, layer.x, layer.where, exact=True)
        page = Page(
            chromium, live.url, view={**IDS, "view": "influence", "layer": 1, "exact": "1", "row": 6, "column": 2}
        )
        assert page.value("#influence") == pytest.approx(float(wanted[6, 2]), rel=1e-5)
        ahead = page.value("#ahead")
        if layer.mixer.streams:
            assert ahead == 0.0, "not a trace of what comes later"
            assert "0, exactly" in page.at.locator("#ahead").inner_text()
        else:
            assert ahead > 0
        assert page.at.locator("#correlation").count() == bool(layer.heads)
        assert page.wrong == []
        page.close()


def test_the_steps_of_attention_recompute_by_hand(chromium: Any, gpt2: Live) -> None:
    """Each number on the page follows from those before it; nothing but the page is asked."""
    page = Page(chromium, gpt2.url, view={**IDS, "view": "steps", "layer": 1, "head": "2", "row": 8})
    page.until("document.querySelectorAll('tr[data-key]').length === 12")

    def vector(name: str) -> np.ndarray:
        return np.array(json.loads(page.at.locator(f"[data-name='{name}']").first.get_attribute("data-values")))

    def column(name: str) -> np.ndarray:
        return np.array(
            page.at.evaluate(f"[...document.querySelectorAll('[data-{name}]')].map(one => one.dataset.{name})")
        )

    q, keys, values = vector("q"), *(np.stack([vector(f"{what}{n}") for n in range(12)]) for what in "kv")
    scale = 1 / math.sqrt(len(q))
    dots, visible = keys @ q, column("visible") == "true"
    np.testing.assert_allclose(column("dots").astype(float), dots, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(column("scaled").astype(float), dots * scale, rtol=1e-4, atol=1e-6)
    assert visible.tolist() == [key <= 8 for key in range(12)]
    scores = np.where(visible, column("score").astype(float), -np.inf)
    np.testing.assert_allclose(scores[visible], (dots * scale)[visible], rtol=1e-4, atol=1e-6)
    weights = np.exp(scores - scores.max())
    weights /= weights.sum()
    np.testing.assert_allclose(column("weight").astype(float), weights, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(vector("z"), weights @ values, rtol=1e-4, atol=1e-6)
    key = gpt2.json("api/read", {"model": "recorded", "text": "1 2 3"})["id"]
    shown = gpt2.json("api/exact", id=key, part="self", layer=1, head=2, row=8, column=0)["row"]
    np.testing.assert_allclose(column("weight").astype(float), shown, rtol=1e-5, atol=1e-8)
    layer = gpt2.studio.reading(key).layer("self", 1)
    mixer: Any = layer.mixer
    matrix = mixer.out.weight[:, 2 * len(q) : 3 * len(q)].detach().numpy()
    np.testing.assert_allclose(vector("out"), matrix @ vector("z"), rtol=1e-3, atol=1e-5)
    page.close()


@pytest.mark.parametrize("place", STATES)
def test_a_recurrence_shows_its_state(chromium: Any, place: str) -> None:
    studio, _, given = studio_of_recorded(place)
    with running(studio) as live:
        page = Page(chromium, live.url, view={**IDS, "view": "steps", "layer": 1})
        page.until(f"document.querySelectorAll('[data-size]').length === {len(given.tokens)}")
        sizes = page.at.evaluate("[...document.querySelectorAll('[data-size]')].map(one => Number(one.dataset.size))")
        assert all(size > 0 for size in sizes)
        page.at.locator("nav button", has_text="Maps").click()
        page.at.get_by_text("has no attention weights").first.wait_for()
        assert page.wrong == []
        page.close()


def test_the_next_token_its_entropy_and_another_way_on(chromium: Any, gpt2: Live) -> None:
    studio, m, given = studio_of_recorded("gpt2/lm")
    assert given.ids is not None
    page = Page(chromium, gpt2.url, view={**IDS, "view": "next", "row": 5})
    with torch.no_grad():
        log = torch.log_softmax(m.model(given.ids, heed.Where.run(1, 12))[0][0, 5].double(), -1)
    assert page.value("#entropy") == pytest.approx(float(-(log.exp() * log).sum() / math.log(2)), rel=1e-4)
    shown = page.at.evaluate("[...document.querySelectorAll('[data-p]')].map(one => Number(one.dataset.p))")
    np.testing.assert_allclose(shown, log.exp().topk(12).values.numpy(), rtol=1e-4)
    del m.inspect  # from here on it reads the ids that the page sends
    with running(studio) as live:
        other = Page(chromium, live.url, view={"text": "7 8 9", "model": "recorded", "view": "next"})
        other.until("document.querySelectorAll('[data-p]').length === 12")
        best = int(other.at.locator("td .faint").first.inner_text())
        other.at.get_by_role("button", name="Go on with it").first.click()
        other.until("document.querySelectorAll('.strip .token').length === 4")
        assert f"ids=7.8.9.{best}" in other.at.url
        other.at.get_by_role("button", name="Back").click()
        other.until("document.querySelectorAll('.strip .token').length === 3")
        assert other.wrong == []
        other.close()
    page.close()


def test_state_and_cost(chromium: Any, gpt2: Live) -> None:
    model: Any = gpt2.studio.pipeline("recorded").model
    page = Page(chromium, gpt2.url, view={**IDS, "view": "cost"})
    page.until("document.querySelectorAll('circle[data-bytes]').length > 0")
    circles = "[...document.querySelectorAll('circle')].map(c => [+c.dataset.tokens, +c.dataset.bytes])"
    points = page.at.evaluate(circles)
    for tokens, held in points:
        with torch.no_grad():
            _, state = model(torch.zeros(1, tokens, dtype=torch.long), heed.Where.run(1, tokens), model.start(1))
        assert held == nbytes(state) == price(model.spec(), tokens, tokens)
    shown = page.at.evaluate(
        "[...document.querySelectorAll('tr[data-version] [data-state]')].map(c => +c.dataset.state)"
    )
    assert shown[0] == price(model.spec(), 64, 64)
    assert page.at.locator("tr[data-version]").count() >= 4
    assert page.wrong == []
    page.close()


def test_a_mask_is_drawn_by_name_with_settings(chromium: Any, gpt2: Live) -> None:
    page = Page(chromium, gpt2.url, view={"view": "masks", "kind": "window", "changes": "back=3", "tokens": 12})
    page.until("document.querySelector('.cells') !== null")
    fact = "[data-fact='pairs that are seen']"
    allowed = int(Window(back=3).allows(torch.arange(12)[:, None], torch.arange(12)).sum())
    assert page.at.locator(fact).inner_text().startswith(f"{allowed} of 144")
    page.at.get_by_label("Settings").fill("back=1")
    page.at.get_by_role("button", name="Draw").click()
    page.until(f"document.querySelector({fact!r}).textContent.startsWith('23 of 144')")
    page.at.locator(".cells").focus()
    page.at.keyboard.press("ArrowDown")
    page.at.keyboard.press("Enter")
    page.until("[...document.querySelectorAll('.facts dd')].length > 2")
    page.at.get_by_role("button", name="Position code").click()
    page.until("location.hash.includes('what=position') && document.querySelectorAll('.cells').length > 0")
    page.at.get_by_label("Kind").select_option("alibi")
    page.until("document.querySelectorAll('.cells').length === 4")
    assert page.wrong == []
    page.at.get_by_label("Settings").fill("nonsense=1")
    page.at.get_by_role("button", name="Draw").click()
    page.at.get_by_role("alert").get_by_text("nonsense").wait_for()
    page.close()


def test_two_texts_side_by_side(chromium: Any) -> None:
    studio, m, _ = studio_of_recorded("bert/pretraining")
    del m.inspect  # it reads the ids that the page sends
    with running(studio) as live:
        at = {"text": "5 6 7 8", "model": "recorded", "view": "compare", "other": "5 6 9 8", "layer": 1, "head": "1"}
        page = Page(chromium, live.url, view={**at, "row": 1, "column": 2})
        keys = [live.json("api/read", {"model": "recorded", "text": one})["id"] for one in ("5 6 7 8", "5 6 9 8")]
        one, two = (
            live.json("api/exact", id=key, part="self", layer=1, head=1, row=1, column=2)["weight"] for key in keys
        )
        assert one != two
        assert page.value("#difference") == pytest.approx(two - one, rel=1e-4)
        page.at.get_by_label("The other text").fill("5 6 7")
        page.at.get_by_role("button", name="Compare").click()
        page.at.get_by_text("not of one size").wait_for()
        assert page.wrong == []
        page.close()


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.is_file():
        pytest.skip("accessibility was not tested: axe-core is not there; run: make web")
    return AXE.read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", ["maps", "text", "influence", "steps", "cost", "next", "masks", "compare"])
def test_no_violations_of_accessibility(chromium: Any, gpt2: Live, axe: str, view: str, scheme: str) -> None:
    at = {"view": view, "row": 5, "column": 3, "table": "1", "other": "4 5 6"}
    page = Page(chromium, gpt2.url, view={**IDS, **at}, color_scheme=scheme, reduced_motion="reduce", bypass_csp=True)
    page.until(f"document.querySelectorAll({WAITED.get(view, '.strip .token')!r}).length > {int(view != 'masks')}")
    page.at.wait_for_timeout(200)
    page.at.evaluate(axe)
    found = page.at.evaluate(
        "axe.run().then(done => done.violations.map(one => [one.id, one.nodes.map(n => n.html + n.failureSummary)]))"
    )
    assert found == []
    page.close()


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_sticks_out_at_the_side(chromium: Any, gpt2: Live, width: int) -> None:
    for view in ("maps", "text", "influence", "steps", "cost", "next", "compare"):
        page = Page(
            chromium,
            gpt2.url,
            view={**IDS, "view": view, "row": 5, "column": 3},
            viewport={"width": width, "height": 720},
        )
        page.until("document.querySelector('.strip .token, form .other, tr[data-version]') !== null")
        assert page.at.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        page.close()


def test_the_page_speaks_chinese(chromium: Any, gpt2: Live) -> None:
    page = Page(chromium, gpt2.url, view=IDS, locale="zh-CN")
    page.at.get_by_role("button", name="注意力图").wait_for()
    assert page.at.evaluate("document.documentElement.lang") == "zh"
    page.at.get_by_label("语言").select_option("en")
    page.at.get_by_role("button", name="Maps").wait_for()
    page.close()
