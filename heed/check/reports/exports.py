"""The report for machines: JUnit for test runners, SARIF for code scanning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from ... import __version__
from ...core.atomic import replacing
from ..bugs import BUGS
from ..outcome import Status
from .report import Report

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_json(report: Report) -> str:
    """Everything, as JSON."""
    return json.dumps(report.as_data(), indent=1, ensure_ascii=False)


def write(path: Path, text: str) -> None:
    """A file that is there whole or not at all."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def junit(report: Report) -> str:
    """One test case for every probe; what does not apply is skipped, with the reason."""
    failed = [o for o in report.outcomes if o.status is Status.FAIL]
    moot = [o for o in report.outcomes if o.status is Status.NONE]
    suite = ET.Element(
        "testsuite",
        name=f"heed check {report.target}",
        tests=str(len(report.outcomes)),
        failures=str(len(failed)),
        skipped=str(len(moot)),
        time=f"{report.seconds:.3f}",
    )
    for outcome in report.outcomes:
        case = ET.SubElement(suite, "testcase", classname=report.target, name=outcome.probe)
        if outcome.status is Status.NONE:
            ET.SubElement(case, "skipped", message=outcome.words)
        elif outcome.status is Status.FAIL:
            slugs = ", ".join(one.bug.slug for one in report.wrong if outcome.probe in one.probes)
            ET.SubElement(case, "failure", message=outcome.words, type=slugs or "violation").text = outcome.words
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def sarif(report: Report) -> str:
    """One result for every likely bug, at the place of the target."""
    rules = [
        {
            "id": bug.slug,
            "shortDescription": {"text": bug.says},
            "help": {"text": f"{bug.fix}\n\nwrong:  {bug.before}\nright:  {bug.after}"},
        }
        for bug in BUGS.values()
        if any(one.bug is bug for one in report.likely)
    ]
    run = {
        "tool": {"driver": {"name": "heed check", "version": __version__, "rules": rules}},
        "results": [_result(report, one.bug.slug, one.fails, one.evidence) for one in report.likely],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _result(report: Report, slug: str, fails: bool, evidence: tuple[str, ...]) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": slug,
        "level": "error" if fails else "note",
        "message": {"text": f"{report.target}: {BUGS[slug].says} Seen: {'; '.join(evidence)}"},
    }
    if report.place is not None:
        file, line = report.place
        result["locations"] = [
            {"physicalLocation": {"artifactLocation": {"uri": file}, "region": {"startLine": max(1, line)}}}
        ]
    return result
