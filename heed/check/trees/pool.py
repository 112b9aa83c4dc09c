"""Several workers side by side: each target goes to the next that is free; results come as they are done."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from ..reports.survey import Result
from .find import Target
from .job import Options, of_line

START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from heed.check.trees.worker import main; main()"


class Worker:
    """A process that checks one target after another; after one that took it along there is a new one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def ask(self, target: Target, options: Options) -> Result:
        """How a target comes out."""
        job = {"target": target.name, "path": sys.path, "options": asdict(options)}
        for _ in range(2):  # where there are no forks, a worker ends after each job
            if self._closed:
                break
            answer = _exchanged(self._running(), job)
            if answer is not None:
                return of_line(target.name, target.place, answer)
            self._end()
        return Result(target.name, problem="the process that checks it ended", place=target.place)

    def close(self) -> None:
        """End it, and whatever it does."""
        self._closed = True
        self._end()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            paths = json.dumps([path for path in sys.path if path])
            # -P: no file of the current folder may pass for a module of Python or heed. A session of its own: Ctrl-C
            # reaches the process that asks, which then ends this one.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", START, paths],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self._process

    def _end(self) -> None:
        """Closing its input ends it, with the target that it is at."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):  # it is gone, with a job unread
            process.stdin.close()
        try:
            process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()  # at the end: until then another thread may be reading


def _exchanged(process: subprocess.Popen[bytes], job: dict[str, Any]) -> dict[str, Any] | None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.flush()
        found: dict[str, Any] = json.loads(process.stdout.readline())
    except (OSError, ValueError):
        return None
    return found


def each(targets: Sequence[Target], options: Options, jobs: int = 2) -> Iterator[Result]:
    """The results, as they come. Whoever stops asking (Ctrl-C) ends the workers."""
    waiting: SimpleQueue[Target] = SimpleQueue()
    results: SimpleQueue[Result] = SimpleQueue()
    for target in targets:
        waiting.put(target)
    workers = [Worker() for _ in range(max(1, min(jobs, len(targets))))]

    def work(worker: Worker) -> None:
        try:
            while True:
                results.put(worker.ask(waiting.get_nowait(), options))
        except Empty:
            worker.close()

    threads = [Thread(target=work, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        for _ in targets:
            yield results.get()
    finally:
        while not waiting.empty():
            waiting.get_nowait()
        for worker in workers:
            worker.close()
