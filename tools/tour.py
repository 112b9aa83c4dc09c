"""The guided tour's code: `python -m tools.tour` runs every chapter and writes what it printed below each block.

English and Chinese chapters hold the same blocks, so a chapter is run once and its output goes into both.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch

FOLDER = Path(__file__).parents[1] / "docs" / "tour"
LANGUAGES = {"en": FOLDER, "zh": FOLDER / "zh"}
STEP = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.MULTILINE | re.DOTALL)


class Step(NamedTuple):
    """A block of code, and the output that stands below it."""

    code: str
    shown: str


def chapters() -> list[str]:
    """File names, in order."""
    return sorted(path.name for path in FOLDER.glob("[0-9]*.md"))


def steps(page: Path) -> list[Step]:
    """What a chapter runs and shows."""
    return [Step(found["code"], found["shown"] or "") for found in STEP.finditer(page.read_text(encoding="utf-8"))]


def printed(name: str, code: list[str]) -> Iterator[str]:
    """What each block prints, run in order in one namespace. Spaces at the end of a line do not count."""
    space = {"__name__": "document"}
    with torch.random.fork_rng():
        for number, block in enumerate(code):
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(block, f"{name}, block {number}", "exec", dont_inherit=True), space)
            lines = [line.rstrip() for line in output.getvalue().rstrip().splitlines()]
            yield "".join(f"{line}\n" for line in lines)


def rewritten(text: str, outputs: list[str]) -> str:
    """The page with these outputs below its blocks."""
    left = iter(outputs)

    def step(found: re.Match[str]) -> str:
        shown = next(left)
        return f"```python\n{found['code']}```\n" + (f"\n```text\n{shown}```\n" if shown else "")

    return STEP.sub(step, text)


def main() -> None:
    """Write every chapter's outputs anew, or those of the chapters whose names begin as the arguments say."""
    for name in chapters():
        if sys.argv[1:] and not name.startswith(tuple(sys.argv[1:])):
            continue
        outputs = list(printed(name, [step.code for step in steps(FOLDER / name)]))
        for folder in LANGUAGES.values():
            page = folder / name
            page.write_text(rewritten(page.read_text(encoding="utf-8"), outputs), encoding="utf-8")
        print(name, f"{len(outputs)} blocks")


if __name__ == "__main__":
    main()
