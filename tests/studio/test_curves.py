"""Runs: curves from metrics.jsonl, settings that differ, and lines that arrive while a run is written."""

from __future__ import annotations

import asyncio
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from heed.core.errors import InputError
from heed.studio import Studio, curves
from heed.studio.starting import studio_of
from tests.studio.serving import TOKEN, Page, running


def run(folder: Path, name: str, losses: list[float], **settings: Any) -> Path:
    """A run folder, as far as curves go."""
    place = folder / name
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps({"training": settings}))
    (place / "metrics.jsonl").write_text("".join(line(step, loss) for step, loss in enumerate(losses)))
    return place


def line(step: int, loss: float) -> str:
    return json.dumps({"step": step, "loss": loss}) + "\n"


def test_curves_and_the_settings_that_differ(tmp_path: Path) -> None:
    run(tmp_path, "a", [3.0, 2.0], rate=0.1, seed=0)
    run(tmp_path, "b", [3.0, 1.0, float("nan")], rate=0.2, seed=0)
    found = curves.told(curves.found(tmp_path))
    assert found["differing"] == ["training.rate"]
    assert [one["settings"] for one in found["runs"]] == [{"training.rate": 0.1}, {"training.rate": 0.2}]
    assert [len(one["lines"]) for one in found["runs"]] == [2, 3]
    with running(studio_of(tmp_path)) as live:
        assert live.json("api/runs")["runs"][1]["lines"][2]["loss"] is None, "NaN is no JSON"


def test_a_run_that_is_being_written(tmp_path: Path) -> None:
    place = run(tmp_path, "a", [3.0])
    with (place / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1, "lo')
    (told,) = curves.told(curves.found(tmp_path))["runs"]
    assert told["lines"] == [{"step": 0, "loss": 3.0}]
    assert told["wrong"] is None
    (place / "metrics.jsonl").write_text("nonsense\n")
    (told,) = curves.told(curves.found(tmp_path))["runs"]
    assert "line 1, is" in told["wrong"]


def test_too_many_runs_are_refused() -> None:
    with pytest.raises(InputError, match="too many"):
        curves.told({str(number): Path() for number in range(curves.MOST + 1)})


def test_news_are_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "LOOK", 0.01)
    place = run(tmp_path, "a", [3.0, 2.0])

    async def read() -> list[dict[str, Any]]:
        source = curves.news({"a": place}, {"a": 1})
        found = [json.loads((await anext(source)).removeprefix("data: "))]
        with (place / "metrics.jsonl").open("a") as file:
            file.write(line(2, 1.5))
        found.append(json.loads((await anext(source)).removeprefix("data: ")))
        (place / "metrics.jsonl").write_text(line(0, 9.0))
        found.append(json.loads((await anext(source)).removeprefix("data: ")))
        await source.aclose()
        return found

    with ThreadPoolExecutor(1) as worker:  # where playwright runs, this thread has a loop already
        first, second, third = worker.submit(lambda: asyncio.run(read())).result()
    assert first == {"name": "a", "lines": [{"step": 1, "loss": 2.0}], "anew": False}
    assert second["lines"] == [{"step": 2, "loss": 1.5}]
    assert third == {"name": "a", "lines": [{"step": 0, "loss": 9.0}], "anew": True}


def test_a_reader_that_leaves_ends_its_stream(tmp_path: Path) -> None:
    place = run(tmp_path, "a", [3.0])
    studio = Studio({}, {"a": place}, lambda _: pytest.fail("no model is opened"))
    with running(studio) as live:
        with socket.create_connection(("127.0.0.1", live.port), timeout=60) as caller:
            caller.sendall(f"GET /{TOKEN}/api/news HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode())
            assert b"200 OK" in caller.recv(1 << 16)
        assert live.json("api/runs")["runs"][0]["name"] == "a"  # and the server ends at once when the block does


def test_curves_on_the_page_grow_while_a_run_is_written(chromium: Any, tmp_path: Path) -> None:
    places = [run(tmp_path, name, [3.0, 2.0, 1.0], rate=rate) for name, rate in (("a", 0.1), ("b", 0.2))]
    studio = Studio({}, curves.found(tmp_path), lambda _: pytest.fail("no model is opened"))
    with running(studio) as live:
        page = Page(chromium, live.url, view={"view": "runs"})
        page.until("document.querySelectorAll('polyline').length === 2")
        assert page.at.locator("tr[data-run]").count() == 2
        assert "training.rate" in page.at.locator("main thead").inner_text()
        assert float(page.at.locator("[data-run=b] [data-last]").get_attribute("data-last")) == 1.0
        page.at.get_by_text("Live:").wait_for()
        with (places[1] / "metrics.jsonl").open("a") as file:
            file.write(line(3, 0.25))
        page.until("document.querySelector('[data-run=b] [data-last]').dataset.last === '0.25'")
        assert page.wrong == []
        page.close()
