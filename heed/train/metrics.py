"""What a training tells to tools: metrics.jsonl and, if it is wanted, TensorBoard."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..core.atomic import NO_LINKS
from ..core.errors import MissingExtra, RunError
from ..runs import digests
from ..runs.folder import METRICS, Run, writing
from ..runs.records import entry_of, text_of

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter


class MetricsLog:
    """metrics.jsonl, one line per report, and TensorBoard if it is wanted."""

    def __init__(self, run: Run, step: int, *, tensorboard: bool = False) -> None:
        self._run, self._path = run, run.path / METRICS
        self._written = sha256()  # of what was written, whatever the disk makes of it
        self._forget_after(step)
        self._board = _board(run, step) if tensorboard else None

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a line."""
        line = json.dumps({"step": step, **{name: _short(value) for name, value in numbers.items()}})
        with writing(self._path), open(self._path, "a", encoding="utf-8", newline="\n", opener=_without_links) as file:
            file.write(line + "\n")
        self._written.update(line.encode() + b"\n")
        if self._board is not None:
            for name, value in numbers.items():
                self._board.add_scalar(name, value, step)
            self._board.flush()

    def seal(self) -> None:
        """Take the digest of all lines so far."""
        with writing(self._run.path):
            listed = digests.listed(self._run.path) or {}
            digests.write(self._run.path, {**listed, METRICS: (self._written.hexdigest(),)})

    def _forget_after(self, step: int) -> None:
        """Drop what a stopped run told beyond its last checkpoint, and lines that are cut off or not a training's.

        The file is written anew: it may have been a link, or another name of a file elsewhere.
        """
        lines = text_of(self._path).splitlines(keepends=True)
        kept = [line for line in lines if line.endswith("\n") and _before(line, step)]
        text = "".join(kept).encode()
        with writing(self._path), digests.recorded(self._run.path, METRICS) as fresh:
            fresh.write_bytes(text)
        self._written.update(text)


def _before(line: str, step: int) -> bool:
    entry = entry_of(line)
    return entry is not None and bool(entry["step"] <= step)


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | NO_LINKS, 0o666)


def _short(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.6g}")


def _board(run: Run, step: int) -> SummaryWriter:
    must_be_there()
    from torch.utils.tensorboard.writer import SummaryWriter

    if (run.path / "tensorboard").is_symlink():
        raise RunError(f"{run.path / 'tensorboard'} is a link; heed writes into the run folder only. Remove it")
    return SummaryWriter(str(run.path / "tensorboard"), purge_step=step + 1)


def must_be_there() -> None:
    """Raise unless TensorBoard is installed."""
    if find_spec("tensorboard") is None:
        raise MissingExtra.of("tensorboard", "tensorboard")
