"""What was found, as a value: for people (`render.py`), for machines (`as_data`), for CI (`exports.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import takewhile
from pathlib import Path
from typing import Any

from ..bugs import BUGS
from ..diagnose import Diagnosis
from ..foreign.load.text import shown
from ..outcome import Outcome, Status, Sure


class Verdict(StrEnum):
    """What a check comes to, in one line."""

    FINE = "nothing wrong"
    UNUSUAL = "nothing wrong, but unusual"  # conventions that may be meant so; wrong only if the check is strict
    WRONG = "wrong"
    UNCHECKED = "could not be checked"  # no probe applied: this clears nothing


@dataclass(frozen=True)
class Line:
    """A line of the user's own code."""

    file: str
    line: int
    text: str  # as it stands there

    @property
    def words(self) -> str:
        """Where it is, for people."""
        return shown(nearby(self.file), self.line)


@dataclass(frozen=True)
class Fix:
    """What to change in the user's own code: found by reading it, beside running it."""

    file: str
    line: int
    before: str  # the offending expression or line, as it stands there
    after: str  # what should stand in its place
    words: str  # why, in a sentence

    @property
    def spot(self) -> Line:
        """The first line that changes."""
        old, new = self.before.split("\n"), self.after.split("\n")
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
        first = min(same, len(old) - 1)
        return Line(self.file, self.line + first, old[first].strip())


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
    notes: Sequence[str] = ()  # what was guessed or handled to import, build and call it
    unchecked: Sequence[str] = ()  # what was not asked, and why: told before anything is cleared
    fixes: Mapping[str, Fix] = field(default_factory=dict)  # by slug, where the code could be read
    looks: Mapping[str, Line] = field(default_factory=dict)  # by slug, where to look if there is no fix
    strict: bool = False  # unusual is wrong
    accepted: Sequence[str] = ()  # slugs that a baseline knows of: they are told, and are not wrong

    @property
    def verdict(self) -> Verdict:
        """What it comes to."""
        if self.wrong:
            return Verdict.WRONG
        if not self.asked:
            return Verdict.UNCHECKED
        return Verdict.UNUSUAL if any(one.bug.slug not in self.accepted for one in self.likely) else Verdict.FINE

    @property
    def ok(self) -> bool:
        """Whether something was asked and nothing is wrong."""
        return self.verdict in (Verdict.FINE, Verdict.UNUSUAL)

    @property
    def asked(self) -> int:
        """Probes that applied."""
        return sum(outcome.status is not Status.NONE for outcome in self.outcomes)

    @property
    def wrong(self) -> list[Diagnosis]:
        """Bugs that are probably there; conventions are among them only if the check is strict."""
        return [one for one in self.likely if (one.fails or self.strict) and one.bug.slug not in self.accepted]

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
        """Plain data, for JSON: all of it, so that a report can be made of it again."""
        return {
            "target": self.target,
            "kind": str(self.kind),
            "call": self.call,
            "verdict": str(self.verdict),
            "ok": self.ok,
            "strict": self.strict,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "place": None if self.place is None else {"file": self.place[0], "line": self.place[1]},
            "probes": [
                {"name": o.probe, "status": str(o.status), "found": o.words, "error": o.error, "bound": o.bound}
                for o in self.outcomes
            ],
            "likely": [self._told(one) for one in self.likely],
            "unchecked": list(self.unchecked),
            "notes": list(self.notes),
            "conventions": [{"name": name, "value": value} for name, value in self.conventions],
            "swept": list(self.swept),
            "influence": [list(row) for row in self.influence],
            "expected": [list(row) for row in self.expected],
        }

    def spot(self, slug: str) -> Line | None:
        """Where a bug is: the line to change, one to look at, or the target's own."""
        if slug in self.fixes:
            return self.fixes[slug].spot
        own = None if self.place is None or not self.place[0] else Line(*self.place, "")
        return self.looks.get(slug, own)

    def _told(self, one: Diagnosis) -> dict[str, Any]:
        bug, fix = one.bug, self.fixes.get(one.bug.slug)
        return {
            "slug": bug.slug,
            "fails": one.fails,
            "accepted": bug.slug in self.accepted,
            "sure": one.sure.name.lower(),
            "says": bug.says,
            "evidence": list(one.evidence),
            "probes": list(one.probes),
            "instead": list(one.instead),
            "fix": bug.fix,
            "before": bug.before,
            "after": bug.after,
            "case": bug.case,
            "here": None if fix is None else asdict(fix),
            "look": None if bug.slug not in self.looks else asdict(self.looks[bug.slug]),
        }

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> Report:
        """A report of another process. What the probes' clues were is not told: what they came to is."""
        place, likely = data["place"], data["likely"]
        return cls(
            target=data["target"],
            kind=data["kind"],
            call=data["call"],
            outcomes=[
                Outcome(o["name"], Status(o["status"]), o["found"], o["error"], o["bound"]) for o in data["probes"]
            ],
            likely=[_diagnosis(one) for one in likely],
            conventions=[(one["name"], one["value"]) for one in data["conventions"]],
            seconds=data["seconds"],
            seed=data["seed"],
            place=None if place is None else (place["file"], place["line"]),
            influence=data["influence"],
            expected=data["expected"],
            swept=data["swept"],
            notes=data["notes"],
            unchecked=data["unchecked"],
            fixes={one["slug"]: Fix(**one["here"]) for one in likely if one["here"] is not None},
            looks={one["slug"]: Line(**one["look"]) for one in likely if one["look"] is not None},
            strict=data["strict"],
            accepted=[one["slug"] for one in likely if one["accepted"]],
        )


def _diagnosis(one: Mapping[str, Any]) -> Diagnosis:
    evidence, probes, instead = (tuple(one[name]) for name in ("evidence", "probes", "instead"))
    return Diagnosis(BUGS[one["slug"]], Sure[one["sure"].upper()], evidence, probes, instead=instead)


def nearby(file: str, folder: Path | None = None) -> str:
    """A path as it is seen from a folder (the current one) if it lies below it, else as it is."""
    place = Path(file)
    try:
        return place.resolve().relative_to((folder or Path.cwd()).resolve()).as_posix()
    except (ValueError, OSError):
        return place.as_posix()
