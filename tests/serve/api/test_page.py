"""The chat page in a browser: Chromium of the system, driven by playwright. Without them it says that it is skipped."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.api.material import chained
from tests.serve.api.serving import KEY, Live, running, until
from tests.serve.api.solo import Solo

playwright: Any = pytest.importorskip("playwright.sync_api", reason="the page was not tested: pip install playwright")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="the page was not tested: there is no Chromium here")
PATIENCE = 60_000  # milliseconds that a busy machine may take


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


class Page:
    """The page as somebody uses it, and all that went wrong in it."""

    def __init__(self, chromium: Any, live: Live, **context: Any) -> None:
        self.context = chromium.new_context(permissions=["clipboard-read", "clipboard-write"], **context)
        self.at = self.context.new_page()
        self.at.set_default_timeout(PATIENCE)
        self.wrong: list[str] = []
        self.at.on("console", lambda told: self.wrong.append(told.text) if told.type == "error" else None)
        self.at.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.hosts: set[str] = set()
        self.at.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.at.goto(live.url)
        self.at.wait_for_selector("#model option", state="attached")

    def ask(self, text: str) -> None:
        self.at.get_by_label("Message").fill(text)
        self.at.get_by_label("Message").press("Enter")

    def until(self, holds: str) -> None:
        """Wait for it; the page's own rules forbid the usual way, which evaluates a text in the page."""
        end = time.monotonic() + PATIENCE / 1000
        while not self.at.evaluate(holds):
            assert time.monotonic() < end, holds
            self.at.wait_for_timeout(50)

    def done(self, count: int) -> str:
        """The last text, when so many were said and nothing is running."""
        self.until(f"document.querySelectorAll('article').length === {count} && at('stop').disabled")
        return str(self.at.locator("article p").nth(-2).text_content())


def test_a_chat(chromium: Any, real: Live) -> None:
    page = Page(chromium, real)
    page.at.get_by_label("Temperature").fill("0")
    page.at.get_by_label("Most tokens").fill("22")
    page.ask("hello")
    assert page.done(2) == chained(22, "x")
    told = str(page.at.locator("article .told").last.text_content())
    assert "7 tokens read, 22 written" in told
    assert "tokens/s" in told
    assert "state " in told
    page.at.get_by_role("button", name="Copy").last.click()
    page.at.get_by_role("button", name="Copied").wait_for()
    assert page.at.evaluate("navigator.clipboard.readText()") == chained(22, "x")
    page.ask("and <b>now</b>?")
    page.done(4)
    assert page.at.locator("article b").count() == 0, "what is said is text, never markup"
    page.at.get_by_role("button", name="New chat").click()
    assert page.at.locator("article").count() == 0
    assert page.hosts == {f"127.0.0.1:{real.port}"}, "nothing comes from elsewhere"
    assert page.wrong == []


def test_an_answer_is_stopped(chromium: Any, live: Live, solo: Solo) -> None:
    solo.pause = 0.03
    page = Page(chromium, live)
    for way in ("button", "Escape"):
        page.at.get_by_label("Most tokens").fill("5000")
        page.at.get_by_label("Temperature").fill("0")
        page.ask("hello")
        page.until("document.querySelectorAll('article p')[2]?.textContent.length > 3")
        page.at.get_by_role("button", name="Stop").click() if way == "button" else page.at.keyboard.press("Escape")
        page.at.get_by_text("stopped", exact=True).wait_for()
        page.until("at('stop').disabled")
        page.at.get_by_role("button", name="New chat").click()
    until(lambda: len(solo.cancelled) == 2)


def test_a_refusal_is_shown(chromium: Any, live: Live) -> None:
    page = Page(chromium, live)
    page.at.get_by_label("Top-p").fill("7")
    page.at.evaluate("at('ask').noValidate = true")
    page.ask("hello")
    page.at.locator(".wrong").wait_for()
    assert "top_p" in str(page.at.locator(".wrong").text_content())


def test_every_control_has_a_name_and_keys_reach_it(chromium: Any, live: Live) -> None:
    page = Page(chromium, live)
    nameless = page.at.evaluate(
        "[...document.querySelectorAll('input, select, textarea, button')].filter(one => !(one.labels?.length"
        " || one.textContent.trim() || one.ariaLabel)).map(one => one.outerHTML)"
    )
    assert nameless == []
    seen = set()
    for _ in range(30):
        page.at.keyboard.press("Tab")
        seen.add(page.at.evaluate("document.activeElement.id"))
    wanted = {
        "text",
        "send",
        "model",
        "system",
        "temperature",
        "top_p",
        "top_k",
        "max_tokens",
        "seed",
        "fresh",
        "theme",
    }
    assert wanted <= seen, wanted - seen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(chromium: Any, live: Live, scheme: str) -> None:
    page = Page(chromium, live, color_scheme=scheme)
    ground = "getComputedStyle(document.body).backgroundColor"
    bright = {"light": "rgb(253, 253, 251)", "dark": "rgb(23, 23, 21)"}
    assert page.at.evaluate(ground) == bright[scheme]
    page.at.get_by_role("button", name="Light or dark").click()
    assert page.at.evaluate(ground) == bright["dark" if scheme == "light" else "light"]


def test_a_browser_asks_for_the_key(chromium: Any, solo: Solo) -> None:
    with running(solo, keys=(KEY,)) as live:
        page = Page(chromium, live, http_credentials={"username": "me", "password": KEY})
        page.at.get_by_label("Temperature").fill("0")
        page.at.get_by_label("Most tokens").fill("11")
        page.ask("hello")
        assert page.done(2) == chained(11, "x")
