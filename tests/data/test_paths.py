"""A folder, a pattern or several files as data, and which split each belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from heed.core.errors import InputError
from heed.data.files import Files
from heed.data.paths import by_split, expanded
from tests.data.support import PAIR, TEXT, refused, rows_of


@pytest.fixture
def books(tmp_path: Path) -> Path:
    """Three texts, one in a folder within, and what else lies in folders."""
    for name, text in {
        "b.txt": "second\n",
        "a.txt": "first\n",
        "more/c.txt": "third\n",
        "notes.md": "x",
        ".hidden.txt": "x",
        ".git/d.txt": "x",
    }.items():
        (tmp_path / "books" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "books" / name).write_text(text)
    return tmp_path / "books"


def test_a_folder_is_its_files_in_order_each_a_document(books: Path) -> None:
    source = Files(test=str(books))
    assert rows_of(source, TEXT) == [("first\n",), ("second\n",), ("third\n",)]
    said = source.split("test", TEXT).report()
    assert said == "a.txt, b.txt, c.txt: 19 characters in 3 texts (1 file of another format passed over)"


def test_a_pattern_is_what_it_matches(books: Path) -> None:
    assert rows_of(Files(test=f"{books}/*.txt"), TEXT) == [("first\n",), ("second\n",)]
    assert len(rows_of(Files(test=f"{books}/**/*.txt"), TEXT)) == 3
    assert rows_of(Files(test=(f"{books}/b.txt", f"{books}/a.*")), TEXT) == [("second\n",), ("first\n",)]
    assert "no file matches" in refused(Files(test=f"{books}/*.csv"))


def test_a_file_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_text("x")
    (tmp_path / "a1.txt").write_text("y")
    assert rows_of(Files(test=str(tmp_path / "a[1].txt")), TEXT) == [("x",)]


def test_folders_that_cannot_be_meant(books: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "holds no file of a format that heed reads" in refused(Files(test=str(tmp_path / "empty")))
    (books / "d.csv").write_text("a,b\n")
    said = refused(Files(test=str(books)))
    assert "holds files of several formats (csv, text)" in said
    assert f"as {books / '*.txt'}" in said
    assert expanded(str(books), "text").passed == 0  # a format that is given is that of all files


def test_many_files_are_counted_not_listed_and_some_are_held_out(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number:02}.txt").write_text(f"text {number}\n")
    source = Files(train=str(tmp_path))
    train, valid = source.split("train", TEXT), source.split("valid", TEXT)
    assert (len(train), len(valid)) == (38, 2)
    assert {*train, *valid} == {(f"text {number}\n",) for number in range(40)}
    assert "40 files, 00.txt to 39.txt: 294 characters in 38 texts (2 texts with 16 held out" in train.report()
    assert "held out of 40 texts of train" in valid.report()


def test_a_text_too_short_to_be_cut_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    (tmp_path / "b.txt").write_text("a line of text\n" * 100)
    source = Files(train=str(tmp_path))
    assert source.split("train", TEXT)[0] == ("x\n",)
    assert len(source.split("valid", TEXT)) == 1


def test_rows_of_several_files_have_the_same_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("source,target\nA dog.,Ein Hund.\n")
    (tmp_path / "b.csv").write_text("source,target\nA cat.,Eine Katze.\n")
    assert rows_of(Files(test=str(tmp_path))) == [("A dog.", "Ein Hund."), ("A cat.", "Eine Katze.")]
    (tmp_path / "c.csv").write_text("target,source\nEin Ei.,An egg.\n")
    said = refused(Files(test=str(tmp_path)))
    assert "c.csv has other columns than " in said
    assert "(2 columns: target, source; 2 columns: source, target)" in said
    assert len(rows_of(Files(test=str(tmp_path), columns=PAIR))) == 3  # by name there is no doubt


# --- splits ---


def test_files_by_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = str(tmp_path)
    assert by_split("a.txt", "train") == {"train": (f"{here}/a.txt",)}
    assert by_split(["a.txt", Path("b.txt")], "test") == {"test": (f"{here}/a.txt", f"{here}/b.txt")}
    assert by_split({"train": "a", "valid": ["~/b"]}, "train") == {"train": (f"{here}/a",), "valid": ("~/b",)}
    with pytest.raises(InputError, match="'dev' is not a split; it is called valid here"):
        by_split({"dev": "a"}, "train")
    with pytest.raises(InputError, match=r"'tets' is not a split; did you mean test\?"):
        by_split({"tets": "a"}, "train")
    for wrong in ([], [3]):
        with pytest.raises(InputError, match="give the path of a file or a folder"):
            by_split(wrong, "train")  # type: ignore[arg-type]


def test_a_folder_of_splits_is_not_one_split(tmp_path: Path) -> None:
    """What is to be tested on must not be learnt from."""
    for name in ("pairs.train.tsv", "pairs.dev.tsv.gz", "pairs.test2016.tsv"):
        (tmp_path / name).write_text("a\tb\n")
    found = by_split(tmp_path, "train")
    assert {name: [Path(path).name for path in paths] for name, paths in found.items()} == {
        "train": ["pairs.train.tsv"],
        "valid": ["pairs.dev.tsv.gz"],
        "test": ["pairs.test2016.tsv"],
    }
    (tmp_path / "pairs.train.tsv").unlink()
    assert by_split(tmp_path, "test").keys() == {"valid", "test"}
    with pytest.raises(
        InputError, match=r"named after splits \(valid, test\), and none after train; say which is which"
    ):
        by_split(tmp_path, "train")
    (tmp_path / "pairs.train.tsv").write_text("a\tb\n")
    (tmp_path / "extra.tsv").write_text("a\tb\n")
    with pytest.raises(InputError, match="3 files named after splits .* and 1 others; say which is which: train=PATH"):
        by_split(tmp_path, "train")


def test_a_folder_without_words_of_splits_is_one(books: Path) -> None:
    assert by_split(books, "train") == {"train": (str(books),)}
    (books / "train_ride.txt").write_text("x")
    assert by_split(books, "train") == {"train": (str(books),)}


@pytest.mark.parametrize(
    ("columns", "words"), [(TEXT, r"plain text \(\.txt\), or the column text"), (PAIR, "tsv or csv")]
)
def test_no_data_at_all_says_what_is_taken(columns: tuple[str, ...], words: str) -> None:
    with pytest.raises(InputError, match=f"--data PATH.* data=PATH.*{words}"):
        Files().split("train", columns)
