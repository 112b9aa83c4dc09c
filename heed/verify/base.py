"""What a proof is, how one is tried, and how many of them are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import inf, isfinite, isnan
from typing import Any, Self, TypeAlias

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..core.errors import HeedError
from ..core.laws import Finding, within
from ..kernels import described


@dataclass(frozen=True)
class Proof:
    """What was shown about a subject: over how many samples, how far off the worst one was, and which one that was.

    A statement that could not be tried, for want of what it is about, says what is missing: it does not hold, and it
    has not failed either. One that is not about this subject is left out, which is said, and counts for nothing.
    """

    subject: str
    statement: str
    samples: int
    error: float
    bound: float
    worst: str
    missing: str = ""
    left_out: str = ""

    @classmethod
    def without(cls, subject: str, statement: str, missing: str) -> Self:
        """What could not be tried."""
        return cls(subject, statement, 0, inf, 0.0, "", missing)

    @classmethod
    def beside(cls, subject: str, statement: str, why: str) -> Self:
        """What is not about this subject."""
        return cls(subject, statement, 0, inf, 0.0, "", left_out=why)

    @classmethod
    def of(cls, subject: str, statement: str, found: Sequence[Finding]) -> Self:
        """The worst finding. What was tried on nothing has shown nothing, and fails."""
        if not found:
            return cls(subject, statement, 0, inf, 0.0, "there is no sample to try it on")
        worst = max(found, key=lambda finding: (not finding.holds, inf if isnan(finding.error) else finding.error))
        return cls(subject, statement, len(found), worst.error, worst.bound, worst.detail)

    @property
    def holds(self) -> bool:
        return within(self.error, self.bound)

    @property
    def fails(self) -> bool:
        return not self.holds and not self.missing and not self.left_out

    def plain(self) -> dict[str, Any]:
        """For machines. JSON has no infinity: an error or a bound that is no number is null."""
        numbers = {name: n if isfinite(n) else None for name, n in (("error", self.error), ("bound", self.bound))}
        return {**asdict(self), **numbers, "holds": self.holds}


Check: TypeAlias = "Callable[[], Proof]"


def compared(name: str, statement: str, compare: Callable[[], list[Finding]]) -> Check:
    """The proof of a statement that is found out on one sample or on several."""

    def check() -> Proof:
        with one_thread():
            return Proof.of(name, statement, attempted(statement, compare))

    return check


def attempted(statement: str, compare: Callable[[], list[Finding]]) -> list[Finding]:
    """What is found out. What is tried may raise anything: that is a finding too."""
    try:
        return compare()
    except Exception as error:
        raised = "" if isinstance(error, HeedError) else f"raised {type(error).__name__}: "
        return [Finding(statement, inf, 0.0, f"{raised}{error}")]


def largest(errors: Iterable[float]) -> float:
    """The largest of several errors: infinite if one of them is no number, which `max` may pass over, or if none is."""
    return max((inf if isnan(error) else error for error in errors), default=inf)


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
        mark = "–" if proof.left_out else mark
        numbers = (str(proof.samples), f"{proof.error:.1e}", f"{proof.bound:.0e}")
        table.add_row(
            mark, escape(proof.subject), proof.statement, *(numbers if proof.samples or proof.fails else ("", "", ""))
        )
    console.print(table)
    for proof in shown:
        if proof.left_out:
            console.print(f"{escape(proof.subject)}, {proof.statement}: left out, {proof.left_out}", soft_wrap=True)
        elif not proof.holds:
            colour, words = ("bold red", proof.worst) if proof.fails else ("yellow", f"not proven: {proof.missing}")
            console.print(f"[{colour}]{escape(proof.subject)}, {proof.statement}:[/] ", end="")
            console.print(words, markup=False, highlight=False, soft_wrap=True)
    if any(proof.subject == "kernels" for proof in shown):
        console.print(f"kernels: {described()}", markup=False, highlight=False, soft_wrap=True)
    console.print(_verdict(shown))


def _verdict(shown: Sequence[Proof]) -> str:
    failed, missing, beside = (
        sum(map(bool, each)) for each in zip(*((p.fails, p.missing, p.left_out) for p in shown), strict=True)
    )
    words = f"{sum(proof.holds for proof in shown)} of {len(shown) - beside} statements hold"
    words += f", {missing} could not be tried" if missing else ""
    words += f", {beside} left out" if beside else ""
    return f"[{'bold red' if failed else 'yellow' if missing else 'bold green'}]{words}[/]"
