"""The user's files: what is refused, and in which words."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from heed.data.files import Files
from tests.data.support import PAIR, TEXT, Write, refused, rows_of

ROWS = [("a dog", "ein Hund"), ("tea & é", "Tee, süß"), ("你好", "🎉 hallo")]
TSV = "".join("\t".join(row) + "\n" for row in ROWS)


FIRST = '{"source": "a", "target": "b"}\n'
BAD: dict[str, tuple[str, str | bytes, str]] = {
    "too few fields": ("a.tsv", "a\tb\nc\n", "a.tsv:2: 1 field where line 1 has 2"),
    "too many fields": ("a.tsv", "\na\tb\n\nc\td\te\n", "a.tsv:4: 3 fields where line 2 has 2"),
    "an empty cell": ("a.tsv", "a\tb\n\tc\n", "a.tsv:2: column 0 is empty"),
    "a cell of spaces": ("a.csv", 'a,b\nc,"  "\n', "a.csv:2: column 1 is empty"),
    "not UTF-8": ("a.tsv", b"a\tb\nc\t\xfcber\n", "a.tsv:2: byte 3 of the line, 0xfc, is not UTF-8"),
    "NUL": ("a.csv", "a,b\nc,d\0\n", "a.csv:2: holds a NUL byte, which no text does"),
    "after several lines": ("a.csv", 'a,"b\nb\nb"\nc\n', "a.csv:4: 1 field where line 1 has 2"),
    "within several lines": ("a.csv", b'a,b\nc,"d\n\xff\ne"\nf,g\n', "a.csv:3: byte 1 of the line, 0xff, is not UTF-8"),
    "text after quotes": ("a.csv", 'a,b\n"c"d,e\n', "a.csv:2: is not valid csv: ',' expected after '\"'"),
    "an open quote": ("a.csv", 'a,b\nc,"d\ne,f\n', "a.csv:2: is not valid csv, up to line 3: unexpected end of data"),
    "not JSON": (
        "a.jsonl",
        FIRST + '{"source": }',
        "a.jsonl:2: is not JSON: Expecting value at",
    ),
    "cut off JSON": (
        "a.jsonl",
        FIRST + '{"source": "c"',
        "a.jsonl:2: is not JSON: Expecting ','",
    ),
    "deep JSON": (
        "a.jsonl",
        FIRST + "[" * 100_000,
        "a.jsonl:2: is not JSON that can be read",
    ),
    "no object": (
        "a.jsonl",
        FIRST + '["c", "d"]',
        "a.jsonl:2: holds a list; needed is an object",
    ),
    "no key": (
        "a.jsonl",
        FIRST + '{"source": "c", "tarket": "d"}',
        'a.jsonl:2: has no "target"; it has source, tarket; did you mean tarket?',
    ),
    "null": (
        "a.jsonl",
        FIRST + '{"source": null, "target": "b"}',
        'a.jsonl:2: "source" is null',
    ),
    "a number": (
        "a.jsonl",
        FIRST + '{"source": "c", "target": 3}',
        'a.jsonl:2: "target" is 3; needed is text in quotes',
    ),
    "an empty value": ("a.jsonl", FIRST + '{"source": "c", "target": ""}', '"target" is empty'),
    "half a pair": (
        "a.jsonl",
        FIRST + '{"source": "c", "target": "\\ud83d"}',
        'a.jsonl:2: "target" holds half of a surrogate pair',
    ),
}


@pytest.mark.parametrize(("name", "text", "words"), BAD.values(), ids=BAD)
def test_a_bad_row_is_named_or_left_out(write: Write, name: str, text: str | bytes, words: str) -> None:
    path = write(name, text)
    message = refused(Files(test=path))
    assert words in message
    assert message.startswith(f"1 bad row in {name}:\n  {path}:")
    assert message.endswith("\nset data.bad_rows=skip to leave them out")

    examples = Files(test=path, bad_rows="skip").split("test", PAIR)
    assert examples[0][0] == "a"
    assert len(examples) == (2 if "f,g" in str(text) else 1)
    assert "1 bad row left out; the first: " in examples.report()
    assert words in examples.report()


def test_bad_rows_are_counted_and_the_first_are_listed(write: Write) -> None:
    text = "".join(
        f"a\t{number}\n" if number % 3 == 0 else "\n" if number % 3 == 1 else "b\n" for number in range(3000)
    )
    good, bad = write("good.tsv", TSV), write("bad.tsv", text)
    message = refused(Files(test=(good, bad)))
    problems = [f"  {bad}:{line}: 1 field where line 1 has 2" for line in (3, 6, 9, 12, 15)]
    assert message.splitlines() == [
        "1,000 bad rows in good.tsv, bad.tsv:",
        *problems,
        "  ... and 995 more",
        "set data.bad_rows=skip to leave them out",
    ]
    report = Files(test=bad, bad_rows="skip").split("test", PAIR).report()
    left_out = "1,000 blank lines and 1,000 bad rows left out"
    assert report == f"bad.tsv: 1,000 examples ({left_out}; the first: {problems[0].strip()})"


def test_where_no_row_is_good_leaving_out_is_no_remedy(write: Write) -> None:
    path = write("a.jsonl", '{"en": "a"}\n' * 7)
    assert refused(Files(test=path)).endswith("no row is good; check data.format and data.columns")
    assert "a.jsonl: there are no examples (7 bad rows left out; the first: " in refused(
        Files(test=path, bad_rows="skip")
    )


def test_text_has_bad_lines(write: Write) -> None:
    path = write("a.txt", b"one\ntw\xff\nth\0ree\n\nfour\n")
    message = refused(Files(test=path), TEXT)
    assert "a.txt:2: byte 3 of the line, 0xff, is not UTF-8" in message
    assert "a.txt:3: holds a NUL byte" in message
    assert rows_of(Files(test=path, bad_rows="skip"), TEXT) == [("one\n\nfour\n",)]
    assert rows_of(Files(test=path, bad_rows="skip", lines=True), TEXT) == [("one",), ("four",)]


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff\n"])
@pytest.mark.parametrize("name", ["a.tsv", "a.csv.gz", "a.jsonl"])
def test_nothing_in_it(write: Write, name: str, text: str) -> None:
    assert f"{name}: there are no examples" in refused(Files(test=write(name, text)))
    assert "there are no examples" in refused(Files(test=write("a.txt", text)), TEXT)
    assert "there are no examples" in refused(Files(test=write("b.tsv", "x\ty\n"), header=True, columns=(0, 1)))


OTHER: dict[str, tuple[str, bytes, str]] = {
    "gzip": ("a.tsv", gzip.compress(b"a\tb\n"), "a.tsv is compressed by gzip; end its name with .gz"),
    "not gzip": ("a.tsv.gz", b"a\tb\n", "a.tsv.gz is not gzip data, or damaged"),
    "truncated gzip": ("a.tsv.gz", gzip.compress(TSV.encode() * 50)[:-30], "a.tsv.gz is cut off in the middle"),
    "damaged gzip": (
        "a.tsv.gz",
        gzip.compress(TSV.encode())[:10] + b"\xff" * 40,
        "a.tsv.gz is not gzip data, or damaged",
    ),
    "altered gzip": ("a.tsv.gz", gzip.compress(TSV.encode())[:-8] + b"\0" * 8, "or damaged (CRC check failed"),
    "UTF-16": ("a.csv", "a,b\n".encode("utf-16"), "a.csv is UTF-16; save it as UTF-8"),
    "a spreadsheet": ("a.csv", b"PK\x03\x04\x14\x00", "a.csv is a zip archive or a spreadsheet"),
    "parquet": ("a.jsonl", b"PAR1\x15\x04", "a.jsonl is parquet; end its name with .parquet"),
    "not parquet": ("a.parquet", b"a,b\n", "a.parquet is not parquet, or damaged"),
    "packed parquet": ("a.parquet.gz", b"PAR1", "parquet is compressed already; unpack the .gz"),
    "an unknown suffix": ("a.xlsx", b"", "a.xlsx: its suffix does not tell its format; known: .tsv, .csv, .jsonl, "),
    "no suffix": ("a", b"", "its suffix does not tell its format"),
    "only gz": ("a.gz", b"", "its suffix does not tell its format"),
}


@pytest.mark.parametrize("bad_rows", ["stop", "skip"])
@pytest.mark.parametrize(("name", "data", "words"), OTHER.values(), ids=OTHER)
def test_another_kind_of_file(tmp_path: Path, name: str, data: bytes, words: str, bad_rows: Any) -> None:
    (tmp_path / name).write_bytes(data)
    assert words in refused(Files(test=str(tmp_path / name), bad_rows=bad_rows))


def test_binary_garbage_is_named_line_by_line(write: Write) -> None:
    message = refused(Files(test=write("a.tsv", bytes(range(128, 256)) + b"\n\0\1\2\n")))
    assert "a.tsv:1: byte 1 of the line, 0x80, is not UTF-8" in message
    assert "a.tsv:2: holds a NUL byte" in message


COLUMNS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "no such name": (
        "a.tsv",
        "source\ttarget\na\tb\n",
        {"columns": ("source", "targt")},
        "a.tsv has no column 'targt'; it has source, target; did you mean target? Set data.columns to choose",
    ),
    "not the task's names": ("a.csv", "en,de\na,b\n", {"header": True}, "has no column 'source'; it has en, de. Set"),
    "twice the same name": ("a.csv", "de,de\na,b\n", {"columns": ("de", 0)}, "has 2 columns 'de'; set data.columns to"),
    "too few columns": ("a.tsv", "a\nb\n", {}, "a.tsv has 1 column; needed is one for each of source, target"),
    "too high a number": (
        "a.tsv",
        "a\tb\n",
        {"columns": (0, 2)},
        "has 2 columns; needed is one for each of source, target; data.columns asks for column 2, counted from 0",
    ),
    "too few asked for": (
        "a.tsv",
        "a\tb\n",
        {"columns": (0,)},
        "data.columns names 1 column; needed is one for each of",
    ),
    "numbers in jsonl": ("a.jsonl", "", {"columns": (0, 1)}, "in jsonl columns have names; give names in data.columns"),
    "plain text": ("a.txt", "a", {}, "is plain text, which is one column; needed is source, target. Give a tsv, csv"),
    "a header in jsonl": ("a.jsonl", "", {"header": True}, "jsonl has no header line; remove data.header"),
    "lines of rows": ("a.tsv", "", {"lines": True}, "data.lines is for plain text, not for tsv; remove it"),
}


@pytest.mark.parametrize(("name", "text", "options", "words"), COLUMNS.values(), ids=COLUMNS)
def test_columns_that_are_not_there(write: Write, name: str, text: str, options: dict[str, Any], words: str) -> None:
    assert words in refused(Files(test=write(name, text), **options))


def test_columns_of_plain_text(write: Write) -> None:
    path = write("a.txt", "text")
    assert "needed is text. Remove data.columns" in refused(Files(test=path, columns=(0,)), TEXT)
    mixed = Files(test=(path, write("a.jsonl", '{"text": "b"}')))
    assert "whole texts and rows cannot be mixed" in refused(mixed, TEXT)


def test_a_file_that_is_not_there(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("pairs.tsv.gz", TSV)
    assert refused(Files(test=str(tmp_path / "pair.tsv.gz"))).endswith("pair.tsv.gz; did you mean pairs.tsv.gz?")
    assert refused(Files(test=str(tmp_path / "other"))) == f"there is no file {tmp_path / 'other'} in {tmp_path}"
    assert "there is no folder" in refused(Files(test=str(tmp_path / "absent" / "a.tsv")))
    monkeypatch.chdir(tmp_path)
    assert refused(Files(test="pear.tsv.gz")) == "there is no file pear.tsv.gz; did you mean pairs.tsv.gz?"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert rows_of(Files(test="~/pairs.tsv.gz")) == ROWS


def test_a_file_that_may_not_be_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("a.tsv", TSV)
    monkeypatch.setattr(Path, "open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    assert refused(Files(test=path)) == f"{path} cannot be read: Permission denied"
