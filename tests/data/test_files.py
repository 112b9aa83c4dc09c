"""The user's files: what is read, what is refused and in which words, what is held out."""

from __future__ import annotations

import gzip
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from heed.core.config import read_data
from heed.core.errors import ConfigError, InputError, MissingExtra
from heed.data import rows as rows_module
from heed.data.files import Files, spread

PAIR = ("source", "target")
TEXT = ("text",)
ROWS = [("a dog", "ein Hund"), ("tea & é", "Tee, süß"), ("你好", "🎉 hallo")]
TSV = "".join("\t".join(row) + "\n" for row in ROWS)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], str]:
    def written(name: str, data: str | bytes) -> str:
        data = data if isinstance(data, bytes) else data.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(tmp_path / name)

    return written


Write = Callable[[str, "str | bytes"], str]


def rows_of(source: Files, columns: tuple[str, ...] = PAIR) -> list[tuple[str, ...]]:
    return list(source.split("test", columns))


def refused(source: Files, columns: tuple[str, ...] = PAIR) -> str:
    """The words in which the test split is refused."""
    with pytest.raises(InputError) as caught:
        source.split("test", columns)
    return str(caught.value)


# --- what is read ---

JSONL = "".join(json.dumps({"id": 7, "target": target, "source": source}) + "\n" for source, target in ROWS)
GOOD: dict[str, tuple[str, str, dict[str, Any]]] = {
    "tsv": ("a.tsv", TSV, {}),
    "tsv without a last line break": ("a.tsv", TSV[:-1], {}),
    "tsv of Windows": ("a.tsv", "\ufeff" + TSV.replace("\n", "\r\n"), {}),
    "tsv of Windows without a last line break": ("a.tsv", TSV.replace("\n", "\r\n")[:-1], {}),
    "tsv with blank lines": ("a.tsv", "\n" + TSV.replace("\n", "\n  \n\n"), {}),
    "suffix in capitals": ("A.TSV", TSV, {}),
    "dots in the name": ("a.en-de.v2.tsv", TSV, {}),
    "columns by number": ("a.tsv", "".join(f"x\t{b}\t{a}\n" for a, b in ROWS), {"columns": (2, 1)}),
    "columns by name": (
        "a.tsv",
        "nr\tde \ten\n" + "".join(f"1\t{b}\t{a}\n" for a, b in ROWS),
        {"columns": ("en", "de")},
    ),
    "the task's names": ("a.tsv", "target\tsource\n" + "".join(f"{b}\t{a}\n" for a, b in ROWS), {"header": True}),
    "a header to leave out": ("a.tsv", "x\ty\n" + TSV, {"header": True, "columns": (0, 1)}),
    "a name and a number": ("a.tsv", "x\ty\n" + TSV, {"columns": (0, "y")}),
    "csv": ("a.csv", "".join(f'{a},"{b}"\n' for a, b in ROWS), {}),
    "csv of Windows": (
        "a.csv",
        "\ufeffsource,target\r\n" + "".join(f'"{a}","{b}"\r\n' for a, b in ROWS),
        {"header": True},
    ),
    "csv with blank lines": ("a.csv", "\n\n" + "".join(f'{a},"{b}"\n\n' for a, b in ROWS), {}),
    "jsonl": ("a.jsonl", JSONL, {}),
    "jsonl with escapes": ("a.jsonl", "\n" + JSONL.replace("é", "\\u00e9") + "\n\n", {}),
    "jsonl by name": ("a.jsonl", JSONL.replace('"source"', '"en"'), {"columns": ("en", "target")}),
    "by its format": ("data", TSV, {"format": "tsv"}),
    "a format against the suffix": ("a.txt", TSV, {"format": "tsv"}),
}


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize(("name", "text", "options"), GOOD.values(), ids=GOOD)
def test_rows_are_read(write: Write, name: str, text: str, options: dict[str, Any], packed: str) -> None:
    assert rows_of(Files(test=write(name + packed, text), **options)) == ROWS


