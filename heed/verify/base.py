"""What a proof is, how one is tried, and how many of them are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import inf, isfinite
from typing import Any, Self, TypeAlias

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..core.laws import Finding
from ..kernels import described


@dataclass(frozen=True)
class Proof:
    """What was shown about a subject: over how many samples, how far off the worst one was, and which one that was.

    A statement that could not be tried, for want of what it is about, says what is missing: it does not hold, and it
    has not failed either.
    """

    subject: str
    statement: str
    samples: int
    error: float
    bound: float
    worst: str
    missing: str = ""

    @classmethod
    def without(cls, subject: str, statement: str, missing: str) -> Self:
        """What could not be tried."""
        return cls(subject, statement, 0, inf, 0.0, "", missing)

    @property
    def holds(self) -> bool:
        return self.error <= self.bound  # NaN does not hold

    @property
    def fails(self) -> bool:
        return not self.holds and not self.missing

    def plain(self) -> dict[str, Any]:
        """For machines. JSON has no infinity: an error that is no number is null."""
        return {**asdict(self), "error": self.error if isfinite(self.error) else None, "holds": self.holds}


Check: TypeAlias = "Callable[[], Proof]"


def compared(name: str, statement: str, compare: Callable[[], list[Finding]]) -> Check:
    """The proof of a statement that is found out on one sample or on several."""

    def check() -> Proof:
        with one_thread():
            found = compare()
        if not found:
            return Proof.without(name, statement, "there is no sample to try it on")
        worst = max(found, key=lambda finding: (not finding.holds, finding.error))
        return Proof(name, statement, len(found), worst.error, worst.bound, worst.detail)

    return check


@contextmanager
def one_thread() -> Iterator[None]:
    """The samples are tiny: a second thread would only wait for the first."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def show(shown: Sequence[Proof], console: Console) -> None:
    """All of them in a table, the failed ones once more in words, and the verdict."""
    table = Table(box=None, pad_edge=False)
    for heading in ("", "subject", "statement", "samples", "worst", "bound"):
        number = heading in ("samples", "worst", "bound")
        table.add_column(heading, justify="right" if number else "left", no_wrap=number)
    for proof in shown:
        mark = "[green]✓[/]" if proof.holds else "[bold red]✗[/]" if proof.fails else "[yellow]?[/]"
        numbers = (str(proof.samples), f"{proof.error:.1e}", f"{proof.bound:.0e}")
        table.add_row(mark, escape(proof.subject), proof.statement, *(("", "", "") if proof.missing else numbers))
    console.print(table)
    for proof in shown:
        if not proof.holds:
            colour, words = ("bold red", proof.worst) if proof.fails else ("yellow", f"not proven: {proof.missing}")
            console.print(f"[{colour}]{escape(proof.subject)}, {proof.statement}:[/] ", end="")
            console.print(words, markup=False, highlight=False, soft_wrap=True)
    if any(proof.subject == "kernels" for proof in shown):
        console.print(f"kernels: {described()}", markup=False, highlight=False, soft_wrap=True)
    console.print(_verdict(shown))


def _verdict(shown: Sequence[Proof]) -> str:
    failed, missing = (sum(map(bool, each)) for each in zip(*((p.fails, p.missing) for p in shown), strict=True))
    words = f"{sum(proof.holds for proof in shown)} of {len(shown)} statements hold"
    words += f", {missing} could not be tried" if missing else ""
    return f"[{'bold red' if failed else 'yellow' if missing else 'bold green'}]{words}[/]"
