"""Sentences of words with labels: CoNLL, CoNLL-U, tsv, jsonl; what is wrong is named by file and line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from heed.core.errors import InputError
from heed.data import Example, Files
from heed.data.conll import SENTENCE, listed


def read(path: Path, **settings: object) -> list[Example]:
    return list(Files.load({"train": str(path), "held_out": 0, **settings}).split("train", SENTENCE))


def report(path: Path, **settings: object) -> str:
    return Files.load({"train": str(path), "held_out": 0, **settings}).split("train", SENTENCE).report()


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


TWO = [("EU\trejects\tit", "B-ORG\tO\tO"), ("Peter\tBlackburn", "B-PER\tI-PER")]


@pytest.mark.parametrize("name", ["a.conll", "a.iob", "a.bio", "a.tsv", "a.txt"])
def test_a_word_per_line_and_a_blank_line_between_sentences(tmp_path: Path, name: str) -> None:
    text = "EU\tB-ORG\nrejects\tO\nit\tO\n\n\nPeter\tB-PER\nBlackburn\tI-PER\n"
    assert read(written(tmp_path / name, text)) == TWO
    assert read(written(tmp_path / name, "\ufeff" + text.replace("\n", "\r\n").rstrip())) == TWO
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.replace("\t", " ").encode()))
    assert read(packed) == TWO  # spaces will do
    assert [listed(cell) for cell in TWO[1]] == [["Peter", "Blackburn"], ["B-PER", "I-PER"]]


def test_columns_are_chosen_by_number(tmp_path: Path) -> None:
    first = "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\nit PRP B-NP O\n\n"
    text = f"{first}-DOCSTART- -X- -X- O\nPeter NNP B-NP B-PER\nBlackburn NNP I-NP I-PER\n"
    path = written(tmp_path / "eng.conll", text)
    assert read(path, columns=[0, 3]) == TWO
    assert read(path)[1] == ("Peter\tBlackburn", "NNP\tNNP")
    assert "column 1 of 0 to 3 is the label; data.columns=[0, 3] takes another" in report(path)
    with pytest.raises(InputError, match=r"has 4 columns; needed are those of data\.columns=\[0, 4\]"):
        read(path, columns=[0, 4])
    with pytest.raises(InputError, match="columns of conll have numbers"):
        read(path, columns=["word", "tag"])
    assert read(written(tmp_path / "eng.train", text), format="conll", columns=[0, 3]) == TWO


def test_comments_are_not_words_and_words_may_begin_with_a_hash(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tsv", "# a comment\n#tag\tO\n#\tO\n\n# another\nx\tB-y\n")
    assert read(path) == [("#tag\t#", "O\tO"), ("x", "B-y")]
    assert "2 comments passed over" in report(path)


def test_conllu(tmp_path: Path) -> None:
    rows = [
        "# sent_id = 1",
        "# text = vámonos al mar",
        "1-2\tvámonos\t_\t_",
        "1\tvamos\tir\tVERB",
        "2\tnos\tnosotros\tPRON",
    ]
    rows += ["2.1\tgone\tgo\tVERB", "3\tmar\tmar\tNOUN"]
    path = written(tmp_path / "es.conllu", "\n".join(rows) + "\n")
    assert read(path) == [("vamos\tnos\tmar", "VERB\tPRON\tNOUN")]
    assert read(path, columns=[1, 2]) == [("vamos\tnos\tmar", "ir\tnosotros\tmar")]


def test_a_word_may_hold_spaces_between_tabs(tmp_path: Path) -> None:
    assert read(written(tmp_path / "a.conll", "10 000\tNUM\nmen\tNOUN\n")) == [("10 000\tmen", "NUM\tNOUN")]


def test_bad_lines_are_named_and_their_sentence_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_bytes(b"a\tX\nb\n\nc\tX\n\nd\t\n\ne\tX\n\xff\tX\n\nf\tX\n")
    with pytest.raises(InputError) as error:
        read(path)
    for words in (
        "3 bad rows",
        f"{path}:2: 1 column where the first word has 2",
        f"{path}:6: column 1 is empty",
        f"{path}:9: byte 1",
    ):
        assert words in str(error.value)
    assert read(path, bad_rows="skip") == [("c", "X"), ("f", "X")]


def test_what_is_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has 1 column; needed are the word and its label"):
        read(written(tmp_path / "a.conll", "one\ntwo\n"))
    with pytest.raises(InputError, match="there are no examples"):
        read(written(tmp_path / "a.conll", "# nothing\n\n"))
    with pytest.raises(
        InputError, match="is csv; needed is words, labels, which conll, conllu, tsv, text, jsonl files"
    ):
        read(written(tmp_path / "a.csv", "a,b\n"))
    with pytest.raises(InputError, match="is conll; needed is text"):
        Files(train=str(tmp_path / "a.conll")).split("train", ("text",))
    with pytest.raises(InputError, match=r"a row of several, of more than 100 bytes"):
        read(written(tmp_path / "long.conll", "word\tlabel\n" * 30), max_line=100)
    with pytest.raises(InputError, match="give your files"):
        Files().split("train", SENTENCE)


def test_lists_of_words_in_jsonl(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", json.dumps({"words": ["a", "b c"], "labels": ["X", "Y"]}) + "\n")
    assert read(path) == [("a\tb c", "X\tY")]
    named = written(tmp_path / "b.jsonl", json.dumps({"tokens": ["a"], "tags": ["X"]}) + "\n")
    assert read(named, columns=["tokens", "tags"]) == [("a", "X")]
    bad = [
        {"words": ["a"], "labels": ["X", "Y"]},
        {"words": [], "labels": []},
        {"words": ["a"], "labels": [3]},
        {"words": ["a\tb"], "labels": ["X"]},
    ]
    path = written(tmp_path / "bad.jsonl", "\n".join(map(json.dumps, bad)))
    with pytest.raises(InputError) as error:
        read(path)
    told = (
        "1 word and 2 labels",
        '"words" is []; needed is a list of texts',
        '"labels"[0] is 3; needed is text',
        "holds a tab",
    )
    for line, words in enumerate(told, 1):
        assert f"{path}:{line}: " in str(error.value)
        assert words in str(error.value)
