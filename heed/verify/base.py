"""What a proof is, how one is tried, and how many of them are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, TypeAlias

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..core.laws import Finding


@dataclass(frozen=True)
class Proof:
    """What was shown about a subject: over how many samples, how far off the worst one was, and which one that was."""

    subject: str
    statement: str
    samples: int
    error: float
    bound: float
    worst: str

    @property
    def holds(self) -> bool:
        return self.error <= self.bound  # NaN does not hold

    def plain(self) -> dict[str, Any]:
        """For machines. JSON has no infinity: an error that is no number is null."""
        return {**asdict(self), "error": self.error if isfinite(self.error) else None, "holds": self.holds}


Check: TypeAlias = "Callable[[], Proof]"


def compared(name: str, statement: str, compare: Callable[[], list[Finding]]) -> Check:
    """The proof of a statement that is found out on one sample or on several."""

    def check() -> Proof:
        with one_thread():
            found = compare()
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
        mark = "[green]✓[/]" if proof.holds else "[bold red]✗[/]"
        numbers = (str(proof.samples), f"{proof.error:.1e}", f"{proof.bound:.0e}")
        table.add_row(mark, escape(proof.subject), proof.statement, *numbers)
    console.print(table)
    failed = [proof for proof in shown if not proof.holds]
    for proof in failed:
        console.print(f"[bold red]{escape(proof.subject)}, {proof.statement}:[/] ", end="")
        console.print(proof.worst, markup=False, highlight=False, soft_wrap=True)
    verdict = f"{len(shown) - len(failed)} of {len(shown)} statements hold"
    console.print(f"[bold red]{verdict}[/]" if failed else f"[bold green]{verdict}[/]")
