"""The report for code scanning: SARIF 2.1.0, with paths as seen from the root of the repository."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from ... import __version__
from ..bugs import BUGS
from ..diagnose import Diagnosis
from ..foreign.load.text import CELL
from .report import Report, Verdict, nearby
from .survey import Result

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"


def sarif(results: Sequence[Result], root: Path | None = None) -> str:
    """One run, with a result for every likely bug of every target."""
    root = root or repository(Path.cwd())
    reports = [result.report for result in results if result.report is not None]
    found = [(report, one) for report in reports for one in report.likely]
    slugs = sorted({one.bug.slug for _, one in found})
    run = {
        "tool": {"driver": {"name": "heed check", "version": __version__, "rules": [_rule(slug) for slug in slugs]}},
        "originalUriBaseIds": {ROOT: {"uri": f"{root.resolve().as_uri()}/"}},
        "invocations": [
            {
                "executionSuccessful": not any(_missed(result) for result in results),
                "toolExecutionNotifications": [_notification(result, root) for result in results if _missed(result)],
            }
        ],
        "results": [_result(report, one, slugs.index(one.bug.slug), root) for report, one in found],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def repository(folder: Path) -> Path:
    """The root of the repository that holds a folder; the folder itself if none does."""
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)


def _rule(slug: str) -> dict[str, Any]:
    bug = BUGS[slug]
    return {
        "id": slug,
        "shortDescription": {"text": bug.says},
        "help": {"text": f"{bug.fix}\n\nwrong:  {bug.before}\nright:  {bug.after}"},
    }


def _result(report: Report, one: Diagnosis, rule: int, root: Path) -> dict[str, Any]:
    slug, fix = one.bug.slug, report.fixes.get(one.bug.slug)
    words = f"{report.target}: {one.bug.says} Seen: {'; '.join(one.evidence)}"
    words += "".join(f"\nOr {other}" for other in one.instead)
    if fix is not None:
        words += f"\nFix: {fix.words}\n- {fix.before}\n+ {fix.after}"
    result: dict[str, Any] = {
        "ruleId": slug,
        "ruleIndex": rule,
        "level": "error" if one.fails or report.strict else "note",
        "message": {"text": words},
        # Of what stays the same when lines move, so that an alarm is known again.
        "partialFingerprints": {"heedTargetAndBug/v1": sha256(f"{_name(report, root)} {slug}".encode()).hexdigest()},
    }
    spot = report.spot(slug)
    if spot is not None:
        result["locations"] = [_location((spot.file, spot.line), root)]
    if slug in report.accepted:
        result["suppressions"] = [{"kind": "external", "justification": "accepted by the baseline"}]
    return result


def _name(report: Report, root: Path) -> str:
    place, _, name = report.target.rpartition(":")
    return f"{nearby(place, root)}:{name}" if place else name


def _location(place: tuple[str, int], root: Path) -> dict[str, Any]:
    file, line = place
    seen = nearby(file.partition(CELL)[0], root)
    artifact: dict[str, Any] = {"uri": seen, "uriBaseId": ROOT}
    if Path(seen).is_absolute():  # elsewhere, such as an installed package
        artifact = {"uri": Path(seen).as_uri()}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": max(1, line)}}}


def _missed(result: Result) -> bool:
    return result.verdict is Verdict.UNCHECKED and not result.known


def _notification(result: Result, root: Path) -> dict[str, Any]:
    told: dict[str, Any] = {"level": "warning", "message": {"text": f"{result.target}: {result.reason}"}}
    if result.place is not None and result.place[0]:
        told["locations"] = [_location(result.place, root)]
    return told
