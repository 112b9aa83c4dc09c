"""RoFormer's tokenizer cuts Chinese texts into words of a dictionary: the same ids as `transformers`."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers

from heed.core.errors import MissingExtra
from heed.text import Tokenizer, pretrained

pytest.importorskip("rjieba", reason="rjieba is not installed: pip install heed-attention[chinese]")

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *"，。！",
    "今天",
    "天气",
    "非常",
    "好",
    "的",
    "天",
    "气",
    "酒店",
]
WORDS += ["房间", "不错", "hello", "world", "##s", "早", "餐", "服务", "2", "0", "##0"]
TEXTS = ["今天天气非常好！", "酒店的房间不错，早餐好。", "hello worlds 今天 200", "", "龍 天气\n天气"]


def saved(folder: Path, whole: bool) -> Any:
    """Their tokenizer, written with a tokenizer.json or with a vocab.txt alone."""
    theirs = transformers.RoFormerTokenizer(vocab={word: index for index, word in enumerate(WORDS)})
    if whole:
        theirs.save_pretrained(folder)
        return theirs
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    named = {"tokenizer_class": "RoFormerTokenizer", "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    return theirs


@pytest.mark.parametrize("whole", [True, False])
def test_ids_are_theirs(whole: bool, tmp_path: Path) -> None:
    theirs = saved(tmp_path, whole)
    ours = pretrained.read(tmp_path)
    for text in TEXTS:
        assert list(ours.framed(text).ids) == theirs(text)["input_ids"], text
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"], text
    pair = theirs(TEXTS[0], TEXTS[1], return_token_type_ids=True)
    framed = ours.framed(TEXTS[0], TEXTS[1])
    assert (list(framed.ids), list(framed.segments)) == (pair["input_ids"], pair["token_type_ids"])
    assert "酒店" in ours.tokens(ours.encode("酒店的房间"))  # BERT's words are single characters


def test_it_is_written_copied_and_read_again(tmp_path: Path) -> None:
    saved(tmp_path, True)
    ours = pretrained.read(tmp_path)
    (tmp_path / "again").mkdir()
    ours.save_all(tmp_path / "again")
    (tmp_path / "again" / "config.json").write_text('{"model_type": "roformer"}')
    copies: list[Tokenizer] = [pickle.loads(pickle.dumps(ours)), pretrained.read(tmp_path / "again")]
    for copy in copies:
        assert [copy.encode(text) for text in TEXTS] == [ours.encode(text) for text in TEXTS]


def test_without_the_dictionary_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, True)
    monkeypatch.setitem(sys.modules, "rjieba", None)
    with pytest.raises(MissingExtra, match=r'pip install "heed-attention\[chinese\]"'):
        pretrained.read(tmp_path)


def test_ids_of_real_texts_are_theirs(tmp_path: Path) -> None:
    place = Path(os.environ.get("HEED_DATA", "/nowhere")) / "cls" / "chnsenticorp_hotel.test.tsv.gz"
    if not place.is_file():
        pytest.skip(f"{place} is not here: set HEED_DATA to the folder of data sets")
    import rjieba

    with gzip.open(place, "rt", encoding="utf-8") as lines:
        texts = [line.rstrip("\n").split("\t", 1)[-1] for line in lines]
    words = sorted({word for text in texts[::2] for word in rjieba.cut(text, False) if word.strip()})
    characters = sorted({character for text in texts for character in text if character.strip()})
    vocabulary = {word: index for index, word in enumerate(dict.fromkeys([*WORDS, *words, *characters]))}
    theirs = transformers.RoFormerTokenizer(vocab=vocabulary)
    theirs.save_pretrained(tmp_path)
    ours = pretrained.read(tmp_path)
    for text, ids in zip(texts, ours.encode_all(texts), strict=True):
        assert ids == theirs(text, add_special_tokens=False)["input_ids"], text
