"""What came of the demo, for machines and for the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..show.heatmap import Figure
from ..tasks import Metrics
from ..verify import Proof
from .examples import Sample


@dataclass(frozen=True)
class Goal:
    """How many answers in a hundred must be exactly right on a split, and what the split asks."""

    split: str
    exact: float
    asks: str


GOALS = (
    Goal("valid", 99.0, "new dates in formats of training"),
    Goal("test", 90.0, "new dates in formats kept out of training"),
)

SHORT = 12  # characters; a date takes 10, what is not learnt yet may be endless


@dataclass(frozen=True)
class Reading:
    """What the model made of a sample."""

    sample: Sample
    read: str

    @property
    def right(self) -> bool:
        return self.read == self.sample.wanted

    @property
    def short(self) -> str:
        """The answer, cut where no date is that long."""
        return self.read if len(self.read) <= SHORT else f"{self.read[:SHORT]}…"

    @property
    def words(self) -> str:
        """In one line."""
        return f"{self.sample.language}: {self.sample.text} → {self.short}"


@dataclass(frozen=True)
class Report:
    """All that the demo found."""

    run: Path
    picture: Path
    weights: int  # numbers in the model
    steps: int
    metrics: Mapping[str, Metrics]  # by split
    readings: tuple[Reading, ...]
    aligned: Reading  # the one whose alignment is shown
    alignment: Figure
    proofs: tuple[Proof, ...]
    seconds: Mapping[str, float]  # by what they were spent on

    def exact(self, split: str) -> float:
        """Answers in a hundred that are exactly right."""
        return float(self.metrics[split]["exact"])

    @property
    def missed(self) -> list[str]:
        """What is not as it should be, in words."""
        below = [
            f"{self.exact(goal.split):.1f} % of {goal.split} are right, the goal is {goal.exact:.0f} %"
            for goal in GOALS
            if not self.exact(goal.split) >= goal.exact
        ]
        return below + [f"{proof.statement} does not hold: {proof.worst}" for proof in self.proofs if not proof.holds]

    @property
    def holds(self) -> bool:
        """Whether every goal is reached and every statement holds."""
        return not self.missed

    @property
    def commands(self) -> tuple[tuple[str, str], ...]:
        """What to try next, and what it does."""
        run = shlex.quote(str(self.run))
        return (
            (f'heed run {run} "3 mai 2024"', "read a date of yours"),
            (f"heed eval {run} --beam 4", "evaluate it once more, with a beam search"),
            (f"heed train --resume {run} --set training.steps={2 * self.steps}", "train it twice as long"),
            (f"heed verify {run}", "prove it once more"),
            (f"python -m webbrowser {shlex.quote(self.picture.resolve().as_uri())}", "see where each head looks"),
        )

    def plain(self) -> dict[str, Any]:
        """For machines."""
        aligned = {"rows": self.alignment.rows, "columns": self.alignment.columns, "weights": self.alignment.weights}
        return {
            "holds": self.holds,
            "missed": self.missed,
            "run": str(self.run),
            "picture": str(self.picture),
            "weights": self.weights,
            "steps": self.steps,
            "seconds": {name: round(value, 1) for name, value in self.seconds.items()},
            "goals": {goal.split: goal.exact for goal in GOALS},
            "metrics": {name: dict(found) for name, found in self.metrics.items()},
            "examples": [{**asdict(one.sample), "read": one.read, "right": one.right} for one in self.readings],
            "alignment": {"text": self.aligned.sample.text, "read": self.aligned.read, **aligned},
            "proofs": [proof.plain() for proof in self.proofs],
            "commands": [command for command, _ in self.commands],
        }
