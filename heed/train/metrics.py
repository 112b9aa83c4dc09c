"""What a training tells to tools: metrics.jsonl and, if it is wanted, TensorBoard."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ..core.atomic import replacing
from ..core.errors import MissingExtra
from ..runs.folder import METRICS, Run, writing

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter


class MetricsLog:
    """metrics.jsonl, one line per report, and TensorBoard if it is wanted."""

    def __init__(self, run: Run, step: int, *, tensorboard: bool = False) -> None:
        self._path = run.path / METRICS
        self._forget_after(step)
        self._board = _board(run, step) if tensorboard else None

    def write(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add a line."""
        line = json.dumps({"step": step, **{name: _short(value) for name, value in numbers.items()}})
        with writing(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        if self._board is not None:
            for name, value in numbers.items():
                self._board.add_scalar(name, value, step)
            self._board.flush()

    def _forget_after(self, step: int) -> None:
        """Drop what a stopped run told beyond its last checkpoint, and a line that was cut off."""
        if not self._path.exists():
            return
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        kept = [line for line in lines if _step(line) <= step]
        if kept != lines:
            with writing(self._path), replacing(self._path) as fresh:
                fresh.write_text("".join(kept), encoding="utf-8")


def _step(line: str) -> float:
    """The step a line is about; endless if it is not whole."""
    try:
        return float(json.loads(line)["step"]) if line.endswith("\n") else float("inf")
    except (ValueError, KeyError, TypeError):
        return float("inf")


def _short(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.6g}")


def _board(run: Run, step: int) -> SummaryWriter:
    must_be_there()
    from torch.utils.tensorboard.writer import SummaryWriter

    return SummaryWriter(str(run.path / "tensorboard"), purge_step=step + 1)


def must_be_there() -> None:
    """Raise unless TensorBoard is installed."""
    if find_spec("tensorboard") is None:
        raise MissingExtra.of("tensorboard", "tensorboard")
