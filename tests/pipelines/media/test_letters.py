"""Tokenizers of letters, as Wav2Vec2's checkpoints have them, beside the reference library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers

from heed.core.errors import InputError
from heed.pipelines.media.letters import of_folder, write
from heed.text.kinds import Bpe, Char

LETTERS = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "|": 4, "E": 5, "T": 6, "A": 7, "'": 8}
TEXTS = ("TEA", "A TEA  T", "EAT É'", "", "|")


def test_it_reads_and_writes_as_the_reference_does(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(json.dumps(LETTERS))
    theirs, ours = transformers.Wav2Vec2CTCTokenizer(str(tmp_path / "vocab.json")), of_folder(tmp_path)
    assert ours is not None
    assert (ours.size, ours.pad, ours.unknown) == (9, 0, 3)
    for text in TEXTS:
        assert ours.encode(text) == theirs(text).input_ids
    assert ours.decode([6, 5, 7, 4, 7, 0]) == "TEA A"


def test_names_of_its_own(tmp_path: Path) -> None:
    assert of_folder(tmp_path) is None
    (tmp_path / "vocab.json").write_text(json.dumps({"[PAD]": 0, "[UNK]": 1, "/": 2, "a": 3}))
    with pytest.raises(InputError, match="does not hold '<pad>', the pad_token, which is the blank"):
        of_folder(tmp_path)
    names = {"pad_token": "[PAD]", "unk_token": {"content": "[UNK]"}, "word_delimiter_token": "/"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(names))
    found = of_folder(tmp_path)
    assert found is not None
    assert found.encode("a ab") == [3, 2, 3, 1]
    assert found.decode([3, 2, 3]) == "a a"


def test_letters_of_ours_are_written_for_the_reference(tmp_path: Path) -> None:
    ours = Char().train(["tea at ten", "é"])
    write(ours, tmp_path)
    theirs = transformers.Wav2Vec2CTCTokenizer.from_pretrained(tmp_path)
    for text in ("tea", "a tea é", "ten eat"):
        assert theirs(text).input_ids == ours.encode(text)
    again = of_folder(tmp_path)
    assert again is not None
    assert again.encode("ten at é") == ours.encode("ten at é")
    kept = (tmp_path / "vocab.json").read_text()
    write(Char().train(["other"]), tmp_path)
    assert (tmp_path / "vocab.json").read_text() == kept
    (tmp_path / "b").mkdir()
    with pytest.raises(InputError, match="the layout of Wav2Vec2 has letters alone, and this tokenizer has"):
        write(Bpe(size=270).train(["tea at ten tea at ten"]), tmp_path / "b")
    with pytest.raises(InputError, match="writes a space as '|', and this tokenizer has both"):
        write(Char().train(["a | b"]), tmp_path / "b")
