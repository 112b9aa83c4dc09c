"""A plugin of pytest for `make test-lowest`: test files that compare with transformers are left out, and counted.

transformers of today wants libraries of today. Recorded runs (tests/verify) take its place.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PEER = "transformers"
LEFT_OUT: list[str] = []


@cache
def compares(path: Path) -> bool:
    """Whether a file imports the peer, itself or by a file of the tests that it imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    if any(name.split(".")[0] == PEER for name in names):
        return True
    files = [ROOT / f"{name.replace('.', '/')}.py" for name in names if name.startswith("tests.")]
    return any(compares(file) for file in files if file.exists())


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if collection_path.suffix == ".py" and collection_path.name.startswith("test_") and compares(collection_path):
        LEFT_OUT.append(collection_path.relative_to(ROOT).as_posix())
        return True
    return None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"left out, because they compare with {PEER}: {len(LEFT_OUT)} files")
