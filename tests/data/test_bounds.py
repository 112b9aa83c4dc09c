"""Files that hold more than they seem to: refused before they take the memory."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pyarrow  # type: ignore[import-untyped]
import pytest
from pyarrow import parquet

from heed.data.files import Files
from tests.data.support import PAIR, TEXT, Write, refused, rows_of

MEMORY = 3 << 30  # bytes of address space, of which arrow reserves much more than it takes
READ = f"""
import resource, sys
import pyarrow.parquet
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
from heed.core.errors import InputError
from heed.data.files import Files
try:
    Files(test=sys.argv[1]).split("test", ("text",))
except InputError as error:
    print(error)
"""


def said_of(path: Path) -> str:
    """The words in which a file is refused by a process with little memory and the usual settings."""
    command = [sys.executable, "-c", READ, str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_lines_are_bounded(write: Write) -> None:
    for name, text in {"a.tsv": "a\tb\n", "a.csv": "a,b\n", "a.jsonl": '{"source": "a", "target": "b"}\n'}.items():
        path = write(name, text)
        assert rows_of(Files(test=path, max_line=len(text), header=False)) == [("a", "b")]
        assert f"{name}:1: a line, or a row of several, of more than {len(text) - 1} bytes" in (
            said := refused(Files(test=path, max_line=len(text) - 1))
        )
        assert "raise data.max_line" in said
    assert "a.txt:2: a line" in refused(Files(test=write("a.txt", "ab\nabcdef"), max_line=5), TEXT)


def test_an_open_quote_does_not_take_the_file(write: Write) -> None:
    path = write("a.csv", 'a,b\nc,"d\n' + "e,f\n" * 1000)
    assert "a.csv:2: a line, or a row of several, of more than 100 bytes" in refused(Files(test=path, max_line=100))
    assert rows_of(Files(test=write("b.csv", "c,d\n" * 1000), max_line=100), PAIR) == [("c", "d")] * 1000


def test_text_and_rows_of_all_files_of_a_split_are_bounded(write: Write) -> None:
    paths = (write("a.tsv", "a\tb\n\n"), write("b.tsv.gz", "c\td\n"))
    assert len(rows_of(Files(test=paths, max_text=9, max_rows=3))) == 2
    said = refused(Files(test=paths, max_text=8))
    assert "b.tsv.gz: with it there are more than 8 bytes of text" in said
    assert "raise data.max_text" in said
    said = refused(Files(test=paths, max_rows=2))
    assert "b.tsv.gz: with it there are more than 2 rows" in said
    assert "raise data.max_rows" in said


def test_changed_bounds_are_heard(write: Write) -> None:
    source = Files(test=write("a.tsv", "a\tb\n"))
    assert len(rows_of(source)) == 1
    refused(source.model_copy(update={"max_text": 1}))


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    line = b"a text like any other that is repeated again and again " * 18_000 + b"\n"
    with gzip.open(tmp_path / "a.txt.gz", "wb", compresslevel=1) as file:
        for _ in range(400):
            file.write(line)
    size = (tmp_path / "a.txt.gz").stat().st_size
    assert f"its {size:,} bytes unpack to more than" in said_of(tmp_path / "a.txt.gz")


def test_an_endless_line_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "a.txt").open("wb") as file:
        file.write(b"text")
        file.truncate(1 << 30)
    assert "a.txt:1: a line, or a row of several, of more than 134,217,728 bytes" in said_of(tmp_path / "a.txt")


@pytest.mark.parametrize("trick", ["dictionary", "compressed", "repeated"])
def test_a_parquet_bomb_is_not_unpacked(tmp_path: Path, trick: str) -> None:
    path = tmp_path / "a.parquet"
    if trick == "dictionary":  # 4,000 rows name one text of a million letters
        indices = pyarrow.array([0] * 4000, pyarrow.int32())
        column = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(["x" * 1_000_000]))
        parquet.write_table(pyarrow.table({"text": column}), path, store_schema=False)
    elif trick == "compressed":
        table = pyarrow.table({"text": ["x" * 100_000] * 3000})
        parquet.write_table(table, path, compression="zstd", use_dictionary=False)
    else:  # each text repeats the one before
        table = pyarrow.table({"text": ["x" * 1_000_000] * 300})
        parquet.write_table(table, path, column_encoding={"text": "DELTA_BYTE_ARRAY"}, use_dictionary=False)
    assert path.stat().st_size < 100_000
    said = said_of(path)
    assert "bytes unpack to more than 268,435,456" in said
    assert "raise data.max_ratio above 100" in said


def test_rows_of_parquet_are_counted_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    texts = ["a", "b", "a", None, "ü" * 7]
    parquet.write_table(pyarrow.table({"text": texts}), path, row_group_size=2)
    assert "more than 4 rows" in refused(Files(test=str(path), max_rows=4), TEXT)
    assert "more than 16 bytes of text" in refused(Files(test=str(path), max_text=16), TEXT)
    assert rows_of(Files(test=str(path), bad_rows="skip"), TEXT) == [(text,) for text in texts if text]


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_parquet_without_dictionaries_is_read(tmp_path: Path, encoding: str) -> None:
    path, texts = tmp_path / "a.parquet", [f"line {number}" for number in range(9)]
    parquet.write_table(pyarrow.table({"text": texts}), path, use_dictionary=False, column_encoding={"text": encoding})
    assert rows_of(Files(test=str(path)), TEXT) == [(text,) for text in texts]


def test_text_of_parquet_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    raw = pyarrow.array([b"good", b"bad \xff", b"fine"], pyarrow.binary())
    column = pyarrow.StringArray.from_buffers(3, *raw.buffers()[1:])
    parquet.write_table(pyarrow.table({"text": column}), path)
    assert "a.parquet:2: byte 5, 0xff, is not UTF-8" in refused(Files(test=str(path)), TEXT)
    assert rows_of(Files(test=str(path), bad_rows="skip"), TEXT) == [("good",), ("fine",)]
