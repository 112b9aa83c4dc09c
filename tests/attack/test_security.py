"""SECURITY.md is true: every promise names tests that are there. What heed needs has licences that are known."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, requires
from pathlib import Path

from packaging.requirements import Requirement

from tools.attack.case import ROOT

NODE = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
FREE = re.compile(r"MIT|BSD|Apache|MPL|ISC|PSF|Python Software Foundation|Zlib|HPND|Unlicense|CC0", re.IGNORECASE)


def promises(text: str) -> list[str]:
    return re.split(r"\n- ", text.partition("## What heed promises")[2])[1:]


def unheld(text: str, root: Path = ROOT) -> Iterator[str]:
    """Promises without a test, and tests that are not there."""
    for promise in promises(text):
        nodes = NODE.findall(promise)
        if not nodes:
            yield f"no test: {promise[:60]}"
        for file, name in nodes:
            if not (root / file).is_file():
                yield f"no file: {file}"
                continue
            tree = ast.parse((root / file).read_text(encoding="utf-8"))
            if name not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
                yield f"no test of that name: {file}::{name}"


def test_every_promise_names_tests_that_are_there() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert len(promises(text)) >= 10
    assert list(unheld(text)) == []


def test_a_promise_that_nothing_holds_is_noticed() -> None:
    text = "## What heed promises\n\n- **A.** (`tests/attack/test_security.py::test_gone`)\n- **B.** Believe us.\n"
    text += "- **C.** (`tests/no.py::test_x`)"
    assert [found.partition(":")[0] for found in unheld(text)] == ["no test of that name", "no test", "no file"]


def needed(name: str, seen: set[str]) -> set[str]:
    """A distribution and all that it needs, as far as it is installed."""
    if name.lower() in seen:
        return seen
    try:
        wanted = requires(name) or []
    except PackageNotFoundError:
        return seen
    seen.add(name.lower())
    for text in wanted:
        one = Requirement(text)
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            needed(one.name, seen)
    return seen


def licence(name: str) -> str:
    about = distribution(name).metadata
    told = [*(about.get_all("License-Expression") or []), *(about.get_all("License") or [])]
    return " | ".join([*told, *(line for line in about.get_all("Classifier") or [] if "License" in line)])


def test_runtime_dependencies_have_known_licences() -> None:
    direct = re.findall(r'^    "([\w-]+)>=', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert "torch" in direct
    every: set[str] = set()
    for name in direct:
        needed(name, every)
    assert len(every) > 15
    unknown = {name: licence(name)[:80] for name in sorted(every) if not FREE.search(licence(name))}
    assert {name: told for name, told in unknown.items() if not name.startswith("nvidia")} == {}
