"""How a figure is taken: runners take turns in random order, and only what was measured side by side is compared.

A shared machine drifts by a third within minutes, so a time means little and a ratio of neighbours means much: `race`
times all runners once per round, `ratio` pairs them round by round. torch counts no memory on a CPU, so `peak` runs a
function in a fresh process and asks the kernel how far the process grew.
"""

from __future__ import annotations

import ctypes
import gc
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from torch import Tensor

from heed.bench.figures import quartiles, quotient

Runner: TypeAlias = Callable[[], object]
T = TypeVar("T")
Unit: TypeAlias = Literal["s", "B", "×", ""]
Prepare: TypeAlias = "Callable[..., Runner]"
Three: TypeAlias = tuple[Tensor, Tensor, Tensor]  # query, key, value

LEAST = 0.02  # seconds a sample lasts at least: a quick call is repeated, so that the clock and Python do not count


@dataclass(frozen=True)
class Figure:
    """A median between two bounds: quartiles of what was measured, or the 95 % interval of a ratio."""

    low: float
    middle: float
    high: float
    unit: Unit = "s"

    @classmethod
    def of(cls, samples: Sequence[float], unit: Unit = "s") -> Figure:
        """Median and quartiles."""
        return cls(*quartiles(samples), unit)

    @classmethod
    def exact(cls, value: float, unit: Unit) -> Figure:
        """A figure that does not vary."""
        return cls(value, value, value, unit)

    def times(self, factor: float) -> Figure:
        """What so many of it would be."""
        return Figure(self.low * factor, self.middle * factor, self.high * factor, self.unit)

    def __str__(self) -> str:
        if self.low == self.high:
            return written(self.middle, self.unit)
        return f"{written(self.middle, self.unit)} ({written(self.low, self.unit)} – {written(self.high, self.unit)})"


def written(value: float, unit: Unit) -> str:
    """A value with the prefix that suits its size."""
    match unit:
        case "s":
            if value < 1e-3:
                return f"{value * 1e6:.3g} µs"
            return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.2f} s"
        case "B":
            return f"{value / 2**20:.3g} MiB" if value < 2**30 else f"{value / 2**30:.2f} GiB"
        case "×":
            return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"
        case "":
            return f"{value:g}"


def race(runners: dict[str, Runner], rounds: int) -> dict[str, list[float]]:
    """Seconds per call of every runner, round by round: all run in every round, in an order drawn anew."""
    repeats = {name: _repeats(run) for name, run in runners.items()}
    samples: dict[str, list[float]] = {name: [] for name in runners}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(runners), len(runners)):
            samples[name].append(_timed(runners[name], repeats[name]))
    return samples


def ratio(mine: Sequence[float], peer: Sequence[float]) -> Figure:
    """Median of the paired ratios with its 95 % bootstrap interval; below 1 heed is ahead."""
    return Figure(*quotient(mine, peer), "×")


def peak(prepare: Prepare, *arguments: Any) -> Figure:
    """How far a fresh process grows while it runs what `prepare(*arguments)` gives: everything beyond the inputs.

    `prepare` makes the inputs and warms up; it must be a function of a module, so that the process can find it.
    """
    return Figure.exact(apart(_prepared, prepare, arguments), "B")


def apart(call: Callable[..., T], *arguments: Any) -> T:
    """What a function of a module gives in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
        return fresh.submit(call, *arguments).result()


def growth(run: Runner) -> int:
    """How far this process grows while it runs this, in bytes. What was freed before is given back first."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Linux: the high-water mark starts anew
    before = _resident("VmRSS")
    kept = run()
    grown = _resident("VmHWM") - before
    del kept  # lived until here: a result counts
    return max(grown, 1)


def _repeats(run: Runner) -> int:
    """How often to call it for one sample. The first call warms up, the second one tells."""
    run()
    return max(1, round(LEAST / max(_timed(run, 1), 1e-7)))


def _timed(run: Runner, repeats: int) -> float:
    gc.collect()
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - begin) / repeats


def _prepared(prepare: Prepare, arguments: tuple[Any, ...]) -> int:
    return growth(prepare(*arguments))


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}; memory is measured on Linux only")


def swapped(three: Three) -> Three:
    """The same memory with tokens and heads in the other order: from heed's [B, T, H, d] to torch's [B, H, T, d]."""
    query, key, value = three
    return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)


def contiguous(three: Three) -> Three:
    """Copies in one piece."""
    query, key, value = three
    return query.contiguous(), key.contiguous(), value.contiguous()
