"""A tokenizer called as Hugging Face's are, beside theirs: ids, masks, segments, padding on either side, cutting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers, processors

from heed.core.errors import InputError
from heed.text import BatchEncoding, Tokenizer

HF: Any = transformers
WORDS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]", *(f"w{index}" for index in range(12)))
TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9"]


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Any, Tokenizer]:
    """Theirs and ours, framed as BERT's is."""
    inner = Library(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(list(WORDS[:5]))
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    inner.save(str(tmp_path / "tokenizer.json"))
    named = {"pad_token": "[PAD]", "mask_token": "[MASK]", "unk_token": "[UNK]", "cls_token": "[CLS]"}
    theirs = HF.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), **named, sep_token="[SEP]")
    theirs.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]  # as BERT's are
    return theirs, Tokenizer.read(tmp_path / "tokenizer.json")


CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "one": ((TEXTS[0],), {}),
    "several": ((TEXTS,), {}),
    "a pair": ((TEXTS[0], TEXTS[1]), {}),
    "pairs": ((TEXTS, TEXTS[::-1]), {"padding": True}),
    "padded": ((TEXTS,), {"padding": True}),
    "longest": ((TEXTS,), {"padding": "longest"}),
    "padded to a length": ((TEXTS,), {"padding": "max_length", "max_length": 9}),
    "cut": ((TEXTS,), {"truncation": True, "max_length": 4}),
    "cut and padded": ((TEXTS,), {"truncation": True, "max_length": 6, "padding": True}),
    "a cut pair": ((TEXTS[2], TEXTS[0]), {"truncation": True, "max_length": 8}),
    "unframed": ((TEXTS,), {"add_special_tokens": False}),
    "special tokens": (("w1 [MASK] w2",), {}),
}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("texts", "options"), CALLS.values(), ids=CALLS)
def test_it_gives_what_theirs_gives(
    pair: tuple[Any, Tokenizer], side: Any, texts: tuple[Any, ...], options: dict[str, Any]
) -> None:
    theirs, ours = pair
    theirs.padding_side = ours.padding_side = side
    found = ours(*texts, **options)
    assert isinstance(found, BatchEncoding)
    assert dict(found) == dict(theirs(*texts, **options))


def test_tensors_and_arrays(pair: tuple[Any, Tokenizer]) -> None:
    theirs, ours = pair
    found, wanted = (some(TEXTS, padding=True, return_tensors="pt") for some in (ours, theirs))
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert torch.equal(found.input_ids, found["input_ids"])
    assert torch.equal(found.to("cpu").attention_mask, wanted.attention_mask)
    assert ours("w1", return_tensors="pt").input_ids.shape == (1, 3)
    assert np.array_equal(ours("w1", return_tensors="np").input_ids, [[1, 6, 2]])
    assert ours([]) == {"input_ids": [], "token_type_ids": [], "attention_mask": []}
    assert ours.decode(found.input_ids[0]) == TEXTS[0]
    assert ours.batch_decode(found.input_ids) == TEXTS
    assert ours.decode(found.input_ids[1, :3], skip_special_tokens=False) == theirs.decode([1, 9, 2])
    assert ours.tokens(found.input_ids[1, :3]) == ["[CLS]", "w4", "[SEP]"]


def test_a_text_that_fits_is_left_alone(pair: tuple[Any, Tokenizer], monkeypatch: pytest.MonkeyPatch) -> None:
    """Some tokenizers frame a text otherwise than they encode it: then it cannot be cut, and need not be."""
    _, ours = pair
    monkeypatch.setattr(ours, "encode_all", lambda texts: [[9] for _ in texts])
    assert ours("w1 w2", split_special_tokens=True, truncation=True, max_length=4).input_ids == [1, 6, 7, 2]
    with pytest.raises(InputError, match="frames this text otherwise"):
        ours("w1 w2", split_special_tokens=True, truncation=True, max_length=3)


def test_special_tokens_can_be_text(pair: tuple[Any, Tokenizer]) -> None:
    _, ours = pair
    assert ours("w1 [MASK]").input_ids == [1, 6, 3, 2]
    assert ours("w1 [MASK]", split_special_tokens=True).input_ids == ours.framed("w1 [MASK]").ids == [1, 6, 4, 2]


def test_familiar_names(pair: tuple[Any, Tokenizer]) -> None:
    theirs, ours = pair
    for name in ("vocab_size", "pad_token_id", "mask_token_id"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert len(ours) == len(theirs)
    assert ours.eos_token_id == 2
    assert ours.bos_token_id == 1
    assert ours.tokenize("w1 [MASK] odd") == theirs.tokenize("w1 [MASK] odd")
    for some in (5, [5, 3], np.array([5, 3])):
        assert ours.convert_ids_to_tokens(some) == theirs.convert_ids_to_tokens(some)
    for names in ("w1", ["w1", "odd"]):
        assert ours.convert_tokens_to_ids(names) == theirs.convert_tokens_to_ids(names)


def test_segments_only_where_a_frame_tells_them(tmp_path: Path) -> None:
    bare = Tokenizer(Library(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]")))
    assert dict(bare("a")) == {"input_ids": [0], "attention_mask": [1]}
    assert bare(["a", ""], padding=True).attention_mask == [[1], [0]]  # without a pad token, too


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "a number": (3, {}, "a tokenizer takes a text or a list of texts, not int"),
    "numbers": ([3], {}, "a tokenizer takes text, not int"),
    "ragged": (TEXTS, {"return_tensors": "pt"}, "different lengths make no tensor; add padding=True"),
    "other tensors": ("w1", {"return_tensors": "tf"}, 'return_tensors is "pt"'),
    "no length": ("w1", {"truncation": True}, "add max_length="),
    "no width": ("w1", {"padding": "max_length"}, "add max_length="),
    "strange padding": ("w1", {"padding": "left"}, "padding is True, False"),
    "a slip": ("w1", {"paddding": True}, r"a tokenizer's call takes no paddding; did you mean padding\?"),
    "half a pair": ("w1", {"text_pair": ["w2"]}, "the pair of a text is a text"),
}


@pytest.mark.parametrize(("texts", "options", "words"), WRONG.values(), ids=WRONG)
def test_what_it_does_not_take(pair: tuple[Any, Tokenizer], texts: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        pair[1](texts, **options)
    with pytest.raises(AttributeError, match="there is no labels in these encoded texts; there is input_ids"):
        _ = pair[1]("w1").labels
