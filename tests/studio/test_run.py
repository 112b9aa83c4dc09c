"""A run folder of heed's own: its model is looked into and its curves are shown, from one path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import heed
from heed.runs import load
from heed.show.progress import Silent
from heed.studio import studio_of
from heed.train import train
from tests.studio.serving import Page, running
from tests.train.support import language_model


def test_a_run_is_looked_into(chromium: Any, tmp_path: Path) -> None:
    train(language_model("model.mixer.kind=attention", "model.mixer.heads=2"), tmp_path / "small", Silent())
    m, text = load(tmp_path / "small"), "import os"
    with torch.no_grad(), heed.look(m.model, "*.weights") as seen:
        m.inspect(text).run(m.model)
    (weights,) = (shown[0][0] for shown in seen.values())
    with running(studio_of(tmp_path / "small")) as live:
        at = {"text": text, "head": "1", "row": len(weights[1]) - 1, "column": 2}
        page = Page(chromium, live.url, view=at)
        assert page.value("#weight") == pytest.approx(float(weights[1, -1, 2]), rel=1e-6)
        page.at.locator("nav button", has_text="Runs").click()
        page.until("document.querySelectorAll('polyline').length === 1")
        assert page.wrong == []
        page.close()
