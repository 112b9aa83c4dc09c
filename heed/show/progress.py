"""What people see of a long work: a progress bar in a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

QUIET = 10.0  # seconds between two plain lines


class Reporter:
    """Tells people how far a long work is: a bar in a terminal, else a line every few seconds."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True)
        self._progress: Progress | None = None
        self._title, self._task, self._total, self._begun, self._started, self._spoke = "", TaskID(0), 0, 0, 0.0, 0.0

    def say(self, text: str) -> None:
        """One line, as it is."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def counting(self, title: str, total: int, done: int = 0) -> Iterator[None]:
        """So many steps are to come, some of them done."""
        self._title, self._total, self._begun, self._started = title, total, done, monotonic()
        self._spoke = self._started
        if not self.console.is_terminal:
            yield
            return
        columns = (
            TextColumn(title),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[news]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console) as bar:
            self._progress, self._task = bar, bar.add_task(title, total=total, completed=done, news="")
            try:
                yield
            finally:
                self._progress = None

    def at(self, step: int, news: str = "") -> None:
        """This step is done."""
        if self._progress is not None:
            self._progress.update(self._task, completed=step, news=news)
            return
        now = monotonic()
        if now - self._spoke >= QUIET or step == self._total:
            self._spoke = now
            left = (now - self._started) / max(1, step - self._begun) * (self._total - step)
            self.say(" · ".join(filter(None, (f"{self._title}: {step} of {self._total}", news, f"{clock(left)} left"))))


class Silent(Reporter):
    """Says nothing: for the processes that do not lead."""

    def say(self, text: str) -> None:
        return

    @contextmanager
    def counting(self, title: str, total: int, done: int = 0) -> Iterator[None]:
        yield

    def at(self, step: int, news: str = "") -> None:
        return


def clock(seconds: float) -> str:
    """1:02:03"""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
