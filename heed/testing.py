"""A plugin for pytest: the fixture `heed_check`, and `pytest --heed PATH`: a test for every attention there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .check import Report
    from .check.reports.baseline import Baseline
    from .check.trees.find import Target
    from .check.trees.pool import Worker


@pytest.fixture
def heed_check(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """Checks a module, a class or a function, and fails with the report if something is wrong with it.

    def test_my_attention(heed_check):
        heed_check(MyAttention, causal=True)
    """
    strict = bool(request.config.getoption("--heed-strict"))

    def check(target: Any, **spec: Any) -> Report:
        from .check import check as asked

        report = replace(asked(target, **spec), strict=strict)
        if not report.ok:
            pytest.fail(str(report), pytrace=False)
        return report

    return check


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--heed`: what to check besides the tests, and what counts as wrong."""
    group = parser.getgroup("heed")
    group.addoption(
        "--heed",
        action="append",
        default=[],
        metavar="TARGET",
        help="check path/to/file.py:Name, or every attention of a file, folder or package; may be repeated",
    )
    group.addoption("--heed-strict", action="store_true", help="what heed check calls unusual counts as wrong")
    group.addoption(
        "--heed-baseline", type=Path, metavar="FILE", help="accept the findings that this file of heed check names"
    )
    group.addoption(
        "--heed-timeout", type=float, default=120.0, metavar="SECONDS", help="after which heed gives up on a target"
    )


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """One more test for every target."""
    words: list[str] = config.getoption("--heed")
    if not words:
        return
    from .check import CannotCheck
    from .check.reports.baseline import BadBaseline, Baseline
    from .check.trees.find import expanded
    from .check.trees.pool import Worker

    path = config.getoption("--heed-baseline")
    try:
        found = expanded(words)
        known = None if path is None else Baseline.read(path)
    except (CannotCheck, BadBaseline) as error:
        raise pytest.UsageError(str(error)) from None
    if not found.targets:
        raise pytest.UsageError(f"--heed: nothing attention-like was found in {', '.join(words)}")
    worker = Worker()
    config.add_cleanup(worker.close)
    items.extend(
        Checked.from_parent(session, name=f"heed check {target.name}", target=target, worker=worker, known=known)
        for target in found.targets
    )


class Checked(pytest.Item):
    """One target as a test. It runs in a process of its own: what a target does to it, no other test meets."""

    def __init__(self, *, target: Target, worker: Worker, known: Baseline | None, **given: Any) -> None:
        super().__init__(**given)
        self.target, self.worker, self.known = target, worker, known

    def runtest(self) -> None:
        from .check.reports.report import Verdict
        from .check.trees.job import Options

        strict, timeout = (self.config.getoption(name) for name in ("--heed-strict", "--heed-timeout"))
        result = self.worker.ask(self.target, Options(strict=strict, timeout=timeout))
        if self.known is not None:
            result = self.known.judged(result)
        if result.known:
            pytest.skip(f"could not be checked, which the baseline accepts: {result.reason}")
        if result.verdict is Verdict.UNCHECKED:
            raise Wrong(f"{result.target} could not be checked: {result.reason}")
        if result.verdict is Verdict.WRONG:
            raise Wrong(str(result.report))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, Wrong) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, int | None, str]:
        if self.target.place is None:
            return self.target.name.rpartition(":")[0], None, self.name
        file, line = self.target.place
        return file, line - 1, self.name


class Wrong(AssertionError):
    """Something is wrong with a target, or it could not be checked; the message is the report."""
