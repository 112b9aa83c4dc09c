"""Documents that are played: their blocks run in order in an empty folder, and print what the document says.

```sh        runs in bash, with the `heed` of this environment
```python    runs in one namespace per document
```text      after a block: what that block prints; `...` stands for anything, white space counts as one space
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
SECONDS = 300  # a block that takes longer hangs


@dataclass(frozen=True)
class Block:
    """One that runs, the line of the document it begins at, and what it must print, if that is told."""

    kind: str
    code: str
    line: int
    wanted: str | None = None


@dataclass
class Play:
    """A document in a folder."""

    folder: Path
    name: str
    space: dict[str, Any] = field(default_factory=lambda: {"__name__": "document"})

    def run(self, block: Block) -> str:
        """What a block prints."""
        if block.kind == "sh":
            return self._shell(block)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(self.folder), importing(self.folder):
            exec(compile("\n" * block.line + block.code, self.name, "exec", dont_inherit=True), self.space)
        return printed.getvalue()

    def _shell(self, block: Block) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.code],
            cwd=self.folder,
            env=environment(self.folder),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{self.name}, line {block.line}: {done.stdout}{done.stderr}"
        return done.stdout

    def check(self, block: Block) -> None:
        """Run a block and compare what it prints."""
        printed = self.run(block)
        if block.wanted is not None:
            same = doctest.OutputChecker().check_output(block.wanted, printed, FLAGS)
            assert same, f"{self.name}, line {block.line}: it says\n{block.wanted}\nand prints\n{printed}"


@contextlib.contextmanager
def importing(folder: Path) -> Iterator[None]:
    """Modules of this folder can be imported, as where Python is started there; they are forgotten afterwards."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(folder)):
                del sys.modules[name]


def environment(folder: Path) -> dict[str, str]:
    """Of a shell: this checkout's heed first, a home of its own, narrow and without colours."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    own = {"PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    own["OMP_NUM_THREADS"] = "1"  # tests run side by side, and threads that wait for a core spin
    return {**os.environ, **own, "HF_HUB_OFFLINE": "1", "XDG_STATE_HOME": str(folder)}


def blocks(text: str) -> Iterator[Block]:
    """Those of a document that run; a ```text block tells what the one before it prints."""
    found: Block | None = None
    for match in BLOCK.finditer(text):
        kind, code, line = match[1], match[2], text[: match.start()].count("\n") + 1
        if kind == "text" and found is not None:
            yield Block(found.kind, found.code, found.line, code)
            found = None
            continue
        if found is not None:
            yield found
        found = Block(kind, code, line) if kind in ("sh", "python") else None
    if found is not None:
        yield found
