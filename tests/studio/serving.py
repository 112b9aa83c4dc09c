"""A studio that runs on this machine, recorded checkpoints with what they were recorded on, and a page in a browser."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import torch
from safetensors.torch import load_file

import heed
from heed.pipelines import Pipeline
from heed.pipelines.attentions import Inspected
from heed.serve.api.wire.server import listening, server_of
from heed.studio import Studio
from heed.studio.app import Application
from tests.weights.support import GOLDEN

PATIENCE = 60_000  # milliseconds that a busy machine may take
TOKEN = "token-of-this-test"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


@dataclass
class Live:
    """A studio that is served."""

    port: int
    studio: Studio

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{TOKEN}/"

    def ask(
        self,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        whole: bool = False,
        **query: Any,
    ) -> tuple[int, bytes]:
        """One request below the token, or of a whole path: its status and its body."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            place = path if whole else f"/{TOKEN}/{path}"
            place += f"?{urlencode(query)}" if query else ""
            raw = None if body is None else json.dumps(body).encode()
            given = {**({} if raw is None else {"content-type": "application/json"}), **(headers or {})}
            connection.request("GET" if raw is None else "POST", place, raw, given)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def json(self, path: str, body: Any = None, **query: Any) -> Any:
        """What is answered, which must be no refusal."""
        status, raw = self.ask(path, body, **query)
        assert status == 200, raw
        return json.loads(raw)


@contextmanager
def running(studio: Studio) -> Iterator[Live]:
    """A server around a studio, on a port of its own, until the block ends."""
    with listening("127.0.0.1", 0) as place:
        server = server_of(Application(studio, TOKEN), lambda: None, patience=2)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
        thread.start()
        try:
            yield Live(place.getsockname()[1], studio)
        finally:
            server.should_exit = server.force_exit = True
            thread.join(20)
            assert not thread.is_alive(), "the server does not end"


def recorded(place: str) -> tuple[Pipeline, Inspected]:
    """A recorded checkpoint and the first input that it was recorded on."""
    m, inputs = heed.load(GOLDEN / place), load_file(GOLDEN / place / "inputs.safetensors")
    ids = inputs.get("input_ids", inputs.get("labels"))
    row = torch.empty(0) if ids is None else ids[:1, :12].clamp(min=0).long()
    named = tuple(map(str, row.flatten().tolist()))
    if place.startswith("vit"):
        return m, Inspected(source=inputs["pixel_values"][:1].to(m.dtype))
    if place.startswith("whisper"):
        return m, Inspected(row, named, inputs["input_features"][:1].mT.to(m.dtype))
    if place.startswith("t5"):
        target = inputs["labels"][:1]
        return m, Inspected(target, tuple(map(str, target[0].tolist())), row)
    return m, Inspected(row, named)


def studio_of_recorded(place: str) -> tuple[Studio, Pipeline, Inspected]:
    """A studio whose model reads what it was recorded on, whatever ids a page sends."""
    m, given = recorded(place)
    m.inspect = lambda text, target=None: given  # type: ignore[method-assign]  # ids as a page sends them are no image
    return Studio({"recorded": Path()}, {}, lambda _: m), m, given


class Page:
    """The page as somebody uses it, and all that went wrong in it."""

    def __init__(self, chromium: Any, url: str, *, view: Mapping[str, Any] | None = None, **context: Any) -> None:
        self.context = chromium.new_context(
            **{"locale": "en-US", "viewport": {"width": 1280, "height": 720}, **context}
        )
        self.at = self.context.new_page()
        self.at.set_default_timeout(PATIENCE)
        self.wrong: list[str] = []
        self.hosts: set[str] = set()
        self.at.on("console", lambda told: self.wrong.append(told.text) if told.type == "error" else None)
        self.at.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.at.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.at.goto(f"{url}#{urlencode(view or {})}")

    def until(self, holds: str) -> Any:
        """Wait for it; the page's own rules forbid the usual way, which evaluates a text in the page."""
        end = time.monotonic() + PATIENCE / 1000
        while not (found := self.at.evaluate(holds)):
            assert time.monotonic() < end, (holds, self.wrong, self.at.locator("main").inner_text()[:400])
            self.at.wait_for_timeout(25)
        return found

    def value(self, place: str, name: str = "value") -> float:
        """A number as the page holds it."""
        self.until(f"document.querySelector({place!r}) !== null")
        return float(self.at.locator(place).first.get_attribute(f"data-{name}"))

    def close(self) -> None:
        self.context.close()
