"""Wrong code in strangers' styles, and what it takes to check a piece of it, mend it and check it again.

A piece begins with a line `# === what is wrong | Target | slug | {"declared": ...}`. A slug that begins with `!` is
handed in: what is known of the bug today is not enough to name it in this style.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heed.check import Declared, Report, check
from heed.check.bugs import BUGS
from heed.check.diagnose import Diagnosis
from heed.check.foreign.target import locate
from heed.check.outcome import Sure
from heed.check.probes import PROBES
from heed.check.reports.report import Fix
from heed.check.run import quiet, subjected
from heed.check.source.find import fixes


@dataclass(frozen=True)
class Snippet:
    """A piece of wrong code."""

    name: str
    target: str
    slug: str
    known: dict[str, Any]
    text: str
    handed: bool  # whether the bug is told to the rules instead of being found

    def report(self, file: Path, text: str) -> Report:
        """What is found in it, or in it mended."""
        file.write_text(text, encoding="utf-8")
        return check(f"{file}:{self.target}", **self.known)

    def fix(self, file: Path, report: Report) -> Fix | None:
        """What to change."""
        return self._handed(f"{file}:{self.target}") if self.handed else report.fixes.get(self.slug)

    def _handed(self, target: str) -> Fix | None:
        bug, found = BUGS[self.slug], locate(target).found
        known = dict(self.known)
        init = known.pop("init", None)

        def again(other: Any, probes: Sequence[str]) -> Report:
            only = probes if set(probes) <= {probe.name for probe in PROBES} else ()
            return check(other, init=init, only=only, **known)

        one = Diagnosis(bug, Sure.LIKELY, ("handed in",), bug.probes)
        with quiet():
            subject = subjected(found, found.__name__, init, None, Declared(**known), 0)
            report = replace(again(found, ()), likely=[one])
            return fixes(found, report, subject, again).fixes.get(self.slug)


def snippets(folder: Path) -> Iterator[Snippet]:
    """All pieces in the text files of a folder."""
    for file in sorted(folder.glob("*.txt")):
        for block in re.split(r"(?m)^# === ", file.read_text(encoding="utf-8"))[1:]:
            head, _, text = block.partition("\n")
            name, target, slug, *known = (part.strip() for part in head.split("|"))
            declared = json.loads(known[0]) if known else {}
            yield Snippet(name, target, slug.lstrip("!"), declared, text, slug.startswith("!"))
