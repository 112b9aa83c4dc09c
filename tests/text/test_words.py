"""Where words begin, and what a tokenizer puts around texts: said of ids, not of texts."""

from __future__ import annotations

from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from heed.core.errors import InputError
from heed.text import Bpe, Byte, Char, Framed, Tokenizer, Word
from heed.text.kinds import framing, knowing

TEXT = "Hello, the naïve dog's 12 cats.\nÖl läuft  aus! 他说"
GPT2 = [
    "Hello",
    ",",
    " the",
    " naïve",
    " dog",
    "'s",
    " 12",
    " cats",
    ".",
    "\n",
    "Öl",
    " läuft",
    " ",
    " aus",
    "!",
    " 他说",
]


def words(tokenizer: Tokenizer, ids: list[int]) -> list[list[int]]:
    found = list[list[int]]()
    for index, begins in zip(ids, tokenizer.words(ids), strict=True):
        if begins:
            found.append([])
        found[-1].append(index)
    return found


@pytest.mark.parametrize("config", [Byte(), Char(), Bpe(size=300), Bpe(size=262)])
def test_words_of_bytes_and_characters(config: Any) -> None:
    """They are those that GPT-2 takes a text apart into, however small the tokens are."""
    tokenizer = config.train([TEXT])
    assert [tokenizer.decode(word) for word in words(tokenizer, tokenizer.encode(TEXT))] == GPT2
    assert tokenizer.words([]) == []


def test_what_is_unknown_is_a_letter_of_its_word() -> None:
    tokenizer = Char().train(["a bc"])
    assert [len(word) for word in words(tokenizer, tokenizer.encode("ab?c bc"))] == [4, 3]


def test_long_texts_are_taken_apart_in_parts() -> None:
    tokenizer = Char().train(["ab \n"])
    line = "ab ab"
    ids = tokenizer.encode("\n".join([line] * 30_000))
    assert sum(tokenizer.words(ids)) == 2 * 30_000 + 29_999


def test_words_are_words() -> None:
    tokenizer = Word(size=100).train([TEXT])
    assert all(tokenizer.words(tokenizer.encode(TEXT)))


def test_pieces_of_words() -> None:
    vocabulary = {token: number for number, token in enumerate(("[UNK]", "un", "##aff", "##able", ".", "a"))}
    inner = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    inner.decoder = decoders.WordPiece()
    tokenizer = Tokenizer(inner)
    assert tokenizer.words(tokenizer.encode("a unaffable.")) == [True, True, False, False, True]


def test_pieces_of_sentencepiece_and_of_suffixes() -> None:
    spaced = tokenizers.Tokenizer(models.BPE({"▁a": 0, "b": 1, "▁c": 2}, []))
    assert Tokenizer(spaced).words([1, 1, 0, 1, 2]) == [True, False, True, False, True]
    ended = tokenizers.Tokenizer(models.BPE({"a": 0, "b</w>": 1}, [], end_of_word_suffix="</w>"))
    assert Tokenizer(ended).words([0, 1, 1, 0, 0]) == [True, False, True, True, False]
    neither = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1}, []))
    with pytest.raises(InputError, match="does not tell where words begin; mask single tokens"):
        Tokenizer(neither).words([0, 1])


def test_a_frame_is_that_of_framed_texts() -> None:
    tokenizer = framing(Byte().train(["x"]))
    one, two = tokenizer.encode("hello"), tokenizer.encode("you")
    assert tokenizer.frame().around(one) == tokenizer.framed("hello")
    assert tokenizer.frame(pair=True).around(one, two) == tokenizer.framed("hello", "you")
    assert (tokenizer.frame().size, tokenizer.frame(pair=True).size) == (2, 3)
    bare = Byte().train(["x"])
    assert bare.frame().around(one) == Framed(one, [0] * 5)
    inner = tokenizers.Tokenizer.from_str(bare.to_json())
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    twice = Tokenizer(inner)  # RoBERTa's frame, whose texts are one segment
    assert twice.frame(pair=True).around(one, two) == twice.framed("hello", "you")


def test_a_special_token_that_is_added_stands_for_a_word_with_its_space() -> None:
    tokenizer = knowing(Bpe(size=300).train([TEXT]), "<mask>")
    assert tokenizer.mask is not None
    assert tokenizer.encode_marked("the <mask> dog") == [
        *tokenizer.encode("the"),
        tokenizer.mask,
        *tokenizer.encode(" dog"),
    ]
    letters = knowing(Char().train([TEXT]), "<mask>")
    assert letters.mask is not None
    assert letters.encode_marked("a <mask>") == [*letters.encode("a "), letters.mask]
    assert letters.mask not in letters.usual()
    assert sorted([*letters.usual(), 0, 1, 2, 3, letters.mask]) == list(range(letters.size))
