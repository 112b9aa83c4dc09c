"""Findings that are accepted: a file that names them by target and bug, so that a line may move without a new alarm."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...core.atomic import replacing
from ...core.errors import HeedError
from .report import Verdict
from .survey import Result

NAME = "heed-baseline.json"
VERSION = 1
UNCHECKED = "unchecked"  # beside the slugs of bugs: that a target cannot be checked is accepted


class BadBaseline(HeedError, ValueError):
    """A baseline that is not there or cannot be read."""


@dataclass(frozen=True)
class Baseline:
    """What is accepted of each target. Targets in files are named as seen from the baseline's folder."""

    path: Path
    accepted: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Baseline:
        try:
            return cls(path, _parsed(json.loads(path.read_text(encoding="utf-8"))))
        except FileNotFoundError:
            raise BadBaseline(f"there is no baseline {path}; --write-baseline makes one of what is found now") from None
        except (OSError, ValueError) as error:
            raise BadBaseline(
                f"{path} is no baseline of heed check: {error}; --write-baseline makes one anew"
            ) from error

    def write(self) -> None:
        told = {target: sorted(slugs) for target, slugs in sorted(self.accepted.items())}
        with replacing(self.path) as part:
            part.write_text(json.dumps({"version": VERSION, "accepted": told}, indent=1) + "\n", encoding="utf-8")

    def key(self, target: str) -> str:
        """A target's name in the file: the same from wherever the command is given."""
        place, colon, name = target.rpartition(":")
        if not colon or not Path(place).exists():
            return self._below(target) if Path(target).exists() else target
        return f"{self._below(place)}:{name}"

    def _below(self, place: str) -> str:
        return Path(os.path.relpath(Path(place).resolve(), self.path.resolve().parent)).as_posix()

    def judged(self, result: Result) -> Result:
        """The same result, where what is accepted does not count."""
        slugs = self.accepted.get(self.key(result.target), frozenset())
        there = [] if result.report is None else [one.bug.slug for one in result.report.likely]
        known = UNCHECKED in slugs and result.verdict is Verdict.UNCHECKED
        return replace(result.with_(accepted=[slug for slug in there if slug in slugs]), known=known)

    def stale(self, results: Sequence[Result], places: Iterable[str]) -> list[tuple[str, str]]:
        """Entries that nothing corresponds to any more, among the targets and places that were looked at."""
        now = {self.key(result.target): result for result in results}
        roots = [self.key(place) for place in places]
        return [
            (target, slug)
            for target, slugs in sorted(self.accepted.items())
            if target in now or any(_within(target, root) for root in roots)
            for slug in sorted(slugs)
            if target not in now or _gone(slug, now[target])
        ]

    def updated(self, results: Sequence[Result], places: Iterable[str]) -> Baseline:
        """One that accepts what was found now; of targets that were not looked at it says what it said."""
        gone = set(self.stale(results, places))
        kept = {target: {s for s in slugs if (target, s) not in gone} for target, slugs in self.accepted.items()}
        for result in results:
            slugs = kept.setdefault(self.key(result.target), set())
            slugs |= {*result.slugs, *([UNCHECKED] if result.verdict is Verdict.UNCHECKED else ())}
        return Baseline(self.path, {target: frozenset(slugs) for target, slugs in kept.items() if slugs})


def _gone(slug: str, result: Result) -> bool:
    """Whether a result no longer has what was accepted; of what could not be checked nobody knows."""
    if result.verdict is Verdict.UNCHECKED:
        return False
    return result.report is None or slug not in {one.bug.slug for one in result.report.likely}


def _within(target: str, root: str) -> bool:
    """Whether a target lies in a file, a folder, a module or a package."""
    place = target.rpartition(":")[0] or target
    return root in {".", place} or place.startswith((f"{root}/", f"{root}."))


def _parsed(data: Any) -> dict[str, frozenset[str]]:
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise ValueError(f'it has no "version": {VERSION}')
    accepted = data.get("accepted")
    if not isinstance(accepted, dict) or not all(
        isinstance(slugs, list) and all(isinstance(slug, str) for slug in slugs) for slugs in accepted.values()
    ):
        raise ValueError('its "accepted" is no table of targets with lists of bugs')
    return {target: frozenset(slugs) for target, slugs in accepted.items()}
