"""A file of prompts answered through an engine, in the order of its lines.

A line is written whole, by one call, after all lines before it. So whatever ends the process (kill -9 as well), what is
there answers the first lines, but for a last one without its end, which is cut off: the next run goes on behind it.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from ...core.errors import InputError
from ...pipelines import GenerationConfig, GenerationPipeline
from ..answer import Answer, Busy, EngineStopped, ServeError
from ..engine import Engine
from .lines import Asked, asked

LONGEST = 1 << 24  # bytes of a line
WINDOW = 256  # lines that are answered at once, or wait for one before them


@dataclass
class Progress:
    """How far a file is answered."""

    total: int  # lines
    done: int = 0  # answered, those of earlier runs too
    before: int = 0  # answered by earlier runs
    failed: int = 0  # in this run


def answer_file(
    engine: Engine,
    prompts: Path,
    answers: Path,
    config: GenerationConfig,
    at: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Answer the lines that have no answer yet, by the only model of the engine. `at` is told at first and after each.

    Whatever is wrong with a line is its answer. Memory is bounded: a window of lines is held, not the files.
    """
    ((name, info),) = engine.models.items()
    pipeline = info.pipeline
    if not isinstance(pipeline, GenerationPipeline):
        raise InputError(f"{name} does not generate text; a file of prompts needs a model that does")
    if prompts.resolve() == answers.resolve():
        raise InputError(f"{answers} is the file of prompts; give another one for the answers")
    with _opened(prompts) as source, _locked(answers) as target:
        progress = Progress(sum(1 for _ in _lines(source)))
        source.seek(0)
        progress.done = progress.before = _kept(target)
        if progress.done > progress.total:
            raise InputError(f"{answers} has {progress.done:,} lines, {prompts} {progress.total:,}: it answers another")
        at(progress)
        lines = enumerate(_lines(source), 1)
        for number, raw in islice(lines, progress.done):
            if number == progress.done:
                _must_answer(target, asked(raw, number, pipeline, config), answers)
        _all(engine, (asked(raw, number, pipeline, config) for number, raw in lines), target, progress, at)
        os.fsync(target.fileno())
    return progress


def _all(
    engine: Engine,
    lines: Iterator[Asked],
    target: BinaryIO,
    progress: Progress,
    at: Callable[[Progress], None],
) -> None:
    """A window of lines is asked, and written in order."""
    window = deque[tuple[Asked, Answer | None]]()
    left = progress.total - progress.done
    try:
        while left:
            while len(window) < WINDOW and (line := next(lines, None)) is not None:
                if line.request is None:
                    window.append((line, None))
                    continue
                answer, line = _submitted(engine, line, window, lambda: _write(window, target, progress, at))
                window.append((line, answer))
            if not window:
                return
            _write(window, target, progress, at)
            left = progress.total - progress.done
    finally:
        for _, answer in window:
            if answer is not None:
                answer.cancel()


def _submitted(
    engine: Engine, line: Asked, window: deque[tuple[Asked, Answer | None]], move_on: Callable[[], None]
) -> tuple[Answer | None, Asked]:
    """Its answer to come; while too many wait, those before it are written."""
    assert line.request is not None
    while True:
        try:
            return engine.submit(line.request), line
        except Busy as busy:
            if window:
                move_on()
            else:
                time.sleep(busy.retry_after)
        except EngineStopped:
            raise
        except InputError as error:
            return None, Asked(line.number, line.custom_id, line.url, problem=str(error))


def _write(
    window: deque[tuple[Asked, Answer | None]],
    target: BinaryIO,
    progress: Progress,
    at: Callable[[Progress], None],
) -> None:
    """The oldest line of the window, when its answer is whole."""
    line, answer = window[0]
    told: dict[str, Any]
    if answer is None:
        told = line.refused(line.problem or "")
    else:
        try:
            told = line.answer(answer.result())
        except EngineStopped:  # no line: it is answered when the engine lives again
            raise
        except ServeError as error:
            told = line.refused(str(error))
    window.popleft()
    target.write(json.dumps(told, ensure_ascii=True).encode() + b"\n")
    progress.done += 1
    progress.failed += answer is None or told.get("error") is not None
    at(progress)


@contextmanager
def _opened(prompts: Path) -> Iterator[BinaryIO]:
    try:
        source = prompts.open("rb")
    except OSError as error:
        raise InputError(f"{prompts} cannot be read: {error.strerror}") from None
    with source:
        yield source


@contextmanager
def _locked(answers: Path) -> Iterator[BinaryIO]:
    """The file of answers, for this process alone; each write goes to it at once."""
    try:
        target = open(answers, "a+b", buffering=0)  # noqa: SIM115  # closed below
    except OSError as error:
        raise InputError(f"{answers} cannot be written: {error.strerror}") from None
    with target:
        with suppress(ImportError):  # Windows has no such locks
            import fcntl

            try:
                fcntl.flock(target, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"{answers} is being written by another process") from None
        yield target


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """Every line; of one that is too long as much as shows that."""
    while line := source.readline(LONGEST):
        rest = line
        while len(rest) == LONGEST and not rest.endswith(b"\n"):
            rest = source.readline(LONGEST)
        yield line


def _kept(target: BinaryIO) -> int:
    """Whole lines that are there; what a killed process left behind them is cut off."""
    target.seek(0)
    count = end = 0
    while line := target.readline():
        if not line.endswith(b"\n"):
            break
        count, end = count + 1, end + len(line)
    target.truncate(end)
    return count


def _must_answer(target: BinaryIO, line: Asked, answers: Path) -> None:
    """Raise unless the last line that is there answers this one."""
    target.seek(0)
    last = b""
    while read := target.readline():
        last = read
    try:
        told = json.loads(last)
        fits = (told["line"], told.get("custom_id")) == (line.number, line.custom_id)
    except (ValueError, KeyError, TypeError):
        fits = False
    if not fits:
        raise InputError(f"{answers} answers another file of prompts; give another --out, or remove it")
