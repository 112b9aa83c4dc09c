"""The standard library as text: which files, which split, and how a small share of it is spread."""

from __future__ import annotations

from pathlib import Path

import pytest

from heed.core.errors import ConfigError, InputError
from heed.data import stdlib
from heed.data.base import Name
from heed.data.stdlib import LEFT_OUT, Stdlib, excerpt, level, library, modules, split_of

NAMES: tuple[Name, ...] = ("train", "valid", "test")


def texts(source: Stdlib, name: Name) -> list[str]:
    return [text for (text,) in source.split(name, ("text",))]


def plant(root: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)


def planted(monkeypatch: pytest.MonkeyPatch, root: Path, files: dict[str, bytes]) -> None:
    plant(root, files)
    monkeypatch.setattr(stdlib, "library", lambda: root)


def named(name: Name) -> str:
    """The path of a module that belongs to this split."""
    return next(path for path in (f"m{number}.py" for number in range(999)) if split_of(Path(path)) == name)


def test_the_library_is_code_that_python_reads() -> None:
    train = Stdlib().split("train", ("text",))
    assert not train.endless
    assert len(train) > 100
    for (text,) in list(train)[:20]:
        compile(text, "module", "exec")
    assert train.report().startswith(f"stdlib, train: {len(train):,} files, ")


def test_no_file_is_in_two_splits_and_the_shares_are_as_said() -> None:
    home = library()
    found = [split_of(file.relative_to(home)) for file in modules(home)]
    lengths = {name: len(Stdlib(bytes=10**6).split(name, ("text",))) for name in NAMES}
    assert sum(lengths.values()) <= len(found)
    assert 0.85 < found.count("train") / len(found) < 0.95
    assert min(found.count("valid"), found.count("test")) > 0.02 * len(found)


def test_tests_and_strangers_are_left_out(tmp_path: Path) -> None:
    for names in LEFT_OUT:
        plant(tmp_path, {f"package/{name}/module.py": b"pass\n" for name in names})
    plant(tmp_path, {"_sysconfigdata_linux.py": b"", "config-3/a.py": b"", "b.txt": b"", "z/a.py": b"", "a.py": b""})
    assert modules(tmp_path) == [tmp_path / "a.py", tmp_path / "z" / "a.py"]


@pytest.mark.parametrize("most", [2_000_000, 200_000])
def test_a_cap_holds_and_keeps_the_variety(most: int) -> None:
    source = Stdlib(bytes=most)
    every = [text for name in NAMES for text in texts(source, name)]
    total = sum(len(text.encode()) for text in every)
    assert 0.8 * most < total <= most
    assert len(every) > 0.9 * sum(len(texts(Stdlib(), name)) for name in NAMES)


def test_the_same_cap_gives_the_same_texts() -> None:
    assert texts(Stdlib(bytes=50_000), "valid") == texts(Stdlib(bytes=50_000), "valid")


@pytest.mark.parametrize(
    ("sizes", "total", "most"), [([5, 5, 5], 9, 3), ([1, 9, 9], 11, 5), ([2, 3], 99, 3), ([7], 0, 0)]
)
def test_water_finds_its_level(sizes: list[int], total: int, most: int) -> None:
    assert level(sizes, total) == most


@pytest.mark.parametrize("number", range(6))
def test_an_excerpt_is_whole_lines_that_follow_one_another(number: int) -> None:
    text = "".join(f"line {line}\n" for line in range(9))
    part = excerpt(text, 23, number)
    assert part == "".join(f"line {line}\n" for line in range(number, number + 3))


def test_a_short_text_is_its_own_excerpt() -> None:
    assert excerpt("a\nb\n", 99, 12345) == "a\nb\n"


def test_excerpts_do_not_all_begin_at_the_top() -> None:
    whole = texts(Stdlib(), "valid")
    parts = texts(Stdlib(bytes=200_000), "valid")
    assert sum(not text.startswith(part) for text, part in zip(whole, parts, strict=True)) > len(parts) / 2


def test_the_encoding_is_the_one_that_a_file_declares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planted(monkeypatch, tmp_path, {named("train"): "# coding: latin-1\n# é\n".encode("latin-1")})
    assert texts(Stdlib(), "train") == ["# coding: latin-1\n# é\n"]


def test_a_file_that_cannot_be_read_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bad = named("train")
    planted(monkeypatch, tmp_path, {bad: b"\xff", f"z/{bad}": b"a = 1\n", f"y/{bad}": b"b = 2\n"} | OTHERS)
    assert f"not readable: {bad}" in Stdlib().split("train", ("text",)).report()


OTHERS = {f"module{number}.py": b"c = 3\n" for number in range(20)}


def test_a_python_without_sources_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planted(monkeypatch, tmp_path, {"os.pyc": b"", "test/a.py": b"pass\n"})
    with pytest.raises(InputError, match="keeps no sources"):
        Stdlib().split("train", ("text",))


def test_a_cap_that_leaves_nothing_is_told() -> None:
    with pytest.raises(InputError, match="allow more bytes"):
        Stdlib(bytes=10).split("valid", ("text",))
    with pytest.raises(ConfigError, match="greater than 0"):
        Stdlib(bytes=0)


def test_there_is_one_column() -> None:
    with pytest.raises(InputError, match="the column 'text', not 'source', 'target'"):
        Stdlib().split("train", ("source", "target"))


def test_an_index_beyond_the_end_is_an_error() -> None:
    test = Stdlib(bytes=100_000).split("test", ("text",))
    for index in (-1, len(test)):
        with pytest.raises(IndexError):
            test[index]


def test_the_configuration_survives_a_file(tmp_path: Path) -> None:
    source = Stdlib(bytes=1000)
    source.write(tmp_path / "data.toml")
    assert Stdlib.read(tmp_path / "data.toml") == source
    assert source.splits() == NAMES
