"""What makes a machine busy, or small: processes that compute for nothing, and quotas of CPU time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

# It ends with whoever has started it, also if that is killed.
LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(100_000): pass"
GROUPS = Path("/sys/fs/cgroup")
PERIOD = 100_000  # microseconds
Join = Callable[[int], None]  # puts a process, by its number, under a quota


@dataclass(frozen=True)
class Condition:
    """Beside so many busy processes, or under a quota of so many cores."""

    others: int = 0
    quota: float | None = None

    @property
    def title(self) -> str:
        return f"beside {self.others}" if self.quota is None else f"quota {self.quota:g}"


@contextmanager
def crowd(others: int) -> Iterator[None]:
    """So many processes that compute for nothing; they end with the block."""
    busy = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(others)]
    try:
        time.sleep(0.3 if others else 0.0)  # until they run
        yield
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()


@contextmanager
def limited(cores: float, mounted: Path = GROUPS) -> Iterator[tuple[str, Join]]:
    """How a process is put under a quota, and by what: a control group where one may be made, else by stopping it."""
    group = _made(cores, mounted)
    if group is None:
        with _stopping(cores) as join:
            yield "stopped and continued", join
        return
    try:
        yield "control group", lambda pid: _written(group / "cgroup.procs", pid)
    finally:
        for _ in range(100):  # until the last process in it is gone
            with suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.05)


def _made(cores: float, mounted: Path) -> Path | None:
    """A control group with this quota, of version 1 or 2; None where none may be made."""
    for root, files in (
        (mounted / "cpu", {"cpu.cfs_period_us": PERIOD, "cpu.cfs_quota_us": round(cores * PERIOD)}),
        (mounted, {"cpu.max": f"{round(cores * PERIOD)} {PERIOD}"}),
    ):
        group = root / f"heed-bench-{os.getpid()}-{cores:g}"
        try:
            if not (root / "cgroup.procs").exists():
                continue
            group.mkdir()
            for name, value in files.items():
                if not (group / name).exists():
                    raise OSError(f"{group} has no {name}")
                _written(group / name, value)
        except OSError:
            with suppress(OSError):
                group.rmdir()
            continue
        return group
    return None


def _written(path: Path, value: object) -> None:
    path.write_text(f"{value}\n", encoding="ascii")


@contextmanager
def _stopping(cores: float) -> Iterator[Join]:
    """On one core, and stopped for a part of every tenth of a second. More than one core is not limited so."""
    joined: list[int] = []
    end = threading.Event()
    share = min(1.0, cores)

    def tell(number: signal.Signals) -> None:
        for pid in joined:
            with suppress(OSError):
                os.kill(pid, number)

    def turn() -> None:
        while not end.wait(share * PERIOD / 1e6):
            if share < 1:
                tell(signal.SIGSTOP)
                time.sleep((1 - share) * PERIOD / 1e6)
                tell(signal.SIGCONT)

    def join(pid: int) -> None:
        if sys.platform == "linux":
            os.sched_setaffinity(pid, sorted(os.sched_getaffinity(pid))[:1])
        joined.append(pid)

    turning = threading.Thread(target=turn, daemon=True)
    turning.start()
    try:
        yield join
    finally:
        end.set()
        turning.join()
        tell(signal.SIGCONT)
