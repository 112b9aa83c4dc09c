"""A compiled library is opened if it is whole and nobody else could have written it; otherwise another is made."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path

import pytest

from heed.core.atomic import replacing
from heed.kernels import build, library, library_cache
from heed.kernels.compiler import Unavailable, digest
from heed.kernels.library_cache import find, put, unsafe

from .stand_ins import honest, real_library, stand_in

pytestmark = [
    pytest.mark.skipif(library() is None, reason="there is no compiler"),
    pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX"),
]

DATA = b"a library"
ELSEWHERE = "temporary"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and another place for temporary files."""
    monkeypatch.setenv("HEED_CACHE", str(tmp_path / "cache"))
    (tmp_path / ELSEWHERE).mkdir(mode=0o700)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / ELSEWHERE))
    return tmp_path / "cache" / "kernels"


def test_what_is_kept_is_found_again(cache: Path) -> None:
    assert find("key") is None
    place = put("key", DATA)
    assert place == cache / f"heed-key-{hashlib.sha256(DATA).hexdigest()}.so"
    assert find("key") == place
    assert find("other") is None
    assert put("key", DATA) == place
    assert [path.name for path in cache.iterdir()] == [place.name]


def test_whatever_the_umask_nobody_else_may_write(cache: Path) -> None:
    before = os.umask(0)
    try:
        place = put("key", DATA)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (place, cache, cache.parent)] == [0o600, 0o700, 0o700]
    assert find("key") == place


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut": lambda path: os.truncate(path, 4),
    "empty": lambda path: os.truncate(path, 0),
    "a bit": lambda path: path.write_bytes(bytes([DATA[0] ^ 1]) + DATA[1:]),
    "longer": lambda path: path.write_bytes(DATA + b"\0"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_one_is_removed(damage: str) -> None:
    place = put("key", DATA)
    DAMAGE[damage](place)
    assert find("key") is None
    assert not place.exists()
    assert put("key", DATA) == place == find("key")


def _of_another(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(path, 12345, 12345)


FOREIGN: dict[str, Callable[[Path], object]] = {
    "of another user": _of_another,
    "of a group": lambda path: path.chmod(0o720),
    "of all": lambda path: path.chmod(0o702),
}


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_file_that_others_may_have_written_is_not_opened(foreign: str) -> None:
    place = put("key", DATA)
    FOREIGN[foreign](place)
    assert find("key") is None
    assert put("key", DATA) == place == find("key")  # another in its place


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_folder_that_others_may_write_to_is_left_alone(
    foreign: str, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put("key", DATA)
    FOREIGN[foreign](cache)
    assert find("key") is None
    place = put("key", DATA)
    assert place.parent == tmp_path / ELSEWHERE / f"heed-{os.geteuid()}"
    assert place == find("key")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"kernels are kept in {place.parent} (" in said
    assert str(cache) in said


@pytest.mark.parametrize("foreign", ["of another user", "of all"])
def test_a_folder_above_that_lets_others_replace_it(foreign: str, cache: Path) -> None:
    put("key", DATA)
    FOREIGN[foreign](cache.parent)
    assert find("key") is None
    assert put("key", DATA).parent != cache
    cache.parent.chmod(0o1777)  # as /tmp
    place = find("key")
    assert place is not None
    assert (place.parent == cache) == (foreign == "of all")


def test_in_a_folder_of_another_nothing_is_made(cache: Path, tmp_path: Path) -> None:
    cache.parent.mkdir()
    _of_another(cache.parent)
    assert put("key", DATA).parent != cache
    assert not list(cache.parent.iterdir())


def test_a_group_may_write_to_a_folder_above(cache: Path) -> None:
    """As umask 002 has it. What the group puts there belongs to another user."""
    place = put("key", DATA)
    cache.parent.chmod(0o770)
    assert find("key") == place


def test_everything_of_root_may_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    place = put("key", DATA)
    monkeypatch.setattr(library_cache, "_me", lambda: 54321)
    assert (find("key") == place) == (os.geteuid() == 0)


def test_a_link_is_not_opened(tmp_path: Path) -> None:
    place = put("key", DATA)
    aside = tmp_path / "aside"
    place.rename(aside)
    place.symlink_to(aside)
    assert find("key") is None
    place.unlink()
    os.mkfifo(place, 0o600)  # to read which would hang
    assert find("key") is None


def test_a_cache_that_is_a_link_to_a_folder_of_mine(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir(mode=0o700)
    cache.parent.symlink_to(tmp_path / "large disk")
    assert put("key", DATA) == find("key")
    assert (tmp_path / "large disk" / "kernels").is_dir()
    (tmp_path / "large disk").chmod(0o777)
    assert unsafe(cache.resolve())
    assert find("key") is None


def _no_home(*given: object) -> Path:
    raise RuntimeError("Could not determine home directory.")


def test_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEED_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", _no_home)
    place = put("key", DATA)
    assert place.parent == tmp_path / ELSEWHERE / f"heed-{os.geteuid()}"
    assert place == find("key")


def test_a_temporary_folder_of_another_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which anybody may have made before, since its name is known."""
    monkeypatch.setattr(Path, "home", _no_home)
    for name in ("HEED_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    theirs = tmp_path / ELSEWHERE / f"heed-{os.geteuid()}"
    theirs.mkdir(mode=0o777)
    theirs.chmod(0o777)
    with pytest.raises(Unavailable, match=f"no place to keep them: others may write to {theirs}"):
        put("key", DATA)


def _full(path: Path) -> None:
    raise OSError(ENOSPC, "No space left on device", str(path))


def test_a_full_disk(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        library_cache, "replacing", lambda path: replacing(path) if ELSEWHERE in str(path) else _full(path)
    )
    assert ELSEWHERE in str(put("key", DATA))
    assert "No space left on device" in capsys.readouterr().err
    monkeypatch.setattr(library_cache, "replacing", _full)
    with pytest.raises(Unavailable, match=r"No space left on device.*No space left on device.*HEED_CACHE"):
        put("key", DATA)


def test_a_write_that_breaks_off_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def half(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(Unavailable):
        put("key", DATA)
    assert not list(cache.iterdir())


def test_a_cache_that_cannot_be_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("HEED_CACHE", str(file))
    assert ELSEWHERE in str(put("key", DATA))
    monkeypatch.setattr("tempfile.tempdir", str(file))
    with pytest.raises(Unavailable, match=f"there is no place to keep them: {file}/kernels: Not a directory"):
        put("key", DATA)


# --- as a whole ---


def test_nothing_is_compiled_that_cannot_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("HEED_CACHE", str(file))
    monkeypatch.setenv("CXX", stand_in(tmp_path, f"touch {tmp_path}/asked"))
    (tmp_path / ELSEWHERE / f"heed-{os.geteuid()}").touch()
    with pytest.raises(Unavailable, match="there is no place to keep them"):
        build.built()
    assert not (tmp_path / "asked").exists()


def test_a_library_is_compiled_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", honest(tmp_path))
    place = build.built()
    assert place.parent == cache
    assert place.read_bytes() == real_library().read_bytes()
    stand_in(tmp_path, "exit 1")  # which would not compile any more
    assert build.built() == place
    os.truncate(place, 5000)
    with pytest.raises(Unavailable):
        build.built()
    honest(tmp_path)
    assert build.built().read_bytes() == real_library().read_bytes()


CHILD = "from heed.kernels import described, library; print(library() is not None, described())"


@pytest.mark.skipif(sys.platform != "linux", reason="libraries are ELF files there")
def test_a_process_survives_a_library_that_was_cut(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open it would end the process by SIGBUS. Its name says that it is whole: the file itself is looked at, too."""
    cut = real_library().read_bytes()[:100_000]
    monkeypatch.setenv("CXX", honest(tmp_path))
    monkeypatch.setenv("HEED_KERNELS", "compile")
    planted = put(digest(os.environ["CXX"]), cut)
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"False none: {planted} is no library, or a part of one\n"), done
    assert done.stderr.count("\n") == 1
    named = planted.with_name(planted.name.replace(hashlib.sha256(cut).hexdigest(), "0" * 64))
    planted.rename(named)
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"True compiled here by {os.environ['CXX']}\n"), done
    assert not named.exists()