def test_tsv_quotes_nothing_and_csv_quotes_well(write: Write) -> None:
    assert rows_of(Files(test=write("a.tsv", 'say "a\t"b" \n'))) == [('say "a', '"b" ')]
    text = '"say ""a"", b","two\nlines\r\n\r\nmore"\n x ,y\n'
    assert rows_of(Files(test=write("a.csv", text))) == [('say "a", b', "two\nlines\n\nmore"), (" x ", "y")]


def test_a_cell_may_be_long(write: Write) -> None:
    long = "word " * 40_000
    assert rows_of(Files(test=write("a.csv", f'"{long}",b\n'))) == [(long, "b")]


def test_parquet_is_read(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    sources, targets = zip(*ROWS, strict=True)
    path = tmp_path / "a.parquet"
    table = {"id": [1, 2, 3], "target": pyarrow.array(targets).dictionary_encode(), "source": sources}
    parquet.write_table(pyarrow.table(table), path)
    assert rows_of(Files(test=str(path))) == ROWS
    assert rows_of(Files(test=str(path), columns=(2, "target"))) == ROWS
    assert rows_of(Files(test=str(path), columns=("source", "source"))) == [(row[0], row[0]) for row in ROWS]
    assert "column 'id' holds int64; needed is text" in refused(Files(test=str(path), columns=("source", "id")))
    assert "has no column 'sorce'; it has id, target, source; did you mean source?" in refused(
        Files(test=str(path), columns=("sorce", "target"))
    )

    parquet.write_table(pyarrow.table({"source": ["a", None, " "], "target": ["b", "c", "d"]}), path)
    assert f'{path}:2: "source" is null' in refused(Files(test=str(path)))
    assert rows_of(Files(test=str(path), bad_rows="skip")) == [("a", "b")]

    path.write_bytes(path.read_bytes()[:-20])
    assert "a.parquet is not parquet, or damaged: " in refused(Files(test=str(path)))


def test_parquet_needs_an_extra(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pyarrow is not installed; run: pip install 'heed\[train\]'"):
        Files(test=write("a.parquet", "")).split("test", PAIR)


def test_several_files_are_one_split(write: Write) -> None:
    paths = (write("a.tsv", "a\tb\n"), write("b.csv", "c,d,x\n"), write("c.jsonl", '{"source": "e", "target": "f"}\n'))
    examples = Files(test=paths).split("test", PAIR)
    assert list(examples) == [("a", "b"), ("c", "d"), ("e", "f")]
    assert examples.report() == "a.tsv, b.csv, c.jsonl: 3 examples"


def test_text_is_one_example_or_one_for_each_line(write: Write) -> None:
    path = write("a.txt", "\ufeffOne\r\n\r\n two\tthree \r\n \nfour")
    whole = Files(test=path).split("test", TEXT)
    assert list(whole) == [("One\n\n two\tthree \n \nfour",)]
    assert whole.report() == "a.txt: 23 characters"
    lines = Files(test=path, lines=True).split("test", TEXT)
    assert list(lines) == [("One",), (" two\tthree ",), ("four",)]
    assert lines.report() == "a.txt: 3 examples (2 blank lines left out)"
    both = Files(test=(path, write("b.txt.gz", "five"))).split("test", TEXT)
    assert len(both) == 2
    assert both.report() == "a.txt, b.txt.gz: 27 characters in 2 texts"


def test_only_line_breaks_break_lines(write: Write) -> None:
    odd = "a\x0bb\x0c\x1c\x85\u2028c"
    assert rows_of(Files(test=write("a.tsv", f"{odd}\tx\n"))) == [(odd, "x")]
    assert rows_of(Files(test=write("a.txt", f"{odd}\nx"), lines=True), TEXT) == [(odd,), ("x",)]


def test_examples_have_numbers(write: Write) -> None:
    examples = Files(test=write("a.tsv", TSV)).split("test", PAIR)
    assert [examples[number] for number in (2, 0, 2)] == [ROWS[2], ROWS[0], ROWS[2]]
    assert not examples.endless
    for wrong in (3, -1):
        with pytest.raises(IndexError, match=f"example {wrong} of 3"):
            examples[wrong]


# --- what is refused ---

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
    assert refused(Files(test=str(tmp_path))) == f"{tmp_path} is a folder; give the path of a file, or of several"
    monkeypatch.chdir(tmp_path)
    assert refused(Files(test="pear.tsv.gz")) == "there is no file pear.tsv.gz; did you mean pairs.tsv.gz?"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert rows_of(Files(test="~/pairs.tsv.gz")) == ROWS


def test_a_file_that_may_not_be_read(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("a.tsv", TSV)
    monkeypatch.setattr(Path, "open", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    assert refused(Files(test=path)) == f"{path} cannot be read: Permission denied"


# --- splits ---


def test_the_splits_there_are(write: Write) -> None:
    path = write("a.tsv", TSV)
    assert Files().splits() == ()
    assert Files(train=path).splits() == ("train", "valid")
    assert Files(train=path, held_out=0.0).splits() == ("train",)
    assert Files(train=path, valid=path, test=path).splits() == ("train", "valid", "test")
    assert Files(test=path).splits() == ("test",)
    with pytest.raises(InputError, match=r"there is no test split; set data.test to a file$"):
        Files(train=path).split("test", PAIR)
    with pytest.raises(InputError, match="no valid split; set data.valid to a file, or data.train with data.held_out"):
        Files(train=path, held_out=0.0).split("valid", PAIR)


@pytest.mark.parametrize(("total", "share", "count"), [(100, 0.05, 5), (10, 0.01, 1), (2, 0.9, 1), (997, 0.1, 100)])
def test_rows_are_held_out_evenly_and_always_the_same(write: Write, total: int, share: float, count: int) -> None:
    path = write("a.tsv", "".join(f"{number}\tx\n" for number in range(total)))
    source = Files(train=path, held_out=share)
    kept = [int(example[0]) for example in source.split("train", PAIR)]
    held = [int(example[0]) for example in Files(train=path, held_out=share).split("valid", PAIR)]
    assert len(held) == count
    assert sorted(kept + held) == list(range(total))
    assert kept == sorted(kept)
    gaps = [after - before for before, after in pairwise(held)]
    assert not gaps or max(gaps) - min(gaps) <= 1
    assert held == list(spread(total, count))
    assert source.split("valid", PAIR).report().startswith(f"a.tsv: {count} example")
    assert f"(held out of {total} of train)" in source.split("valid", PAIR).report()
    assert f"({count} held out for valid)" in source.split("train", PAIR).report()


def test_a_valid_file_leaves_train_whole(write: Write) -> None:
    source = Files(train=write("a.tsv", TSV), valid=write("b.tsv", "x\ty\n"))
    assert list(source.split("train", PAIR)) == ROWS
    assert list(source.split("valid", PAIR)) == [("x", "y")]
    assert source.split("train", PAIR).report() == "a.tsv: 3 examples"


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_the_end_of_a_text_is_held_out(write: Write, share: float) -> None:
    text = "".join(f"line number {number}\n" for number in range(1000))
    source = Files(train=write("a.txt", text), held_out=share)
    (kept,), (held,) = source.split("train", TEXT)[0], source.split("valid", TEXT)[0]
    assert kept + held == text
    assert kept.endswith("\n")
    assert len(held) == pytest.approx(share * len(text), abs=20)
    assert (
        source.split("train", TEXT).report()
        == f"a.txt: {len(kept):,} characters (the last {len(held):,} held out for valid)"
    )
    assert source.split("valid", TEXT).report() == f"a.txt: {len(held):,} characters (the end of train)"


@pytest.mark.parametrize("text", ["title\n" + "word " * 200, "title\n" + "x" * 1000], ids=["words", "no space"])
def test_a_text_without_a_line_break_near_the_end(write: Write, text: str) -> None:
    source = Files(train=write("a.txt", text), held_out=0.2)
    (kept,), (held,) = source.split("train", TEXT)[0], source.split("valid", TEXT)[0]
    assert kept + held == text
    assert len(held) == pytest.approx(0.2 * len(text), abs=6)
    assert kept[-1] == (" " if " " in text else "x")


def test_too_little_to_hold_out(write: Write) -> None:
    for source, columns in ((Files(train=write("a.tsv", "a\tb\n")), PAIR), (Files(train=write("a.txt", "a\n")), TEXT)):
        for name in source.splits():
            with pytest.raises(InputError, match="too little to hold a part of it out for valid; set data.valid to a"):
                source.split(name, columns)


def test_a_file_is_read_once(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Path] = []
    real = rows_module._raw_lines

    def counted(path: Path) -> Iterator[bytes]:
        opened.append(path)
        return real(path)

    monkeypatch.setattr(rows_module, "_raw_lines", counted)
    source = Files(train=write("a.tsv", TSV))
    source.split("train", PAIR)
    source.split("valid", PAIR)
    source.split("train", PAIR)
    assert len(opened) == 1
    assert list(source.split("train", ("a",))) != list(source.split("train", PAIR))
    swapped = source.model_copy(update={"columns": (1, 0), "held_out": 0.0})  # a copy with a memory
    assert list(swapped.split("train", PAIR)) == [(target, text) for text, target in ROWS]


# --- configuration ---


def test_reading_does_not_change_the_configuration(write: Write, tmp_path: Path) -> None:
    source = Files(train=(write("a.tsv", TSV),), columns=(0, 1))
    same, text = Files(train=source.train, columns=(0, 1)), repr(source)
    examples = source.split("train", PAIR)
    assert source == same
    assert hash(source) == hash(same)
    assert repr(source) == text
    source.write(tmp_path / "data.toml")
    assert "read_before" not in read_data(tmp_path / "data.toml")
    assert Files.read(tmp_path / "data.toml") == source
    assert list(pickle.loads(pickle.dumps(source)).split("train", PAIR)) == list(examples)
    assert list(pickle.loads(pickle.dumps(examples))) == list(examples)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"train": 3}, "train: needed is a path or a list of paths, not 3"),
        ({"train": ["a", 3]}, "train: needed is a path or a list of paths, not ['a', 3]"),
        ({"train": []}, "train: needed is a path or a list of paths, not []"),
        ({"columns": [1.5, 0]}, "columns.0: needed is the name of a column or its number from 0 on, not 1.5"),
        ({"columns": [True]}, "columns.0: needed is the name"),
        ({"columns": [-1]}, "columns.0: needed is the name"),
        ({"format": "xls"}, "format is 'xls'; it must be"),
        ({"held_out": 1.0}, "held_out is 1.0; it must be less than 1"),
        ({"trian": "a"}, "trian is unknown; did you mean train?"),
    ],
)
def test_wrong_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Files.load(options)
    assert list(caught.value.problems) == [next(problem for problem in caught.value.problems if words in problem)]


def test_reading_is_quiet_and_leaves_nothing_behind(write: Write, tmp_path: Path) -> None:
    """No cache at home, no progress bars, no slow imports."""
    code = (
        "import sys; from heed.data.files import Files; "
        f"print(len(Files(train={write('a.tsv', TSV)!r}).split('train', ('source', 'target')))); "
        "print(sorted({'torch', 'datasets', 'pyarrow', 'numpy'} & set(sys.modules)))"
    )
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code], env={"HOME": str(home)}, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("2\n[]\n", "")
    assert list(home.iterdir()) == []
