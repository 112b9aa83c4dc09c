"""What came of contests: a table for people, and the same as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from .contest import Outcome, Told
from .figures import Figure, faster

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Row:
    """One contestant."""

    name: str  # with its precision and the way that was quickest
    version: str
    rate: Figure  # units per second
    seconds: Figure
    ours: Figure | None  # how many times as fast heed is; None for heed
    share: float | None  # of the bandwidth, by the weights read for each token; None where that is not the limit
    peak: int
    same: float | None  # share of the first row's tokens that are heed's

    @classmethod
    def of(cls, told: Told, first: Told, outcome: Outcome) -> Row:
        seconds = Figure.of(told.seconds)
        rate = Figure(told.units / seconds.high, told.units / seconds.middle, told.units / seconds.low)
        alone = outcome.work.subject == "decode" and outcome.work.batch == 1 and told.bytes > 0
        pairs = list(zip(told.tokens, first.tokens, strict=False))
        return cls(
            name=" ".join(part for part in (told.name, told.precision, told.way and f"({told.way})") if part),
            version=told.version,
            rate=rate,
            seconds=seconds,
            ours=None if told is first else faster(first.seconds, told.seconds),
            share=told.bytes * rate.middle / outcome.bandwidth if alone else None,
            peak=told.peak,
            same=sum(a == b for a, b in pairs) / len(pairs) if pairs and told is not first else None,
        )

    def cells(self, work_is_load: bool) -> tuple[str, ...]:
        return (
            self.name,
            self.version,
            str(self.seconds if work_is_load else self.rate),
            "" if self.ours is None else f"{self.ours.middle:.2f}× ({self.ours.low:.2f} – {self.ours.high:.2f})",
            "" if self.share is None else f"{self.share:.0%}",
            f"{self.peak / 2**20:,.0f} MiB",
            "" if self.same is None else f"{self.same:.0%}",
        )


@dataclass(frozen=True)
class Report:
    """All contests of a run."""

    outcomes: Sequence[Outcome]
    machine: dict[str, str]

    def rows(self, outcome: Outcome) -> list[Row]:
        """heed, then peers, the quickest first."""
        first, *others = outcome.told
        peers = sorted((Row.of(told, first, outcome) for told in others), key=lambda row: -row.rate.middle)
        return [Row.of(first, first, outcome), *peers]

    def headings(self, outcome: Outcome) -> tuple[str, ...]:
        figure = "seconds" if outcome.work.subject == "load" else f"{outcome.work.unit}/s"
        return ("", "version", figure, "heed is", "of bandwidth", "memory", "same tokens")

    def limits(self, outcome: Outcome) -> str:
        """In words."""
        bandwidth, gemm = outcome.bandwidth / 1e9, outcome.gemm / 1e9
        return f"limits: memory is read at {bandwidth:.1f} GB/s, float32 matrices multiply at {gemm:.0f} GFLOP/s"

    def stamp(self) -> str:
        return ", ".join(f"{name} {value}".strip() for name, value in self.machine.items()) + "."

    def show(self, console: Console) -> None:
        """Tables."""
        from rich.markup import escape
        from rich.table import Table

        console.print(self.stamp(), "", sep="\n", style="dim")
        for outcome in self.outcomes:
            table = Table(title=outcome.work.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
            rows = [row.cells(outcome.work.subject == "load") for row in self.rows(outcome)]
            used = [place for place in range(len(self.headings(outcome))) if any(row[place] for row in rows)]
            for place in used:
                table.add_column(self.headings(outcome)[place], overflow="fold")
            for row in rows:
                table.add_row(*(escape(row[place]) for place in used))
            console.print(table, f"[dim]{escape(self.limits(outcome))}[/]")
            for name, why in outcome.absent.items():
                console.print(f"[dim]{escape(name)}: {escape(why)}[/]")
            console.print()

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {"machine": self.machine, "contests": [self._plain(outcome) for outcome in self.outcomes]}

    def _plain(self, outcome: Outcome) -> dict[str, Any]:
        work = {name: value for name, value in asdict(outcome.work).items() if name != "folder"}
        samples = {told.name: told.seconds for told in outcome.told}
        return {
            "title": outcome.work.title,
            "work": {**work, "unit": outcome.work.unit, "units": outcome.work.units},
            "limits": {"bandwidth": outcome.bandwidth, "gemm": outcome.gemm},
            "contestants": [asdict(row) for row in self.rows(outcome)],
            "samples": samples,
            "absent": outcome.absent,
        }


def machine(threads: int) -> dict[str, str]:
    """What the figures hold for."""
    return {
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "threads": str(threads),
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "heed": __version__,
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }


def _cpu() -> str:
    told = Path("/proc/cpuinfo")
    lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
