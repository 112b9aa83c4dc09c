"""A header line of a csv or tsv file is found, said and left out; a line of data is never lost."""

from __future__ import annotations

import pytest

from heed.data.columns import is_header
from heed.data.files import Files
from tests.data.support import PAIR, TEXT, Write, refused, rows_of

SENTENCES = [
    ("A dog runs.", "Ein Hund rennt."),
    ("Two men sit.", "Zwei Männer sitzen."),
    ("It is late.", "Es ist spät."),
]
WORDS = [("dog", "Hund"), ("tram", "Straßenbahn"), ("answer", "Antwort")]
HEADERS = {
    "the task's names": (("source", "target"), SENTENCES),
    "above single words": (("source", "target"), WORDS),
    "in capitals, with spaces": ((" Source", "TARGET "), SENTENCES),
    "short": (("src", "tgt"), WORDS),
    "languages": (("en", "de"), SENTENCES),
    "languages with regions": (("en_XX", "de-DE"), SENTENCES),
    "languages by name": (("English", "German"), SENTENCES),
    "roles": (("question", "answer"), SENTENCES),
    "a column of numbers": (("Satz", "Sterne"), [(f"Das war {n} mal gut", str(n)) for n in range(6)]),
}
DATA = {
    "sentences": (SENTENCES[0], SENTENCES[1:]),
    "words": (WORDS[0], WORDS[1:]),
    "words that are language codes": (("it", "es"), WORDS),
    "words that are roles": (("answer", "response"), [("dog", "hound"), ("word", "term")]),
    "one of the task's names": (("source", "Quelle"), WORDS),
    "twice the same": (("text", "text"), SENTENCES),
    "what stands there again": (("source", "target"), [*SENTENCES, ("source", "Quelle")]),
    "numbers above numbers": (("1", "2"), [("3", "4")] * 9),
    "few numbers": (("ja", "oui"), [("1", "2")] * 3),
    "nothing after it": (("source", "target"), []),
}


@pytest.mark.parametrize("case", HEADERS)
def test_names_are_found(case: str) -> None:
    first, rest = HEADERS[case]
    assert is_header(first, rest, PAIR)


@pytest.mark.parametrize("case", DATA)
def test_data_is_not_taken_for_names(case: str) -> None:
    first, rest = DATA[case]
    assert not is_header(first, rest, PAIR)


def csv(*rows: tuple[str, ...]) -> str:
    return "".join(",".join(row) + "\n" for row in rows)


def test_a_header_is_left_out_and_said(write: Write) -> None:
    """The case that taught models to translate "source" into "target"."""
    for name, text in (("a.csv", csv(PAIR, *SENTENCES)), ("a.tsv", csv(PAIR, *SENTENCES).replace(",", "\t"))):
        source = Files(test=write(name, text))
        assert rows_of(source) == SENTENCES
        said = source.split("test", PAIR).report()
        assert said == f"{name}: 3 examples (the first line names the columns: source as source, target as target)"
    crlf = write("b.csv", "\ufeff" + csv(PAIR, *SENTENCES).replace("\n", "\r\n"))
    assert rows_of(Files(test=crlf)) == SENTENCES


def test_columns_are_found_by_their_names(write: Write) -> None:
    rows = [(f"{n}", b, a) for n, (a, b) in enumerate(SENTENCES)]
    assert rows_of(Files(test=write("a.csv", csv(("id", "target", "source"), *rows)))) == SENTENCES
    labelled = csv(("label", "text"), ("1", "good film"), ("0", "bad film"))
    assert rows_of(Files(test=write("b.csv", labelled)), TEXT) == [("good film",), ("bad film",)]
    quoted = '"target","source"\n"Ja, sehr","Yes, ""very"""\n'
    assert rows_of(Files(test=write("c.csv", quoted))) == [('Yes, "very"', "Ja, sehr")]


def test_other_names_are_taken_in_order_but_not_a_count(write: Write) -> None:
    rows = [(f"{n}", a, b, "x y z") for n, (a, b) in enumerate(SENTENCES)]
    source = Files(test=write("a.csv", csv(("id", "en", "de", "fr"), *rows)))
    assert rows_of(source) == SENTENCES
    assert "en as source, de as target" in source.split("test", PAIR).report()


def test_half_of_the_names_is_refused(write: Write) -> None:
    rows = [(f"{n}", a, b) for n, (a, b) in enumerate(SENTENCES)]
    path = write("a.csv", csv(("id", "source", "translation"), *rows))
    said = refused(Files(test=path))
    assert f"{path} begins with names of columns (id, source, translation), and none is target" in said
    assert "data.columns" in said
    assert rows_of(Files(test=path, columns=("source", "translation"))) == SENTENCES


def test_the_header_can_be_said(write: Write) -> None:
    path = write("a.csv", csv(PAIR, *SENTENCES))
    assert rows_of(Files(test=path, header=False)) == [PAIR, *SENTENCES]
    odd = write("b.csv", csv(("foo", "bar"), *SENTENCES))
    assert rows_of(Files(test=odd)) == [("foo", "bar"), *SENTENCES]
    assert rows_of(Files(test=odd, header=True, columns=(0, 1))) == SENTENCES
    assert Files.load({"header": "auto"}).header == "auto"


def test_a_ragged_row_is_named_below_a_header_too(write: Write) -> None:
    path = write("a.csv", csv(PAIR, *SENTENCES) + "one\n")
    assert f"{path}:5: 1 field where line 1 has 2" in refused(Files(test=path))
