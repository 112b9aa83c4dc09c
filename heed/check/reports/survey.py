"""Several targets: how each came out, and what all of it comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .report import Report, Verdict

FINE, WRONG, UNCHECKED = 0, 1, 2  # exit codes


@dataclass(frozen=True)
class Result:
    """How one target came out: a report, or why there is none."""

    target: str
    report: Report | None = None
    problem: str = ""  # why it could not be checked, and what to do
    seconds: float = 0.0
    place: tuple[str, int] | None = None  # where it was found by reading
    known: bool = False  # a baseline knows that it cannot be checked
    traceback: str = ""  # of an exception in heed itself

    @classmethod
    def of(cls, report: Report) -> Result:
        return cls(report.target, report, seconds=report.seconds, place=report.place)

    @property
    def verdict(self) -> Verdict:
        return Verdict.UNCHECKED if self.report is None else self.report.verdict

    @property
    def slugs(self) -> list[str]:
        """The names of its bugs."""
        return [] if self.report is None else self.report.slugs

    @property
    def accepted(self) -> list[str]:
        """What a baseline knows of."""
        return [] if self.report is None else list(self.report.accepted)

    @property
    def reason(self) -> str:
        """Why it could not be checked, if so."""
        if self.verdict is not Verdict.UNCHECKED:
            return ""
        if self.report is None:
            return self.problem
        return "; ".join(("no probe applied", *self.report.unchecked))

    @property
    def code(self) -> int:
        """The exit code: 0 if nothing is wrong but what a baseline knows of, 1 if something is, 2 if not checked."""
        if self.verdict is Verdict.UNCHECKED:
            return FINE if self.known else UNCHECKED
        return WRONG if self.verdict is Verdict.WRONG else FINE

    def with_(self, *, strict: bool | None = None, accepted: Sequence[str] = ()) -> Result:
        """The same, judged otherwise."""
        if self.report is None:
            return self
        return replace(
            self,
            report=replace(
                self.report, strict=self.report.strict if strict is None else strict, accepted=tuple(accepted)
            ),
        )

    def as_data(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        if self.report is not None:
            return {**self.report.as_data(), "problem": self.reason or None, "known": self.known}
        return {
            "target": self.target,
            "verdict": str(self.verdict),
            "ok": False,
            "problem": self.problem,
            "known": self.known,
            "seconds": round(self.seconds, 3),
            "place": None if self.place is None else {"file": self.place[0], "line": self.place[1]},
            "likely": [],
        }


@dataclass(frozen=True)
class Survey:
    """Everything that was found in a tree, or in several targets."""

    results: Sequence[Result]
    seconds: float = 0.0
    notes: Sequence[str] = ()  # what was left out, and why
    stale: Sequence[tuple[str, str]] = ()  # target and slug: what a baseline accepts, and is no longer there
    left: int = 0  # targets that were not reached: it was interrupted

    @property
    def code(self) -> int:
        """The exit code of all: what is wrong comes first; where nothing was asked, nothing is cleared."""
        codes = {result.code for result in self.results} or {UNCHECKED}
        return WRONG if WRONG in codes else max(codes)

    def count(self, verdict: Verdict) -> int:
        return sum(result.verdict is verdict for result in self.results)

    def as_data(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "ok": self.code == FINE,
            "seconds": round(self.seconds, 3),
            "verdicts": {str(verdict): self.count(verdict) for verdict in Verdict},
            "results": [result.as_data() for result in self.results],
            "notes": list(self.notes),
            "stale": [{"target": target, "slug": slug} for target, slug in self.stale],
            "left": self.left,
        }
