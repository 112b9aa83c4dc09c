"""Compilers that fail in strange ways: kernels are not built, one line says why, and everything goes on in torch."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from heed.kernels import build, compiler, library, prebuilt
from heed.kernels.compiler import Unavailable, compile_here, compile_to, no_library, run

from .stand_ins import honest, real_library, stand_in

pytestmark = [
    pytest.mark.skipif(library() is None, reason="there is no compiler"),
    pytest.mark.skipif(os.name != "posix", reason="stand-ins are shell scripts"),
]

BAD = {
    "says bytes": (r"printf 'error: \377\376 caf\351\n'; exit 1", "could not build them: error: �� caf�"),
    "says nothing": ("exit 3", "could not build them: it ended with 3 and no reason"),
    "writes nothing": ("exit 0", "could not build them: it wrote nothing"),
    "writes text": ('echo hello > "$out"', "could not build them: it wrote something that is no library"),
    "writes a header": (
        r"""printf '\177ELF\002\001' > "$out" """,
        "could not build them: it wrote a part of a library",
    ),
    "writes a part": ('head -c 100000 "$LIBRARY" > "$out"', "could not build them: it wrote a part of a library"),
    "writes a folder": ('mkdir "$out"', "could not build them: it wrote nothing"),
    "is killed": ("kill -9 $$", "could not build them: it ended with -9 and no reason"),
    "prints without end": ("yes", "prints without end"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_compiler(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body, words = BAD[name]
    monkeypatch.setenv("LIBRARY", str(real_library()))
    monkeypatch.setenv("HEED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HEED_KERNELS", "compile")
    monkeypatch.setenv("CXX", stand_in(tmp_path, body))
    loaded = build._loaded.__wrapped__()
    assert loaded.library is None
    assert words in loaded.words
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("heed: no kernels are used (")
    assert not list((tmp_path).glob("cache/**/*.so"))


def test_a_compiler_that_hangs_ends_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "SECONDS", 0.5)
    hanging = stand_in(tmp_path, f"sleep 1000 & echo $! > {tmp_path}/child; cat; wait")
    begun = time.monotonic()
    with pytest.raises(Unavailable, match=r"stand-in did not end within 0\.5 seconds"):
        compile_here(hanging, tmp_path / "made.so")
    assert time.monotonic() - begun < 30
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or "zombie" in Path(f"/proc/{child}/status").read_text():
            break
        time.sleep(0.05)
    else:
        pytest.fail("the compiler's child lives on")


def test_a_program_that_is_none(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(Unavailable, match="does not run"):
            run([str(place)])
    with pytest.raises(Unavailable, match="does not run"):
        run(["a\0b"])


def test_nothing_is_read_from_the_keyboard(tmp_path: Path) -> None:
    assert run([stand_in(tmp_path, "cat; echo done")]) == (0, "done\n")


def test_little_of_much_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "KEPT", 10)
    assert run([stand_in(tmp_path, "seq 1000")]).words == "1\n2\n3\n4\n5\n"


def test_flags_that_a_compiler_does_not_know_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEED_CXXFLAGS", "-DMINE '-DTWO WORDS'")
    body = f"""for word; do
  case "$word" in
    -march=native | -fopenmp) exit 1;;
    -DMINE | "-DTWO WORDS") echo $word >> {tmp_path}/told;;
  esac
done
"""
    compile_here(stand_in(tmp_path, f'{body}cp {real_library()} "$out"'), tmp_path / "made.so")
    assert (tmp_path / "made.so").read_bytes() == real_library().read_bytes()
    assert (tmp_path / "told").read_text() == "-DMINE\n-DTWO WORDS\n"


def test_the_name_tells_all_that_it_depends_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [compiler.digest(honest(tmp_path))]
    assert compiler.digest(honest(tmp_path)) == made[0]
    monkeypatch.setattr(prebuilt, "FLAGS", (*prebuilt.FLAGS, "-DOTHER"))
    made.append(compiler.digest(honest(tmp_path)))
    monkeypatch.setenv("HEED_CXXFLAGS", "-DMINE")
    made.append(compiler.digest(honest(tmp_path)))
    monkeypatch.setattr(compiler, "_processor", lambda: "another one")
    made.append(compiler.digest(honest(tmp_path)))
    made.append(compiler.digest(stand_in(tmp_path, "").replace("stand-in", "./stand-in")))
    changed = tmp_path / "source"
    changed.mkdir()
    for path in prebuilt.SOURCES.iterdir():
        (changed / path.name).write_bytes(path.read_bytes() + b"\n")
    monkeypatch.setattr(prebuilt, "SOURCES", changed)
    made.append(compiler.digest(honest(tmp_path)))
    assert len(set(made)) == 5  # not the place of the compiler: what it says
    monkeypatch.setenv("HEED_CXXFLAGS", "-D'MINE")
    with pytest.raises(Unavailable, match="HEED_CXXFLAGS cannot be read"):
        compiler.digest(honest(tmp_path))


def test_a_broken_source_names_its_first_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str) -> None:
    (tmp_path / "broken.cpp").write_text("int main( {")
    monkeypatch.setattr(prebuilt, "SOURCES", tmp_path)
    with pytest.raises(Unavailable, match=r"could not build them: .*error"):
        compile_here(compiler, tmp_path / "made.so")
    assert [path.name for path in tmp_path.iterdir()] == ["broken.cpp"]


def test_what_stood_there_stays_if_nothing_is_made(tmp_path: Path) -> None:
    place = tmp_path / "made.so"
    place.write_bytes(b"before")
    assert compile_to(place, stand_in(tmp_path, 'echo text > "$out"'), ()) == "it wrote something that is no library"
    assert place.read_bytes() == b"before"


def test_a_library_that_was_cut_is_none() -> None:
    whole = real_library().read_bytes()
    assert not no_library(whole)
    assert [bool(no_library(whole[:size])) for size in (0, 3, 16, 64, 4096, len(whole) // 2, len(whole) - 1)] == [
        True
    ] * 7
    assert not no_library(b"\xcf\xfa\xed\xfe and so on")
