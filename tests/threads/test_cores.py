"""Cores available: affinity, and quotas of control groups of both versions, in folders made for the purpose."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heed.threads import cores
from heed.threads.cores import available

V1, V2 = "3:cpu,cpuacct:{}\n2:memory:/elsewhere\n", "0::{}\n"


@pytest.fixture(autouse=True)
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "affinity", lambda: frozenset(range(16)))


def made(root: Path, lines: str, files: dict[str, str]) -> int:
    (root / "groups").write_text(lines, encoding="ascii")
    for name, text in files.items():
        path = root / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return available(root / "groups", root / "mounted")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("50000 100000", 1),
        ("100000 100000", 1),
        ("150000 100000", 2),
        ("40000 10000", 4),
        ("max 100000", 16),
        ("9900000 100000", 16),
        ("", 16),
        ("odd words", 16),
        ("0 100000", 16),
    ],
)
def test_version_2(tmp_path: Path, text: str, expected: int) -> None:
    assert made(tmp_path, V2.format("/a"), {"a/cpu.max": text}) == expected


@pytest.mark.parametrize(("quota", "period", "expected"), [(50000, 100000, 1), (250000, 100000, 3), (-1, 100000, 16)])
@pytest.mark.parametrize("folder", cores.CPU_FOLDERS)
def test_version_1(tmp_path: Path, folder: str, quota: int, period: int, expected: int) -> None:
    files = {f"{folder}/a/cpu.cfs_quota_us": f"{quota}\n", f"{folder}/a/cpu.cfs_period_us": f"{period}\n"}
    assert made(tmp_path, V1.format("/a"), files) == expected


def test_the_narrowest_group_around_it_counts(tmp_path: Path) -> None:
    files = {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000", "a/b/c/cpu.max": "800000 100000"}
    assert made(tmp_path, V2.format("/a/b/c"), files) == 3


def test_a_container_whose_path_is_of_the_outside_has_its_group_at_the_root(tmp_path: Path) -> None:
    assert made(tmp_path, V2.format("/docker/1f"), {"cpu.max": "200000 100000"}) == 2
    assert made(tmp_path, V2.format("/../../1f"), {"cpu.max": "200000 100000"}) == 2


def test_both_versions_at_once(tmp_path: Path) -> None:
    files = {
        "unified/a/cpu.max": "500000 100000",
        "cpu/a/cpu.cfs_quota_us": "200000",
        "cpu/a/cpu.cfs_period_us": "100000",
    }
    assert made(tmp_path, V1.format("/a") + V2.format("/a"), files) == 2


def test_a_group_of_another_controller_does_not_count(tmp_path: Path) -> None:
    files = {"cpu/a/cpu.cfs_quota_us": "100000", "cpu/a/cpu.cfs_period_us": "100000", "cpu/b/none": ""}
    assert made(tmp_path, "3:cpuset:/a\n4:cpu:/b\n", files) == 16


def test_nothing_is_told(tmp_path: Path) -> None:
    assert available(tmp_path / "none", tmp_path) == 16


@pytest.mark.skipif(sys.platform != "linux", reason="affinity is Linux's")
def test_a_process_that_is_bound_to_one_core_has_one(tmp_path: Path) -> None:
    script = (
        "import os; os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])\n"
        "import torch\nfrom heed.threads.teams import standard, team_size\nfrom heed.threads.cores import available\n"
        "print(available(), standard(), team_size())"
    )
    own = {name: value for name, value in os.environ.items() if name not in {"OMP_NUM_THREADS", "MKL_NUM_THREADS"}}
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=own)
    assert done.stdout.split() == ["1", "1", "1"]
