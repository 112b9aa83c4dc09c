"""What was found: rows with a target and a verdict, and the machine they hold for, as table, Markdown or JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Figure, ratio, written

HEADINGS = ("what", "heed", "peer", "ratio", "target", "")
BLUR = 1.3  # an interval that reaches farther, on both sides of the target, decides nothing
STYLES = {"met": "green", "unclear": "yellow", "within noise": "yellow", "missed": "bold red", "": "dim"}


@dataclass(frozen=True)
class Target:
    """At most `limit`, or at least if it is a `floor`: of the ratio to the peer, or of heed's own figure."""

    limit: float
    of: Literal["ratio", "heed"] = "ratio"
    floor: bool = False

    def kept(self, value: float) -> bool:
        return value >= self.limit if self.floor else value <= self.limit

    def __str__(self) -> str:
        return "≥" if self.floor else "≤"


@dataclass(frozen=True)
class Row:
    """One comparison. Without a target it is information."""

    what: str
    heed: Figure
    peer: Figure | None = None
    ratio: Figure | None = None
    target: Target | None = None

    @property
    def aimed(self) -> Figure | None:
        """The figure that the target is about."""
        if self.target is None:
            return None
        return self.ratio if self.target.of == "ratio" else self.heed

    @property
    def verdict(self) -> str:
        """Met, missed, missed by less than the measurement can tell; or the machine was too busy to tell anything."""
        if self.target is None or self.aimed is None:
            return ""
        if self.aimed.low <= self.target.limit <= self.aimed.high and self.aimed.high > BLUR * self.aimed.low:
            return "unclear"
        if self.target.kept(self.aimed.middle):
            return "met"
        best = self.aimed.high if self.target.floor else self.aimed.low
        return "within noise" if self.target.kept(best) else "missed"

    def cells(self) -> tuple[str, ...]:
        """As text, under HEADINGS."""
        target = ""
        if self.target is not None and self.aimed is not None:
            target = f"{self.target} {written(self.target.limit, self.aimed.unit)}"
        optional = ("" if figure is None else str(figure) for figure in (self.peer, self.ratio))
        return (self.what, str(self.heed), *optional, target, self.verdict)

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "verdict": self.verdict}


def compared(what: str, mine: Sequence[float], peer: Sequence[float], target: Target | None = None) -> Row:
    """The row of two runners of one race."""
    return Row(what, Figure.of(mine), Figure.of(peer), ratio(mine, peer), target)


@dataclass(frozen=True)
class Report:
    """All rows, by subject."""

    subjects: dict[str, Sequence[Row]]
    machine: dict[str, str]

    def show(self, console: Console) -> None:
        """A table per subject."""
        console.print(self._stamp(), "", sep="\n", style="dim")
        for subject, rows in self.subjects.items():
            table = Table(title=subject, title_justify="left", title_style="bold", box=None, pad_edge=False)
            for heading in HEADINGS:
                table.add_column(heading, overflow="fold")
            for row in rows:
                *cells, verdict = row.cells()
                table.add_row(*cells, f"[{STYLES[verdict]}]{verdict}[/]" if verdict else "")
            console.print(table, "")

    def markdown(self) -> str:
        """The results section of README.md."""
        lines = [self._stamp(), ""]
        for subject, rows in self.subjects.items():
            lines += [f"### {subject}", "", _line(HEADINGS), _line(("---",) * len(HEADINGS))]
            lines += [_line(row.cells()) for row in rows]
            lines.append("")
        return "\n".join(lines)

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        rows = [{"subject": subject, **row.plain()} for subject, rows in self.subjects.items() for row in rows]
        return {"machine": self.machine, "rows": rows}

    def _stamp(self) -> str:
        return ", ".join(f"{name} {value}".strip() for name, value in self.machine.items()) + "."


def machine() -> dict[str, str]:
    """What the figures hold for."""
    import torch

    import heed

    return {
        "cpu": _cpu(),
        "cores": str(len(os.sched_getaffinity(0))),
        "threads": str(torch.get_num_threads()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "heed": heed.__version__,
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
