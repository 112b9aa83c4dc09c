"""`make wheel-linux`: what is put into a wheel is recorded and tagged; a library that needs too much is refused."""

from __future__ import annotations

import base64
import csv
import hashlib
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from heed.kernels import prebuilt
from tools import wheel

INFO = "heed_attention-1.0.dist-info"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A wheel of sources, as setuptools would make it."""
    place = tmp_path / "heed_attention-1.0-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as made:
        for path in prebuilt.SOURCES.iterdir():
            made.writestr(f"heed/kernels/source/{path.name}", path.read_bytes())
        made.writestr(f"{INFO}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{INFO}/RECORD", "")
    return place


def test_libraries_are_recorded_and_tagged(plain: Path, tmp_path: Path) -> None:
    library = tmp_path / prebuilt.VARIANTS[0].place.name
    library.write_bytes(b"code")
    made = wheel.with_libraries(plain, [library], tmp_path)
    assert made.name == "heed_attention-1.0-py3-none-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(made) as held:
        record = {row[0]: row[1:] for row in csv.reader(held.read(f"{INFO}/RECORD").decode().splitlines())}
        assert set(record) == set(held.namelist())
        for name, (digest, size) in record.items():
            if name != f"{INFO}/RECORD":
                data = held.read(name)
                found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                assert (digest, int(size)) == (f"sha256={found}", len(data))
        assert held.read(f"heed/kernels/prebuilt/{library.name}") == b"code"
        told = held.read(f"{INFO}/WHEEL").decode()
        assert "Root-Is-Purelib: false\nTag: py3-none-manylinux_2_28_x86_64\n" in told


def test_other_sources_than_these_are_refused(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edited = tmp_path / "source"
    shutil.copytree(prebuilt.SOURCES, edited)
    (edited / "team.h").write_text("other")
    monkeypatch.setattr(prebuilt, "SOURCES", edited)
    with pytest.raises(SystemExit, match=r"holds other sources than .*: team\.h"):
        wheel.with_libraries(plain, [], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_library_that_needs_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not shutil.which("g++") or not shutil.which("objdump"):
        pytest.skip("there is no g++")
    (tmp_path / "small.cpp").write_text('#include <cmath>\nextern "C" double f(double x) { return std::log(x); }')
    (tmp_path / "large.cpp").write_text("#include <omp.h>\nint f() { return omp_get_max_threads(); }")
    for name, flags in (("small", ()), ("large", ("-fopenmp",))):
        command = ["g++", "-shared", "-fPIC", str(tmp_path / f"{name}.cpp"), *flags, "-o", str(tmp_path / f"{name}.so")]
        subprocess.run(command, check=True)
    assert wheel.problems(tmp_path / "large.so") == ["it needs libgomp.so.1", "omp_get_max_threads is of OMP 1.0"]
    monkeypatch.setitem(wheel.NEWEST, "GLIBC", (2, 2, 4))
    assert any("log is of GLIBC" in line for line in wheel.problems(tmp_path / "small.so"))
