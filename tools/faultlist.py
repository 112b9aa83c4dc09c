"""The list of planted faults: `tools/faults/PACKAGE.toml`, a file per package of heed; and what is wrong with an entry.

A fault is one plausible slip: a text of a file replaced by another. Its entry names the tests that must notice it.
The list is checked by the everyday tests, so an entry cannot outlive the line of code that it changes.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = "tools/faults"
TOP = "heed"  # the list of what lies beside the packages: heed/testing.py and the like


@dataclass(frozen=True)
class Fault:
    """One planted fault: in `file`, `new` stands for `old`; one of `tests` must fail."""

    package: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""  # why nothing changes, and so no test can notice

    @property
    def compiled(self) -> bool:
        """Whether the kernels must be compiled again."""
        return not self.file.endswith(".py")

    def planted(self, text: str) -> str:
        return text.replace(self.old, self.new)


class BadList(Exception):
    """A list of faults that cannot be read."""


def read(root: Path) -> list[Fault]:
    """All faults of the lists under `root`, package by package."""
    return [fault for file in sorted((root / FOLDER).glob("*.toml")) for fault in _faults(file)]


def _faults(file: Path) -> Iterator[Fault]:
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadList(f"{file}: {error}") from error
    if found.keys() - {"fault"}:
        raise BadList(f"{file}: holds {', '.join(found)}; needed are entries [[fault]] and nothing else")
    for number, entry in enumerate(found.get("fault", []), 1):
        yield _fault(f"{file}: fault {number}", file.stem, entry)


def _fault(where: str, package: str, entry: dict[str, Any]) -> Fault:
    known = {field.name for field in fields(Fault)} - {"package"}
    needed = known - {"equivalent"}
    if unknown := entry.keys() - known:
        raise BadList(f"{where} has the unknown keys {sorted(unknown)}; known are {sorted(known)}")
    if missing := needed - entry.keys():
        raise BadList(f"{where} lacks {sorted(missing)}")
    tests = entry["tests"]
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise BadList(f"{where}: `tests` is a list of files or node ids, not {tests!r}")
    if wrong := [key for key in entry.keys() - {"tests"} if not isinstance(entry[key], str)]:
        raise BadList(f"{where}: {sorted(wrong)} must be text")
    return Fault(package=package, **entry | {"tests": tuple(tests)})


def complaints(root: Path, faults: list[Fault]) -> Iterator[str]:
    """What is wrong with the entries, each with what to do about it."""
    for name, count in Counter(fault.name for fault in faults).items():
        if count > 1:
            yield f"{count} faults are named {name!r}: a name says which one is meant"
    for fault in faults:
        for complaint in _complaints(root, fault):
            yield f"{fault.package}: {fault.name!r}: {complaint}"


def _complaints(root: Path, fault: Fault) -> Iterator[str]:
    if not (root / fault.file).is_file():
        yield f"there is no {fault.file}"
        return
    if _package(fault.file) != fault.package:
        yield f"{fault.file} belongs into {FOLDER}/{_package(fault.file)}.toml"
    text = (root / fault.file).read_text(encoding="utf-8")
    count = text.count(fault.old) if fault.old else 0
    if count != 1:
        yield f"`old` occurs {count} times in {fault.file}; needed is exactly once: {fault.old!r}"
    elif fault.old == fault.new:
        yield "`new` is `old`: nothing would change"
    elif not fault.compiled and not _parses(fault.planted(text)):
        yield "with the fault the file is no Python: whatever imports it would notice"
    if not fault.tests:
        yield "no test is named"
    for test in fault.tests:
        yield from _missing(root, test)


def _package(file: str) -> str:
    parts = Path(file).parts
    return parts[1] if len(parts) > 2 else TOP


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def _missing(root: Path, test: str) -> Iterator[str]:
    """A node id names a file and, in it, classes and a function; parameters in brackets are for pytest to find."""
    file, *names = test.split("[", maxsplit=1)[0].split("::")
    if not (root / file).exists():
        yield f"there is no {file} to notice it"
    elif absent := [name for name in names if name not in _defined(root / file)]:
        yield f"{file} has no {absent[0]}"


@cache
def _defined(file: Path) -> frozenset[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, kinds))
