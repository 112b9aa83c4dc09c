"""The report for machines: JSON for programs, JUnit for test runners."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from ...core.atomic import replacing
from ..outcome import Status
from .render import said, text
from .report import Report, Verdict, nearby
from .survey import Result, Survey


def as_json(found: Report | Result | Survey) -> str:
    """Everything, as JSON that every reader takes: what is not a number is null."""
    return json.dumps(_finite(found.as_data()), indent=1, ensure_ascii=False, allow_nan=False)


def _finite(data: Any) -> Any:
    if isinstance(data, Mapping):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not isfinite(data) else data


def write(path: Path, text: str) -> None:
    """A file that is there whole or not at all."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def junit(report: Report) -> str:
    """One test case for every probe; what does not apply is skipped, with the reason."""
    failed = [o for o in report.outcomes if o.status is Status.FAIL]
    moot = [o for o in report.outcomes if o.status is Status.NONE]
    suite = _suite(f"heed check {report.target}", len(report.outcomes), report.seconds)
    suite.set("failures", str(len(failed)))
    suite.set("skipped", str(len(moot)))
    for outcome in report.outcomes:
        case = ET.SubElement(suite, "testcase", classname=report.target, name=outcome.probe)
        if outcome.status is Status.NONE:
            ET.SubElement(case, "skipped", message=_plain(outcome.words))
        elif outcome.status is Status.FAIL:
            slugs = ", ".join(one.bug.slug for one in report.wrong if outcome.probe in one.probes)
            words = _plain(outcome.words)
            ET.SubElement(case, "failure", message=words, type=slugs or "violation").text = words
    return _written(suite)


def junit_of(survey: Survey) -> str:
    """One test case for every target: wrong is a failure, not checked an error, unless a baseline knows of it."""
    suite = _suite("heed check", len(survey.results), survey.seconds)
    suite.set("failures", str(sum(result.verdict is Verdict.WRONG for result in survey.results)))
    suite.set("errors", str(sum(_in_error(result) for result in survey.results)))
    suite.set("skipped", str(sum(result.known for result in survey.results)))
    for result in survey.results:
        place, _, name = result.target.rpartition(":")
        case = ET.SubElement(
            suite, "testcase", classname=place or result.target, name=name, time=f"{result.seconds:.3f}"
        )
        if result.place is not None:
            case.set("file", nearby(result.place[0]))
            case.set("line", str(result.place[1]))
        if _in_error(result):
            ET.SubElement(case, "error", message=_plain(result.reason), type="unchecked").text = _plain(result.reason)
        elif result.known:
            ET.SubElement(case, "skipped", message=_plain(result.reason))
        elif result.report is not None and result.verdict is Verdict.WRONG:
            wrong = ET.SubElement(case, "failure", message=said(result), type=", ".join(result.slugs))
            wrong.text = _plain(text(result.report))
        elif result.report is not None and result.report.likely:
            ET.SubElement(case, "system-out").text = said(result)
    return _written(suite)


def _in_error(result: Result) -> bool:
    return result.verdict is Verdict.UNCHECKED and not result.known


def _suite(name: str, tests: int, seconds: float) -> ET.Element:
    return ET.Element("testsuite", name=name, tests=str(tests), time=f"{seconds:.3f}")


def _written(suite: ET.Element) -> str:
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _plain(words: str) -> str:
    """Without the control characters that strangers' messages may hold, and XML may not."""
    return "".join(sign for sign in words if sign in "\n\t" or sign >= " ")
