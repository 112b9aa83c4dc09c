"""The corpus of strangers' code: what is expected of each target, and what `heed check` says of it.

`python -m tests.check.strangers [WORD ...]` prints the table of all targets, or of those with a word in their name.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import copy, copytree
from tempfile import TemporaryDirectory
from time import process_time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heed.check import Report
    from heed.check.reports.report import Fix

CORPUS = Path(__file__).parent / "corpus"
KNOWN: dict[str, str] = tomllib.loads((CORPUS / "misses.toml").read_text(encoding="utf-8"))
PROCESSES, SECONDS = 2, 100  # at once; of computing that one target may take, far more than any does
ROUNDS = 3  # fixes that may be applied one after the other
CALM = ("fine", "unusual")


@dataclass(frozen=True)
class Stranger:
    """A target of the corpus, and what is true of it."""

    target: str
    verdict: str  # fine, unusual, wrong or not-attention
    says: str
    slugs: tuple[str, ...] = ()  # names that are right
    fix: bool = False  # whether replacing what stands at one place mends it


@dataclass(frozen=True)
class Found:
    """What a check came to."""

    target: str
    verdict: str  # fine, unusual, wrong, unchecked, refused (with a message), or crashed
    slugs: tuple[str, ...] = ()  # what counts as wrong
    told: tuple[str, ...] = ()  # conventions
    mended: bool | None = None  # whether the fix, applied, passes; None if there is none
    words: str = ""
    seconds: float = 0.0


def strangers() -> list[Stranger]:
    """All of them, in the order of the table."""
    table = tomllib.loads((CORPUS / "expected.toml").read_text(encoding="utf-8"))
    return [
        Stranger(target, verdict, told)
        if isinstance(told, str)
        else Stranger(target, verdict, told["says"], tuple(told["slugs"]), told.get("fix", False))
        for verdict, targets in table.items()
        for target, told in targets.items()
    ]


def asked(targets: Sequence[str]) -> list[Found]:
    """What is found of each, by a few processes at once; one that dies takes only its target with it."""
    shares = [list(targets[start::PROCESSES]) for start in range(PROCESSES)]
    children = [_child(mine) for mine in shares]
    found = {one.target: one for mine, child in zip(shares, children, strict=True) for one in _all(mine, child)}
    return [found[target] for target in targets]


def _all(targets: list[str], child: subprocess.Popen[str]) -> list[Found]:
    """What a child finds; what it dies of is told, and another one does the rest."""
    found = list(_read(child))
    if len(found) == len(targets):
        return found
    died, *left = targets[len(found) :]
    found.append(Found(died, "crashed", words=f"the process ended with {child.returncode}"))
    return found + _all(left, _child(left)) if left else found


def _child(targets: Sequence[str]) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.check.strangers", "--ask", *targets]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=root, env=environment)


def _read(child: subprocess.Popen[str]) -> Iterator[Found]:
    assert child.stdout is not None
    with child.stdout:
        for line in child.stdout:
            if line.startswith("{"):
                yield read(line)
    child.wait()


def read(line: str) -> Found:
    """What a line of JSON tells."""
    told = json.loads(line)
    return Found(**{**told, "slugs": tuple(told["slugs"]), "told": tuple(told["told"])})


# --- in the child ---


def ask(target: str) -> Found:
    """Check one target of the corpus."""
    from heed.check import CannotCheck, check

    begun = process_time()
    try:
        with _limit():
            report = check(str(CORPUS / target))
    except CannotCheck as error:
        return Found(target, "refused", words=str(error)[:400], seconds=process_time() - begun)
    except BaseException as error:  # a stranger's code may raise anything, and so may the check: both are to be told
        words = f"{type(error).__name__}: {error}"[:400]
        return Found(target, "crashed", words=words, seconds=process_time() - begun)
    taken = process_time() - begun
    return Found(
        target,
        report.verdict.name.lower(),
        tuple(report.slugs),
        tuple(one.bug.slug for one in report.likely if not one.fails),
        mended=mended(target, report, check),
        words=_words(report),
        seconds=taken,
    )


def mended(target: str, report: Report, check: Callable[[str], Report]) -> bool | None:
    """Whether a copy of the target passes with its fix, or with one fix after the other; None if none is offered."""
    slugs = next((one.slugs for one in strangers() if one.target == target), ())
    fix = _offered(report, slugs)
    if fix is None:
        return None
    with TemporaryDirectory() as folder:
        top = Path(target.partition(":")[0]).parts[0]
        (copytree if (CORPUS / top).is_dir() else copy)(CORPUS / top, Path(folder) / top)
        place = CORPUS
        for _ in range(ROUNDS):
            _apply(fix, Path(folder) / Path(fix.file).relative_to(place))
            report, place = check(f"{folder}/{target}"), Path(folder)
            fix = _offered(report, slugs)
            if report.ok or fix is None:
                return report.ok
    return False


def _offered(report: Report, slugs: Sequence[str]) -> Fix | None:
    return next((report.fixes[slug] for slug in report.slugs if slug in slugs and slug in report.fixes), None)


def _apply(fix: Fix, file: Path) -> None:
    """The file, or the cell of a notebook, changed where it lies."""
    name, _, number = str(file).partition(", cell ")
    file = Path(name)
    text = file.read_text(encoding="utf-8")
    if number:
        book = json.loads(text)
        cell = [one for one in book["cells"] if one["cell_type"] == "code"][int(number) - 1]
        cell["source"] = applied(fix, "".join(cell["source"]))
        text = json.dumps(book)
    else:
        text = applied(fix, text)
    file.write_text(text, encoding="utf-8")


def applied(fix: Fix, text: str) -> str:
    """The text with what stands at the fix's line replaced."""
    lines = text.split("\n")
    before, rest = "\n".join(lines[: fix.line - 1]), "\n".join(lines[fix.line - 1 :])
    place = rest.index(fix.before)
    assert "\n" not in rest[:place], f"{fix.file}:{fix.line} does not hold {fix.before!r}"
    changed = rest[:place] + fix.after + rest[place + len(fix.before) :]
    return f"{before}\n{changed}" if fix.line > 1 else changed


