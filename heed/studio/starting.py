"""A studio from a path: what is opened there, the server on this machine, and one text as a file for the disk."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from ..core.errors import HeedError, InputError
from ..pipelines import Pipeline
from ..runs import load
from ..runs.folder import CONFIG
from . import curves
from .scenes import Given
from .studio import Studio

USUAL = Path("runs")  # where `heed train` leaves its runs


@dataclass(frozen=True)
class Opening:
    """How a studio is opened: a model, a run, or a folder of runs; None: the runs here."""

    path: Path | None = None
    port: int = 0  # 0: any that is free


def studio_of(path: Path | None, loading: Callable[[Path], Pipeline] = load) -> Studio:
    """What is at a path: one model, or a folder of them."""
    if path is None and not USUAL.is_dir():
        raise InputError("there are no runs here; name a model or a folder of runs: heed studio PATH")
    place = USUAL if path is None else path
    runs = curves.found(place)
    if (place / CONFIG).is_file() or not place.is_dir() or list(place.glob("*.gguf")):
        return Studio({place.resolve().name: place}, runs, loading)
    sources = {one.name: one for one in sorted(place.iterdir()) if not one.is_symlink() and (one / CONFIG).is_file()}
    if not sources and not runs:
        raise InputError(f"{place} holds no model (a config.json) and no run (a metrics.jsonl); name one that does")
    return Studio(sources, runs, loading)


def serve(studio: Studio, opening: Opening, say: Callable[[str], None], *, show: Callable[[str], object]) -> None:
    """Serve pages on this machine until Ctrl-C. `show`: opens the address in a browser."""
    from ..serve.api.wire.server import listening, run
    from .app import Application

    token = secrets.token_urlsafe(24)
    with listening("127.0.0.1", opening.port) as place:
        address = f"http://127.0.0.1:{place.getsockname()[1]}/{token}/"
        say(f"the studio is at {address} (this machine alone); Ctrl-C ends")
        show(address)
        run(Application(studio, token), place, lambda: None, 2)


def record(studio: Studio, name: str, given: Given) -> str:
    """The page as one file, with all that it asks about one input: maps of every head, and influence."""
    answers = dict[str, bytes]()

    def put(path: str, answer: bytes | Mapping[str, object], **asked: object) -> None:
        raw = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        answers[f"{path}?{urlencode(asked)}" if asked else path] = raw

    described = studio.read(name, given)
    key = str(described["id"])
    put("api/opened", {"models": [name], "runs": []})
    put("api/model", studio.told(name), model=name)
    put("api/read", {**described, "given": given.dump()})
    for part, told in described["parts"].items():
        put("api/thumbnails", studio.thumbnails(key, part), id=key, part=part)
        for depth, layer in enumerate(told["layers"]):
            at = {"id": key, "part": part, "layer": depth}
            for head in (*map(str, range(layer["heads"])), *(("mean", "max") if layer["heads"] else ())):
                put("api/map", studio.map(key, part, depth, head), **at, head=head)
            for head in range(layer["heads"]):
                put("api/alike", studio.alike(key, part, depth, head), **at, head=head)
            try:
                put("api/influence", studio.influence(key, part, depth, exact=False), **at)
            except HeedError as error:  # of a layer that cannot be asked the page says why
                put("api/influence", {"error": {"message": str(error)}}, **at)
    for place in range(len(described["ids"]) if described["next"] else 0):
        put("api/next", studio.next(key, place), id=key, place=place)
    from .page import static

    return static(answers)
