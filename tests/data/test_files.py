"""The user's files: what is read and what is held out."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from heed.core.config import read_data
from heed.core.errors import ConfigError, InputError, MissingExtra
from heed.data import rows as rows_module
from heed.data.base import SEVERAL
from heed.data.bounds import Budget
from heed.data.files import Files, spread
from tests.children import environment
from tests.data.support import PAIR, TEXT, Write, refused, rows_of

ROWS = [("a dog", "ein Hund"), ("tea & é", "Tee, süß"), ("你好", "🎉 hallo")]
TSV = "".join("\t".join(row) + "\n" for row in ROWS)


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

    parquet.write_table(pyarrow.table({"sentence": ["a", "b"], "label": [1, 0], "kept": [True, False]}), path)
    assert rows_of(Files(test=str(path)), ("text", "label")) == [("a", "1"), ("b", "0")]
    assert rows_of(Files(test=str(path), columns=(0, "kept")), ("text", "label")) == [("a", "true"), ("b", "false")]

    parquet.write_table(pyarrow.table({"source": ["a", None, " "], "target": ["b", "c", "d"]}), path)
    assert f'{path}:2: "source" is null' in refused(Files(test=str(path)))
    assert rows_of(Files(test=str(path), bad_rows="skip")) == [("a", "b")]

    path.write_bytes(path.read_bytes()[:-20])
    assert "a.parquet is not parquet, or damaged: " in refused(Files(test=str(path)))


def test_a_column_has_its_usual_names(write: Write) -> None:
    lines = '{"document": "long", "summaries": ["one", "two"]}\n'
    assert rows_of(Files(test=write("a.jsonl", lines))) == [("long", SEVERAL.join(("one", "two")))]
    named = lines.replace("document", "x").replace("summaries", "y")
    assert rows_of(Files(test=write("b.jsonl", named), columns=("x", "y"))) == [("long", SEVERAL.join(("one", "two")))]
    assert 'has no "source"; it has x, y' in refused(Files(test=write("c.jsonl", named)))
    glue = "sentence1\tsentence2\tscore\na b\tc d\t1\ne f\tg h\t0\n"
    assert rows_of(Files(test=write("d.tsv", glue)), ("text", "pair", "score")) == [
        ("a b", "c d", "1"),
        ("e f", "g h", "0"),
    ]


def test_parquet_needs_an_extra(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r'pyarrow is not installed; run: pip install "heed-attention\[train\]"'):
        Files(test=write("a.parquet", "")).split("test", PAIR)


def test_several_files_are_one_split(write: Write) -> None:
    paths = (write("a.tsv", "a\tb\n"), write("b.csv", "c,d\n"), write("c.jsonl", '{"source": "e", "target": "f"}\n'))
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


def test_spread_takes_one_of_each_equal_stretch() -> None:
    assert list(spread(10, 2)) == [3, 6]
    assert list(spread(100, 4)) == [15, 30, 71, 86]
    assert list(spread(3, 3)) == [0, 1, 2]
    assert list(spread(7, 0)) == []
    for total, count in ((1000, 50), (997, 31), (40, 40)):
        places = list(spread(total, count))
        assert all(n * total // count <= at < (n + 1) * total // count for n, at in enumerate(places))


@pytest.mark.parametrize("kinds", [2, 3, 5, 10])
def test_rows_that_come_in_turns_are_held_out_of_every_kind(kinds: int) -> None:
    """The middle of every tenth would be of one kind alone."""
    held = [place % kinds for place in spread(600, 60)]
    assert max(held.count(kind) for kind in range(kinds)) <= 1.5 * 60 / kinds
    assert min(held.count(kind) for kind in range(kinds)) >= 0.5 * 60 / kinds


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
    assert not gaps or max(gaps) < 2 * (total / count + 1)
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

    def counted(path: Path, budget: Budget) -> Iterator[bytes]:
        opened.append(path)
        return real(path, budget)

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
        [sys.executable, "-c", code],
        env=environment(HOME=str(home)),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("2\n[]\n", "")
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("values", "texts"),
    [([1, 0], ["1", "0"]), ([True, False], ["true", "false"]), ([0.5, 3.25], ["0.5", "3.25"])],
)
def test_labels_of_parquet_may_be_numbers(tmp_path: Path, values: list[float], texts: list[str]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"sentence": ["good", "bad"], "category": values})
    pytest.importorskip("pyarrow.parquet").write_table(table, path)
    files = Files(test=str(path), columns=("sentence", "category"))
    assert rows_of(files, ("text", "label")) == list(zip(["good", "bad"], texts, strict=True))
    assert "; needed is text" in refused(files, ("source", "target"))


def test_labels_of_jsonl_may_be_numbers_under_any_name(write: Write) -> None:
    path = write("a.jsonl", '{"sentence": "good", "category": 1}\n{"sentence": "bad", "category": [2, "b"]}\n')
    files = Files(test=path, columns=("sentence", "category"))
    assert rows_of(files, ("text", "label")) == [("good", "1"), ("bad", "2\x1eb")]
