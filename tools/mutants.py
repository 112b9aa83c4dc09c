"""Would the tests notice? `python -m tools.mutants`, or `make mutants`: plants the faults of the list, one by one.

Each is planted in a copy of the project and its tests are run there: one of them must fail. A hang that the time limit
ends counts as noticed, and is told apart. Before that, all tests that are named must pass in the copy as it is.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Annotated

import typer

from tools.faultlist import FOLDER, BadList, Fault, complaints, read

ROOT = Path(__file__).parents[1]
NEEDED = 0.95  # of the faults that are not equivalent
LIMIT, COMPILING = 120, 240  # seconds per fault, and what compiling the kernels may add
UNTOUCHED = 1800  # seconds for all tests that are named, in the copy as it is
# -x: the first failure is enough. No cache and no workers: every child is one run of few tests.
# Plain assertions: nobody reads the values, and rewriting would go over all of heed, whose plugin for pytest is loaded.
PYTEST = ("-x", "-q", "-rfE", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain")
# What the tests import of others, loaded once for all faults.
LOADED = ("torch._dynamo", "transformers.models.llama.modeling_llama", "hypothesis", "rich.progress", "typer")
FAILED, NO_TESTS, USAGE = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.M), 5, 4


class Verdict(StrEnum):
    """How a fault fared."""

    NOTICED = "noticed"
    TIMEOUT = "noticed by the time limit"
    CRASH = "noticed by a crash"
    EQUIVALENT = "equivalent"
    UNNOTICED = "UNNOTICED"
    WRONG = "NOTICED, THOUGH SAID TO BE EQUIVALENT"

    @property
    def noticed(self) -> bool:
        return self in {Verdict.NOTICED, Verdict.TIMEOUT, Verdict.CRASH}


@dataclass(frozen=True)
class Result:
    """What became of a fault, after how long, and which test noticed it first."""

    package: str
    name: str
    verdict: Verdict
    seconds: float
    by: str


class Broken(Exception):
    """The tests could not be run, or fail without any fault."""


class Copy:
    """A copy of the project in a folder of its own, and a process in it that runs tests."""

    def __init__(self, root: Path, folder: Path, loaded: Sequence[str] = LOADED) -> None:
        self.place, self.log, self.planted = folder / "project", folder / "output.txt", 0
        for name in _files(root):
            (self.place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, self.place / name, follow_symlinks=False)
        cache = folder / "cache"  # a copy as well: faults must not leave libraries in the user's cache
        if _user_cache().is_dir():
            shutil.copytree(_user_cache(), cache)
        given = {"PYTHONPATH": str(self.place), "HEED_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
        given |= {"PYTHONDONTWRITEBYTECODE": ""}  # compiled once, not for every fault
        threads = {"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("forkserver.py")), *loaded],
            cwd=self.place,
            env=os.environ | given | threads,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()  # it ends when there is nothing more to read
        self.process.stdout.close()
        self.process.wait()

    def run(self, tests: Sequence[str], limit: float) -> tuple[int | None, float]:
        """pytest's exit code (None: it took longer than the limit) and seconds."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps([[*PYTEST, *tests], limit, str(self.log)]) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self._answer())
        return answer["code"], answer["seconds"]

    def _answer(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise Broken("the process that runs the tests has ended")
        return line

    def output(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def untouched(self, tests: Sequence[str]) -> float:
        """Tests pass without a fault; how long they took."""
        code, seconds = self.run(tests, UNTOUCHED)
        if code != 0:
            raise Broken(f"without any fault the tests do not pass:\n{self.output()[-3000:]}")
        return seconds

    def judge(self, fault: Fault, limit: float) -> Result:
        """Plants the fault, runs its tests, and takes it back."""
        file = self.place / fault.file
        before, self.planted = file.read_text(encoding="utf-8"), self.planted + 1
        times = file.stat()
        try:
            file.write_text(fault.planted(before), encoding="utf-8")
            # Python knows a compiled file by its size and whole seconds: no two states of a file may share both.
            os.utime(file, (times.st_atime, times.st_mtime + 10 * self.planted))
            code, seconds = self.run(fault.tests, limit + COMPILING * fault.compiled)
        finally:
            file.write_text(before, encoding="utf-8")
            os.utime(file, (times.st_atime, times.st_mtime))
        output = self.output()
        if code is None and self.run(fault.tests, limit)[0] != 0:  # a test that is slow in any case has noticed nothing
            raise Broken(f"{fault.package}: {fault.name!r}: without it, its tests take more than {limit:.0f} s as well")
        if code in {NO_TESTS, USAGE}:
            raise Broken(f"{fault.package}: {fault.name!r}: pytest found no such tests:\n{output[-1000:]}")
        named = FAILED.search(output)
        return Result(fault.package, fault.name, _verdict(fault, code), seconds, named[1] if named else "")


def _verdict(fault: Fault, code: int | None) -> Verdict:
    if fault.equivalent:
        return Verdict.EQUIVALENT if code == 0 else Verdict.WRONG
    if code is None:
        return Verdict.TIMEOUT
    if code == 0:
        return Verdict.UNNOTICED
    return Verdict.CRASH if code < 0 else Verdict.NOTICED


def _files(root: Path) -> list[str]:
    """What git holds, and what is new and not ignored."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    told = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return [name for name in told.split("\0") if name and os.path.lexists(root / name)]


def _user_cache() -> Path:
    named = os.environ.get("HEED_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "heed").expanduser()
    return Path(named)


def chosen(faults: list[Fault], only: str, sample: float, seed: str) -> list[Fault]:
    """Those whose name or package fits a pattern; of these a random share, without the equivalent ones."""
    found = [fault for fault in faults if not only or fnmatch(fault.name, only) or fault.package == only]
    if sample >= 1:
        return found
    able = [fault for fault in found if not fault.equivalent]
    some = random.Random(seed).sample(able, max(1, round(len(able) * sample))) if able else []
    return sorted(some, key=found.index)


def newer(faults: list[Fault], root: Path, commit: str, folder: Path) -> list[Fault]:
    """Those that the lists of a commit do not have, or have otherwise."""
    packed = subprocess.run(["git", "archive", commit, FOLDER], cwd=root, capture_output=True, check=False)
    if packed.returncode:
        raise BadList(f"--since {commit}: {packed.stderr.decode(errors='replace').strip()}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    before = {replace(fault, tests=()) for fault in read(folder)}
    return [fault for fault in faults if replace(fault, tests=()) not in before]


def judged(
    root: Path, faults: list[Fault], jobs: int, limit: float, tell: bool = True, loaded: Sequence[str] = LOADED
) -> list[Result]:
    """All faults, by several workers that each have a copy."""
    waiting: SimpleQueue[Fault] = SimpleQueue()
    for fault in faults:
        waiting.put(fault)
    results: list[Result] = []
    broken: list[Exception] = []
    progress = Progress(len(faults), tell)

    def work(copy: Copy) -> None:
        try:
            while not broken:
                result = copy.judge(waiting.get_nowait(), limit)
                results.append(result)
                progress(result)
        except Empty:
            pass
        except Exception as error:
            broken.append(error)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants-")))
        copies = []
        for number in range(min(jobs, len(faults))):
            (folder / str(number)).mkdir()
            copies.append(stack.enter_context(Copy(root, folder / str(number), loaded)))
        with ThreadPoolExecutor(len(copies)) as pool:
            seconds = max(pool.map(Copy.untouched, copies, _shared(faults, len(copies))))
        progress.say(f"without a fault all tests pass ({seconds:.0f} s); {len(faults)} faults follow")
        threads = [Thread(target=work, args=(copy,)) for copy in copies]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if broken:
        raise broken[0]
    order = {fault.name: place for place, fault in enumerate(faults)}
    return sorted(results, key=lambda result: order[result.name])


def _shared(faults: Iterable[Fault], workers: int) -> list[list[str]]:
    """All tests that are named, for so many workers at most; those of a file stay together and share what it makes."""
    files: dict[str, list[str]] = {}
    for test in dict.fromkeys(test for fault in faults for test in fault.tests):
        files.setdefault(test.partition("::")[0], []).append(test)
    every = list(files.values())
    return [[test for tests in every[worker::workers] for test in tests] for worker in range(min(workers, len(every)))]


class Progress:
    """A line for each fault, with the time that is left if the rest takes as long."""

    def __init__(self, total: int, tell: bool) -> None:
        self.total, self.tell, self.done, self.begun, self.lock = total, tell, 0, time.monotonic(), Lock()

    def say(self, line: str) -> None:
        if self.tell:
            print(line, file=sys.stderr, flush=True)
        self.begun = time.monotonic() if not self.done else self.begun

    def __call__(self, result: Result) -> None:
        with self.lock:
            self.done += 1
            left = (time.monotonic() - self.begun) / self.done * (self.total - self.done)
            by = f" · {result.by}" if result.by else ""
            place = f"[{self.done}/{self.total}, {left / 60:.1f} min left]"
            self.say(f"{place} {result.seconds:.1f} s {result.package}: {result.name}: {result.verdict}{by}")


def share(results: Iterable[Result]) -> float:
    """The part of the faults that are not equivalent which was noticed."""
    able = [result.verdict.noticed for result in results if result.verdict is not Verdict.EQUIVALENT]
    return sum(able) / len(able) if able else 1.0


def table(results: list[Result]) -> Iterator[str]:
    """A row per package, the sum, and the names of those that nothing noticed."""
    yield f"{'package':12}{'planted':>9}{'noticed':>9}{'equivalent':>12}{'unnoticed':>11}{'share':>8}"
    packages = list(dict.fromkeys(result.package for result in results))
    for package in [*packages, "all"]:
        rows = [result for result in results if package in {result.package, "all"}]
        noticed = sum(row.verdict.noticed for row in rows)
        equal = sum(row.verdict is Verdict.EQUIVALENT for row in rows)
        missed = len(rows) - noticed - equal
        yield f"{package:12}{len(rows):>9}{noticed:>9}{equal:>12}{missed:>11}{share(rows):>8.0%}"
    by_limit = sum(result.verdict is Verdict.TIMEOUT for result in results)
    crashes = sum(result.verdict is Verdict.CRASH for result in results)
    yield f"of the noticed ones {by_limit} by the time limit and {crashes} by a crash of the process"
    for result in results:
        if result.verdict in {Verdict.UNNOTICED, Verdict.WRONG}:
            yield f"{result.verdict}: {result.package}: {result.name}"


def _commit() -> str:
    told = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=False, capture_output=True, text=True)
    return told.stdout.strip()[:12] or "0"


def main(
    only: Annotated[str, typer.Option(help="a package, or a pattern for names: '*clipping*'")] = "",
    sample: Annotated[float, typer.Option(min=0.0, max=1.0, help="a random share of them, such as 0.1")] = 1.0,
    seed: Annotated[str, typer.Option(help="of the sample; the commit if it is not given")] = "",
    since: Annotated[str, typer.Option(help="only faults that are not in the lists of this commit")] = "",
    jobs: Annotated[int, typer.Option(min=1, help="workers, each with a copy of the project")] = 1,
    limit: Annotated[float, typer.Option(min=1, help="seconds per fault")] = LIMIT,
    json_file: Annotated[Path | None, typer.Option("--json", help="write all results here")] = None,
) -> None:
    """Plant faults, one by one, and see whether the tests notice them."""
    try:
        faults = read(ROOT)
        if wrong := list(complaints(ROOT, faults)):
            raise BadList("\n".join(wrong))
        seed = seed or _commit()
        if since:
            with tempfile.TemporaryDirectory() as folder:
                faults = newer(faults, ROOT, since, Path(folder))
        faults = chosen(faults, only, sample, seed)
        if not faults:
            raise BadList(f"no fault fits --only {only!r}" + f" --since {since}" * bool(since))
        if sample < 1:
            print(f"{len(faults)} faults, drawn with --seed {seed}", file=sys.stderr)
        results = judged(ROOT, faults, jobs, limit)
    except (BadList, Broken) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from error
    if json_file:
        json_file.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(results)))
    wrong_claims = any(result.verdict is Verdict.WRONG for result in results)
    raise typer.Exit(int(share(results) < NEEDED or wrong_claims))


if __name__ == "__main__":
    typer.run(main)
