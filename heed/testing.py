"""A plugin for pytest: the fixture `heed_check`, and `pytest --heed path/to/file.py:Name`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .check import Report


@pytest.fixture
def heed_check() -> Callable[..., Report]:
    """Checks a module, a class or a function, and fails with the report if something is wrong with it.

    def test_my_attention(heed_check):
        heed_check(MyAttention, causal=True)
    """

    def check(target: Any, **spec: Any) -> Report:
        from .check import check as asked

        report = asked(target, **spec)
        if not report.ok:
            pytest.fail(str(report), pytrace=False)
        return report

    return check


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--heed`: what to check besides the tests."""
    parser.getgroup("heed").addoption(
        "--heed", action="append", default=[], metavar="TARGET", help="check path/to/file.py:Name; may be repeated"
    )


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """One more test for every target."""
    targets = config.getoption("--heed")
    if targets:
        items.extend(Checked.from_parent(session, name=f"heed check {target}", target=target) for target in targets)


class Checked(pytest.Item):
    """One target as a test."""

    def __init__(self, *, target: str, **given: Any) -> None:
        super().__init__(**given)
        self.target = target

    def runtest(self) -> None:
        from .check import check

        report = check(self.target)
        if not report.ok:
            raise Wrong(str(report))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if isinstance(excinfo.value, Wrong) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, int | None, str]:
        return self.target.rpartition(":")[0], None, self.name


class Wrong(AssertionError):
    """Something is wrong with a target; the message is the report."""