def _words(report: Report) -> str:
    why = [f"{one.bug.slug}: {one.evidence[0]}" for one in report.likely]
    return "; ".join([*why, report.call])[:600]


@contextlib.contextmanager
def _limit() -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"not done after {SECONDS} s")

    signal.signal(signal.SIGPROF, stop)  # of its own: other processes may have the machine
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _answer(targets: Sequence[str]) -> None:
    """One line of JSON for each; what the targets print goes nowhere."""
    out = sys.stdout
    for target in targets:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            found = ask(target)
        print(json.dumps(asdict(found)), file=out, flush=True)


# --- what it comes to ---


def problem(stranger: Stranger, found: Found) -> str | None:
    """What is not as it should be, in a word; None if all is well."""
    ran = found.verdict in (*CALM, "wrong")
    if stranger.verdict == "not-attention":
        return None if found.verdict in ("unchecked", "refused") else "taken for attention"
    if not ran:
        return "does not run"
    if stranger.verdict in CALM:
        return "false finding" if found.verdict == "wrong" else None
    if found.verdict != "wrong":
        return "not caught"
    if not set(found.slugs) <= set(stranger.slugs):
        return "misnamed"
    return "not mended" if stranger.fix and not found.mended else None


def table(pairs: Sequence[tuple[Stranger, Found]]) -> str:
    """One line for each target."""
    lines = []
    for stranger, found in pairs:
        wrong = problem(stranger, found) or "ok"
        names = ",".join(found.slugs or found.told)
        lines.append(
            f"{stranger.target:55} {stranger.verdict:9} {found.verdict:9} {wrong:15} {found.seconds:5.1f} s  {names}"
        )
    return "\n".join(lines)


def main(words: Sequence[str]) -> None:
    if words and words[0] == "--ask":
        _answer(words[1:])
        return
    chosen = [one for one in strangers() if not words or any(word in one.target for word in words)]
    pairs = list(zip(chosen, asked([one.target for one in chosen]), strict=True))
    print(table(pairs))
    for stranger, found in pairs:
        if problem(stranger, found):
            print(f"\n{stranger.target} should be {stranger.verdict} {list(stranger.slugs)} ({stranger.says})")
            print(f"    {found.verdict} {list(found.slugs)}: {found.words}")


if __name__ == "__main__":
    main(sys.argv[1:])
