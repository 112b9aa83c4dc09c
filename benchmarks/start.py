"""Starting: how long `import heed` and `heed --help` keep a user waiting."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Figure
from benchmarks.report import Row, Target

IMPORT = (
    "import sys, time; t = time.perf_counter(); import heed; print(time.perf_counter() - t, 'torch' in sys.modules)"
)


def rows(rounds: int | None) -> Iterator[Row]:
    """Medians over fresh processes; the bare interpreter is part of whatever a process takes."""
    count = rounds or 10
    command = Path(sysconfig.get_path("scripts")) / "heed"
    imports: list[float] = []
    loads = 0
    bare: list[float] = []
    helps: list[float] = []
    for _ in range(count + 1):  # the first round fills the disk cache
        seconds, loaded = _run(sys.executable, "-c", IMPORT)[1].split()
        imports.append(float(seconds))
        loads += loaded == "True"
        bare.append(_run(sys.executable, "-c", "pass")[0])
        helps.append(_run(str(command), "--help")[0])
    yield Row("python -c pass (the bare interpreter)", Figure.of(bare[1:]))
    yield Row("import heed, inside the interpreter", Figure.of(imports[1:]), target=Target(0.06, "heed"))
    yield Row("runs in which import heed loaded torch", Figure.exact(loads, ""), target=Target(0, "heed"))
    yield Row("heed --help, the whole process", Figure.of(helps[1:]), target=Target(0.5, "heed"))


def _run(*command: str) -> tuple[float, str]:
    begin = time.perf_counter()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return time.perf_counter() - begin, done.stdout
