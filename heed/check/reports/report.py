"""What was found, as a value: for people (`render.py`), for machines (`as_data`), for CI (`exports.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..diagnose import Diagnosis
from ..outcome import Outcome, Status


@dataclass(frozen=True, repr=False)
class Report:
    """Everything that a check found out about one target."""

    target: str
    kind: str  # what it was taken for: attention, positions, norm ...
    call: str  # how it was built and called, in words
    outcomes: Sequence[Outcome]
    likely: Sequence[Diagnosis]
    conventions: Sequence[tuple[str, str]] = ()  # what may be done in several ways, and how it is done here
    seconds: float = 0.0
    seed: int = 0
    place: tuple[str, int] | None = None  # file and line of the target
    influence: Sequence[Sequence[float]] = ()  # how far output i moves with input j
    expected: Sequence[Sequence[float]] = ()  # 1 where it may move
    swept: Sequence[str] = field(default_factory=tuple)  # other settings that were tried

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    @property
    def wrong(self) -> list[Diagnosis]:
        """Bugs that are probably there; conventions are not among them."""
        return [one for one in self.likely if one.fails]

    @property
    def slugs(self) -> list[str]:
        """Their names."""
        return [one.bug.slug for one in self.wrong]

    @property
    def failed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status is Status.FAIL]

    def __repr__(self) -> str:
        """For people: what an interactive session shows of `heed.check(module)`."""
        from .render import text

        return text(self)

    def as_data(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "target": self.target,
            "kind": self.kind,
            "call": self.call,
            "ok": self.ok,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "probes": [
                {"name": o.probe, "status": str(o.status), "found": o.words, "error": o.error, "bound": o.bound}
                for o in self.outcomes
            ],
            "likely": [_told(one) for one in self.likely],
            "conventions": dict(self.conventions),
            "swept": list(self.swept),
        }


def _told(one: Diagnosis) -> dict[str, Any]:
    bug = one.bug
    return {
        "slug": bug.slug,
        "fails": one.fails,
        "sure": one.sure.name.lower(),
        "says": bug.says,
        "evidence": list(one.evidence),
        "probes": list(one.probes),
        "fix": bug.fix,
        "before": bug.before,
        "after": bug.after,
        "case": bug.case,
    }
