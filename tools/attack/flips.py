"""Bit flips over the files of a run folder: each must be noticed by whoever loads, goes on with or verifies it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from random import Random


def flips(run: Path, place: Path, seed: int, count: int) -> tuple[dict[str, Counter[str]], list[str]]:
    """By file: flips and those noticed; and the places of those that were not."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(run, place)
    draw, counts, missed = Random(seed), dict[str, Counter[str]](), list[str]()
    files = [path for path in sorted(place.rglob("*")) if path.is_file()]
    for number in range(count):
        file = files[number % len(files)]
        whole = file.read_bytes()
        at, bit = draw.randrange(len(whole)), draw.randrange(8)
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        name = file.relative_to(place)
        kind = f"state/{name.name}" if name.parts[0] == "state" else name.as_posix()
        seen = noticed(place)
        counts.setdefault(kind, Counter()).update(flips=1, noticed=int(seen))
        if not seen:
            missed.append(f"bit {bit} of byte {at} of {name}")
        file.write_bytes(whole)
    if noticed(place):
        missed.append("the run is taken for damaged although nothing is changed any more")
    return counts, missed


def noticed(run: Path) -> bool:
    """What `heed verify RUN` asks first: whether every file is as it was written."""
    from heed.core.errors import HeedError
    from heed.runs import Run
    from heed.train import checkpoint

    looks: list[Callable[[], Collection[str]]] = [lambda: Run.open(run).damage()]
    looks += [lambda found=found: checkpoint.damage(found) for found in checkpoint.found(Run(run))]  # type: ignore[misc]
    for look in looks:
        try:
            if look():
                return True
        except HeedError:
            return True
    return False
