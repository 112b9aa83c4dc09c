"""Processes that tests start run the heed of this checkout, not one that happens to be installed.

`tests/conftest.py` puts the checkout on PYTHONPATH, which children inherit. A test that gives its child an environment
of its own takes `environment()`; starting Python in any other way is an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STARTS = {
    "subprocess.Popen": 3,
    "os.posix_spawn": 2,
    "os.exec": 2,
}  # events of Python, and where they tell the environment
ALONE = "-I"  # Python that hears of no environment: what it runs imports nothing of heed


def environment(**more: str) -> dict[str, str]:
    """Of a child that needs nothing else: this checkout, where programs are, and what is given."""
    return {"PYTHONPATH": str(ROOT), "PATH": os.environ.get("PATH", os.defpath), **more}


def inherit() -> None:
    """All children from now on find this checkout first."""
    before = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != str(ROOT)]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *before])


def watch() -> None:
    """Refuse children of any other kind."""
    sys.addaudithook(_refuse)


def _refuse(event: str, told: tuple[Any, ...]) -> None:
    if event in STARTS:
        words, given = told[1], told[STARTS[event]]
        if _is_python(words) and not _is_alone(words) and not names_checkout(os.environ if given is None else given):
            raise AssertionError(
                f"{words[:4]} would import a heed that is installed, if any; give it env=tests.children.environment()"
            )


def _is_python(words: Any) -> bool:
    """Whether this very Python is called; those of other environments are meant to be elsewhere."""
    return isinstance(words, Sequence) and bool(words) and os.fspath(words[0]) == sys.executable


def _is_alone(words: Sequence[Any]) -> bool:
    """Whether it hears of no environment; if it is to run a module of heed, that would be an installed one."""
    return ALONE in words and not any(str(word).startswith("heed") for word in words)


def names_checkout(given: Mapping[Any, Any]) -> bool:
    """Whether PYTHONPATH names the checkout, or a folder with a link to its package or with a copy of it."""
    value = next((os.fsdecode(given[key]) for key in given if os.fsdecode(key) == "PYTHONPATH"), "")
    return any((Path(path) / "heed" / "__init__.py").is_file() for path in value.split(os.pathsep) if path)
