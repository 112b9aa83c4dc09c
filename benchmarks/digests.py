"""What digests cost: loading 500 MB of weights with all of them compared, as heed compares by default, and uncompared.

Two folders hold the same model in float32: a run folder, whose SHA256SUMS lists its weights, and one in the Hugging
Face layout, which brings no digests. The ways take turns in one process with a warm disk cache. Clock and processor
time are told apart: on a shared machine only the second means much.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import torch

import heed
from benchmarks.report import Row, Target, compared
from heed.runs import Recipe, Run, find
from heed.runs import folder as runs
from heed.text.kinds import Byte

SIZE = ("model.width=768", "model.depth=18", "model.mixer.0.heads=12", "model.feedforward.hidden=3072")
SIDES: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "uncompared": lambda: patch.object(Run, "must_be_whole", lambda run, name: None),
    "by default": nullcontext,
    "all compared": lambda: patch.object(runs, "AFFORDABLE", 1 << 62),
}


def rows(rounds: int | None) -> Iterator[Row]:
    """By default as quick as without digests (10 % at most); all compared, and the layout that has none, to see."""
    with TemporaryDirectory() as place:
        run, home = Path(place, "run"), Path(place, "home")
        size = _write(run)
        heed.load(run).save(home)
        ways = {("run folder", side): run for side in SIDES} | {("Hugging Face folder", "by default"): home}
        found: dict[tuple[str, str], list[tuple[float, float]]] = {way: [] for way in ways}
        for number in range((rounds or 9) + 1):
            for way in random.sample([*ways], len(ways)):
                taken = _taken(ways[way], SIDES[way[1]])
                if number:  # the first round fills the disk cache
                    found[way].append(taken)
        plain = ("run folder", "uncompared")
        for way, target in (
            (("run folder", "by default"), Target(1.1)),
            (("run folder", "all compared"), None),
            (("Hugging Face folder", "by default"), None),
        ):
            for index, clock in enumerate(("processor time", "clock")):
                what = f"{size / 1e6:.0f} MB, {way[0]}, {way[1]}: {clock}; peer: run folder, uncompared"
                mine, peer = ([each[index] for each in found[one]] for one in (way, plain))
                yield compared(what, mine, peer, target if index == 0 else None)


def _write(path: Path) -> int:
    """A run that was not trained; bytes of its weights."""
    recipe = Recipe.read(find("characters"), ("tokenizer.kind=byte", "data.kind=stdlib", *SIZE))
    torch.manual_seed(0)
    run = Run.create(path, recipe, Byte().train())
    run.keep(run.build())
    return (path / "model.safetensors").stat().st_size


def _taken(path: Path, side: Callable[[], AbstractContextManager[object]]) -> tuple[float, float]:
    """Seconds of the processor and of the clock."""
    with side():
        begun, worked = time.perf_counter(), time.process_time()
        pipeline = heed.load(path)
        taken = time.process_time() - worked, time.perf_counter() - begun
    assert pipeline.model is not None
    return taken
