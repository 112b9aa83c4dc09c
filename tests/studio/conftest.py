"""Fixtures of the studio: Chromium, once, and a small language model on which most is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.studio.serving import CHROMIUM, FLAGS, Live, running, studio_of_recorded


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    playwright: Any = pytest.importorskip("playwright.sync_api", reason="pages were not tested: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("pages were not tested: there is no Chromium here")
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def gpt2() -> Iterator[Live]:
    studio, _, _ = studio_of_recorded("gpt2/lm")
    with running(studio) as live:
        yield live
