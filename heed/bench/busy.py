"""heed bench busy: training and decoding beside processes that compute for nothing, and under quotas of CPU time.

Every contestant has the threads and the waiting that it has by itself: heed and its peers as a user starts them, and
for comparison with one thread or with `OMP_WAIT_POLICY=PASSIVE`. All take turns in every condition. A turn lasts a
while, or as long as one call does, after a moment that is not counted: whoever follows the machine meets another one
than in its last turn. Told are units per second and the cores that were received meanwhile.
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..threads.waiting import POLICY
from .base import Contestant
from .contest import REST, SPINNING, Failed, Process
from .crowd import Condition, crowd, limited
from .ours import Heed
from .peers.llamacpp import LlamaCpp
from .peers.torch import Torch
from .peers.transformers import Transformers
from .report import machine
from .shapes import configured, write
from .work import Work

if TYPE_CHECKING:
    from rich.console import Console

TURN, SETTLING = 3.0, 1.0  # seconds that are counted, and those before them
CONDITIONS = (*(Condition(others) for others in (0, 1, 2, 4)), Condition(quota=0.5), Condition(quota=1.0))
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}
Say = Callable[[str], None]


@dataclass(frozen=True)
class Entrant:
    """A contestant, started in a certain way."""

    name: str
    contestant: Contestant
    waits: Mapping[str, str]
    threads: int | None = None


ENTRANTS = {
    "train": (
        Entrant("heed", Heed(), POLICY),
        Entrant("heed-one-thread", Heed(), POLICY, 1),
        Entrant("heed-spinning", Heed(), SPINNING),
        Entrant("torch", Torch(), SPINNING),
        Entrant("torch-passive", Torch(), PASSIVE),
        Entrant("transformers", Transformers(), SPINNING),
    ),
    "decode": (
        Entrant("heed", Heed(), POLICY),
        Entrant("heed-one-thread", Heed(), POLICY, 1),
        Entrant("llama.cpp", LlamaCpp(), SPINNING),
        Entrant("transformers", Transformers(), SPINNING),
    ),
}

OURS = ("heed", "heed-one-thread")
USUAL = (
    *OURS,
    "heed-spinning",
    "torch",
    "torch-passive",
    "llama.cpp",
)  # transformers takes minutes more when it is busy


@dataclass
class Cell:
    """One entrant under one condition, turn by turn."""

    rates: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def received(self) -> float:
        return statistics.median(self.cores)


@dataclass
class Table:
    """What came of one kind of work: cells by entrant and condition."""

    work: Work
    cells: dict[str, dict[str, Cell]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    quotas: str = ""  # what they were made with

    def ratio(self, above: str, below: str, condition: Condition) -> float | None:
        """How many times as fast one entrant is, by the median over turns."""
        one, other = (self.cells.get(name, {}).get(condition.title) for name in (above, below))
        if one is None or other is None:
            return None
        return statistics.median(a / b for a, b in zip(one.rates, other.rates, strict=False))

    def fair(self, name: str, condition: Condition) -> float | None:
        """What is got out of a core that is received, by what is got out of it on an idle machine."""
        held = self.cells.get(name, {})
        now, idle = held.get(condition.title), held.get(Condition().title)
        return None if now is None or idle is None else now.rate / now.received / (idle.rate / idle.received)


def works(threads: int) -> tuple[Work, ...]:
    """The usual ones."""
    return (
        Work("train", "small", "fp32", 32, 32, threads=threads),
        Work("decode", "gpt2", "int8", 1, 32, 32, threads=threads),
    )


def measure(work: Work, names: Sequence[str] | None, rounds: int, say: Say) -> Table:
    """All conditions; `names` of entrants, None: the usual ones."""
    table = Table(work)
    chosen = []
    for entrant in ENTRANTS[work.subject]:
        if entrant.name not in (USUAL if names is None else names):
            continue
        if not entrant.contestant.installed:
            table.absent[entrant.name] = f"not installed: pip install {entrant.contestant.distribution}"
            continue
        chosen.append(entrant)
        table.cells[entrant.name] = {}
    with TemporaryDirectory(prefix="heed-bench-") as room:
        folder = Path(room, "checkpoint")
        trained = work.subject == "train"
        write(configured(work.model, trained=trained), folder, weighs=not trained)
        placed = replace(work, folder=str(folder))
        with ExitStack() as held:
            processes = {entrant.name: _started(entrant, placed, held, table, say) for entrant in chosen}
            for condition in (one for one in CONDITIONS if one.quota is None):
                with crowd(condition.others):
                    _turns(table, condition, processes, rounds, say)
        for condition in (one for one in CONDITIONS if one.quota is not None):
            _under(condition, chosen, placed, table, rounds, say)
    return table


def _under(condition: Condition, chosen: Sequence[Entrant], work: Work, table: Table, rounds: int, say: Say) -> None:
    """Under a quota processes begin there, as in a container, and each has the quota for itself."""
    assert condition.quota is not None
    for entrant in chosen:
        if entrant.name in table.absent:
            continue
        with limited(condition.quota) as (how, join), ExitStack() as held:
            table.quotas = how
            process = _started(entrant, work, held, table, say, join)
            _turns(table, condition, {entrant.name: process}, rounds, say)


def _started(
    entrant: Entrant,
    work: Work,
    held: ExitStack,
    table: Table,
    say: Say,
    join: Callable[[int], None] = lambda pid: None,
) -> Process | None:
    """Its process, ready; None if it could not do the work."""
    say(f"{work.title}: {entrant.name} gets ready")
    command = [sys.executable, "-m", "heed.bench.worker", entrant.contestant.name, work.subject, work.dump()]
    process = Process(command, entrant.threads, entrant.waits)
    held.callback(process.end)
    try:
        join(process.pid)
        process.hear()
    except (Failed, OSError) as failure:
        table.absent[entrant.name] = f"could not do it: {failure}"
        return None
    return process


def _turns(table: Table, condition: Condition, processes: Mapping[str, Process | None], rounds: int, say: Say) -> None:
    order = random.Random(0)
    for number in range(rounds):
        say(f"{table.work.title}, {condition.title}: turn {number + 1} of {rounds}")
        for name in order.sample([*processes], len(processes)):
            process = processes[name]
            if process is None or name in table.absent:
                continue
            time.sleep(REST)
            try:
                told = process.go(TURN, SETTLING)
            except Failed as failure:
                table.absent[name] = f"could not do it: {failure}"
                continue
            cell = table.cells[name].setdefault(condition.title, Cell())
            cell.rates.append(told["rate"])
            cell.cores.append(told["cores"])


@dataclass(frozen=True)
class BusyReport:
    """Tables for people, and the same as JSON."""

    tables: Sequence[Table]
    machine: dict[str, str]

    @classmethod
    def taken(
        cls, names: Sequence[str] | None, rounds: int, threads: int, say: Say, model: str | None = None
    ) -> BusyReport:
        """Both kinds of work, or that of this model; the load is what was met, before anything was added."""
        found = machine(threads)
        chosen = [work for work in works(threads) if model in {None, work.model}]
        return cls([measure(work, names, rounds, say) for work in chosen], found)

    def show(self, console: Console) -> None:
        from rich.table import Table as Drawn

        console.print(", ".join(f"{name} {value}" for name, value in self.machine.items()), "", sep="\n", style="dim")
        for table in self.tables:
            drawn = Drawn(
                title=f"{table.work.title}: {table.work.unit}/s (cores received)", box=None, title_justify="left"
            )
            drawn.add_column("")
            for condition in CONDITIONS:
                drawn.add_column(condition.title)
            for name, cells in table.cells.items():
                found = (cells.get(condition.title) for condition in CONDITIONS)
                drawn.add_row(name, *("" if c is None else f"{c.rate:,.3g} ({c.received:.2f})" for c in found))
            console.print(drawn)
            for line in _said(table):
                console.print(line)
            for name, why in table.absent.items():
                console.print(f"{name}: {why}", style="dim", markup=False)
            console.print(f"quotas by: {table.quotas}", "", sep="\n", style="dim")

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "machine": self.machine,
            "tables": [
                {
                    "title": table.work.title,
                    "unit": table.work.unit,
                    "quotas": table.quotas,
                    "entrants": {name: _plain(cells) for name, cells in table.cells.items()},
                    "ratios": _ratios(table),
                    "absent": table.absent,
                }
                for table in self.tables
            ],
        }


def _plain(cells: Mapping[str, Cell]) -> dict[str, Any]:
    return {title: {**asdict(cell), "rate": cell.rate, "received": cell.received} for title, cell in cells.items()}


def _ratios(table: Table) -> dict[str, dict[str, float]]:
    """heed by every other entrant, and what it gets out of a core by what it gets idle; by condition."""
    found: dict[str, dict[str, float]] = {}
    for condition in CONDITIONS:
        pairs = {name: table.ratio("heed", name, condition) for name in table.cells if name != "heed"}
        pairs["fair share"] = table.fair("heed", condition)
        found[condition.title] = {name: value for name, value in pairs.items() if value is not None}
    return found


def _said(table: Table) -> list[str]:
    """The ratios in words."""
    return [
        f"  {title}: heed is "
        + ", ".join(f"{value:.2f} × {name}" for name, value in pairs.items() if name != "fair share")
        + f"; of a core {pairs['fair share']:.0%} of idle"
        for title, pairs in _ratios(table).items()
        if "fair share" in pairs
    ]
