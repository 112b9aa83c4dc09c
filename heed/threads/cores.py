"""How many cores this process may use: those it is bound to, and the CPU quota of its control groups.

A container with a quota of half a core on a machine of 64 sees 64 cores; 64 threads would use up the quota of a period
in a moment and stand still for the rest of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/proc/self/cgroup")  # the control groups of this process, by hierarchy
MOUNTED = Path("/sys/fs/cgroup")
CPU_FOLDERS = ("cpu", "cpu,cpuacct", "cpuacct,cpu")  # where version 1 is mounted
UNIFIED = ("", "unified")  # and version 2, alone or beside version 1


def available(groups: Path = GROUPS, mounted: Path = MOUNTED) -> int:
    """Cores that this process may use at a time, at least one; a part of a core is one."""
    limits = [-(-quota // period) for quota, period in _quotas(groups, mounted)]
    return max(1, min([bound_to(), *limits]))


def affinity() -> frozenset[int] | None:
    """The cores that this process is bound to; None where systems do not tell."""
    return frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else None


def bound_to() -> int:
    """How many they are; all of them where systems do not tell."""
    bound = affinity()
    return len(bound) if bound is not None else os.cpu_count() or 1


def _quotas(groups: Path, mounted: Path) -> Iterator[tuple[int, int]]:
    """Microseconds of CPU time, and of the period that they are given for: of every group that this one lies in."""
    files: Iterator[tuple[Path, tuple[str, ...]]]  # folders, and the names of the files in them
    for controllers, path in _memberships(groups):
        if controllers == "":
            files = ((mounted / folder, ("cpu.max",)) for folder in UNIFIED)
        elif "cpu" in controllers.split(","):
            files = ((mounted / folder, ("cpu.cfs_quota_us", "cpu.cfs_period_us")) for folder in CPU_FOLDERS)
        else:
            continue
        for root, names in files:
            for folder in _upwards(root, path):
                numbers = _numbers(folder, names)
                if len(numbers) == 2 and min(numbers) > 0:
                    yield numbers[0], numbers[1]


def _memberships(groups: Path) -> Iterator[tuple[str, str]]:
    """Controllers, none for version 2, and the path of the group below where they are mounted."""
    try:
        lines = groups.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon:
            yield controllers, path


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """The folder of a group, of those around it, and the root.

    Within a container the path may be one of the outside: then its own group is the root, which is always looked at.
    """
    parts = [part for part in path.split("/") if part not in {"", ".", ".."}]
    for count in range(len(parts), -1, -1):
        yield root.joinpath(*parts[:count])


def _numbers(folder: Path, names: tuple[str, ...]) -> list[int]:
    """What the files of a group say; no limit is `max` in version 2 and -1 in version 1."""
    try:
        words = " ".join((folder / name).read_text(encoding="ascii") for name in names).split()
        return [int(word) for word in words]
    except (OSError, ValueError):
        return []
