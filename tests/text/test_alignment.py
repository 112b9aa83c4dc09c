"""Words and their first tokens, answers and their tokens: exact for every kind of tokenizer."""

from __future__ import annotations

import unicodedata
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from heed.core.errors import InputError
from heed.text import Bpe, Byte, Char, Framed, Tokenizer, Word
from heed.text.alignment import FramedWords, covering, framed_words, joined, pieces, windows, words_in
from heed.text.kinds import framing
from tests.text.material import folder, trained

TEXTS = [
    "The cats' café sat on the mat, didn't it? Al-Zaman killed 5,500,000 of them.",
    "科技全方位 資訊科技 und Zürich http://x.y/z @paulwalk #tags e\u0301te\u0301 1-2 ©™",
    "unbelievable unbelievably unaffordable affordable believers the the the of the of the",
]
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]


def bert() -> Tokenizer:
    inner = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer, inner.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    inner.train_from_iterator(
        TEXTS, trainers.WordPieceTrainer(vocab_size=120, special_tokens=SPECIAL, show_progress=False)
    )
    inner.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return Tokenizer(inner)


def roberta(*, prefix: bool) -> Tokenizer:
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=prefix), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(TEXTS, trainer)
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    return Tokenizer(inner)


def unigram() -> Tokenizer:
    """As SentencePiece's models are read: NFKC, ▁ for a space, also before the first word."""
    inner = tokenizers.Tokenizer(models.Unigram())
    inner.normalizer, inner.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=90, special_tokens=["<pad>", "<s>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    inner.train_from_iterator(TEXTS, trainer)
    return framing(Tokenizer(inner))


def sentencepiece(**options: Any) -> Tokenizer:
    """A model of SentencePiece, as a checkpoint has it."""
    with TemporaryDirectory() as place:
        return framing(Tokenizer.of_folder(folder(Path(place), {"tokenizer.model": trained(**options)})))


def across() -> Tokenizer:
    """Pairs that are merged across spaces: "of the" is one token."""
    inner = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    inner.decoder = decoders.Fuse()
    trainer = trainers.BpeTrainer(vocab_size=200, special_tokens=["<pad>", "<s>", "</s>", "<unk>"], show_progress=False)
    inner.train_from_iterator(TEXTS * 3, trainer)
    return framing(Tokenizer(inner))


MAKE = {
    "byte": lambda: framing(Byte().train()),
    "char": lambda: framing(Char().train(TEXTS)),
    "word": lambda: framing(Word().train(TEXTS)),
    "bpe": lambda: framing(Bpe(size=330).train(TEXTS)),
    "lower": lambda: framing(Bpe(size=330, lowercase=True).train(TEXTS)),
    "bert": bert,
    "roberta": lambda: roberta(prefix=False),
    "prefixed": lambda: roberta(prefix=True),
    "unigram": unigram,
    "sentencepiece": lambda: sentencepiece(model_type="unigram"),
    "llama": lambda: sentencepiece(model_type="bpe", byte_fallback=True, split_digits=True, vocab_size=400),
    "across": across,
    "bare": lambda: Bpe(size=330).train(TEXTS),  # no frame, as GPT-2
}
KINDS = list(MAKE)


@cache
def made(kind: str) -> Tokenizer:
    return MAKE[kind]()


def sentence(kind: str, words: list[str]) -> FramedWords:
    (found,) = framed_words(made(kind), [joined(words)])
    return found


def tokens_of(kind: str, found: FramedWords) -> list[list[int]]:
    """The tokens from the first of each word to the first of the next."""
    ids = found.framed.ids
    ends = [*found.firsts[1:], len(ids) - found.after]
    return [ids[begin:end] for begin, end in zip(found.firsts, ends, strict=True)]


WORDS = st.lists(
    st.one_of(
        st.sampled_from(
            ["The", "cats", "n't", "-", "5,500,000", "科", "技", "©", "#", "[CLS]", "</s>", "▁", "Ġ", "the"]
        ),
        st.text("abeThé科技,.'-\u0301ß½", min_size=1, max_size=6),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(words=WORDS)
def test_every_word_has_a_first_token_of_its_own(kind: str, words: list[str]) -> None:
    found, tokenizer = sentence(kind, words), made(kind)
    assert len(found.firsts) == len(words)
    assert sorted(set(found.firsts)) == found.firsts
    assert found.before <= found.firsts[0]
    assert found.firsts[-1] < len(found.framed.ids) - found.after
    assert len(found.framed.ids) == len(found.framed.segments)
    if tokenizer.begin is not None and kind != "bare":
        assert tokenizer.begin not in found.framed.ids[1:-1]  # no word gives a special token
    if kind in {"byte", "bpe", "roberta", "prefixed", "bare"}:  # where a text is its tokens, the tokens spell the word
        spelt = [tokenizer.decode(ids).strip() for ids in tokens_of(kind, found)]
        wanted = [unicodedata.normalize("NFC", word) if kind in {"byte", "bpe", "bare"} else word for word in words]
        if not any(unicodedata.combining(word[0]) for word in words):  # that may join the word before it
            assert spelt == wanted


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "across"])
def test_words_are_read_as_the_text_that_they_make(kind: str) -> None:
    """A model sees the ids that it sees of a text."""
    words = ["The", "cats", "sat", "on", "Zürich", "unbelievably", "."]
    assert sentence(kind, words).framed == made(kind).framed(" ".join(words))


def test_theirs_gives_the_same_first_tokens() -> None:
    """Word ids of the library, for words that are split before, where it can do it."""
    words = ["The", "cats'", "unbelievable", "café", "科技", "x.y/z", "."]
    theirs = made("bert")._inner.encode(words, is_pretokenized=True)
    wanted = [theirs.word_ids.index(number) for number in range(len(words))]
    found = sentence("bert", words)
    assert (found.firsts, found.framed.ids) == (wanted, theirs.ids)
    theirs = made("prefixed")._inner.encode(words, is_pretokenized=True)
    wanted = [theirs.word_ids.index(number) for number in range(len(words))]
    found = sentence("prefixed", words)
    assert found.framed.ids == theirs.ids
    spaces = [theirs.tokens[place] == "Ġ" for place in wanted]  # which is the first for them, and not here
    assert found.firsts == [place + space for place, space in zip(wanted, spaces, strict=True)]


def test_the_space_before_a_word_is_not_its_first_token() -> None:
    for kind in ("char", "byte", "unigram"):
        found, tokenizer = sentence(kind, ["xe", "xe", "xe"]), made(kind)
        names = {tokenizer.name(found.framed.ids[place]) for place in found.firsts}
        assert len(names) == 1, (kind, names)
        assert names.isdisjoint({"▁", " ", "Ġ"})


def test_a_token_that_reaches_across_words_is_taken_apart() -> None:
    tokenizer, words = made("across"), ["the", "of", "the", "of"]
    assert any(" " in tokenizer.name(index).strip() for index in tokenizer.encode(" ".join(words)))
    found = sentence("across", words)
    assert [tokenizer.decode(ids).strip() for ids in tokens_of("across", found)] == words


def test_a_word_of_which_nothing_is_left_is_unknown() -> None:
    tokenizer = made("bert")
    assert tokenizer.encode("\u200b") == []  # BERT drops what is not seen
    found = sentence("bert", ["the", "\u200b", "cats"])
    assert found.framed.ids[found.firsts[1]] == tokenizer.unknown
    alone = sentence("bert", ["\u200b"])
    assert (alone.framed.ids, alone.firsts) == ([tokenizer.begin, tokenizer.unknown, tokenizer.end], [1])


def test_spaces_stand_where_scripts_set_them() -> None:
    assert joined(["资", "讯", "and", "科", "。"]).text == "资讯 and 科。"
    assert joined(["资", "讯", "and", "科"]).words == ["资", "讯", "and", "科"]
    for wrong in (["a", " b"], ["a", ""], ["a", 3]):
        with pytest.raises(InputError, match="a word is text without white space around it"):
            joined(wrong)
    with pytest.raises(InputError, match="no words"):
        joined([])


def test_a_text_is_taken_apart_into_words() -> None:
    found = words_in("He didn't pay €5.50,\n in 北京!")
    assert found.words == ["He", "didn't", "pay", "€", "5.50", ",", "in", "北", "京", "!"]
    assert words_in(" \n").spans == []


# --- pieces ---


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(words=WORDS, longest=st.integers(3, 12))
def test_pieces_lose_no_word(kind: str, words: list[str], longest: int) -> None:
    whole = sentence(kind, words)
    cut = list(pieces(whole, longest))
    assert sum(len(piece.firsts) for piece in cut) == len(words)
    firsts = [piece.framed.ids[place] for piece in cut for place in piece.firsts]
    assert firsts == [whole.framed.ids[place] for place in whole.firsts]
    for piece in cut:
        assert len(piece.framed.ids) == len(piece.framed.segments) <= longest
        assert piece.framed.ids[: piece.before] == whole.framed.ids[: whole.before]
        assert (
            piece.framed.ids[len(piece.framed.ids) - piece.after :]
            == whole.framed.ids[len(whole.framed.ids) - whole.after :]
        )
    if len(whole.framed.ids) <= longest:
        assert cut == [whole]


def test_pieces_are_as_long_as_can_be() -> None:
    whole = FramedWords(Framed([1, *range(10, 20), 2], [0] * 12), [1, 2, 4, 7, 9], 1, 1)
    assert [piece.framed.ids for piece in pieces(whole, 6)] == [
        [1, 10, 11, 12, 2],
        [1, 13, 14, 15, 2],
        [1, 16, 17, 18, 19, 2],
    ]
    assert [piece.firsts for piece in pieces(whole, 6)] == [[1, 2], [1], [1, 3]]
    assert [len(piece.framed.ids) for piece in pieces(whole, 3)] == [3] * 5
    with pytest.raises(InputError, match="places for 2 tokens, and 2 of them stand around every text"):
        list(pieces(whole, 2))


# --- windows ---


@pytest.mark.parametrize("kind", KINDS)
def test_windows_hold_all_of_the_context_and_overlap(kind: str) -> None:
    tokenizer, question, context = made(kind), "Who sat on the mat?", " ".join(TEXTS)
    (aligned,) = tokenizer.aligned_all([question], [context])
    whole = tokenizer.framed(question, context)
    assert (aligned.ids, aligned.segments) == (whole.ids, whole.segments)
    asking = windows(aligned, len(tokenizer.encode(question)) + 40, 10, 100)
    inside = [place for place, text in enumerate(aligned.texts) if text == 1]
    assert len(asking.spans) == len(inside)
    reached = 0
    for window in asking.windows:
        ids = window.framed.ids[window.first : window.first + window.size]
        assert ids == [aligned.ids[inside[at]] for at in range(window.begin, window.begin + window.size)]
        assert window.framed.ids[: window.first] == aligned.ids[: inside[0]]
        assert window.begin == max(0, reached - 10)
        reached = window.begin + window.size
    assert reached == len(inside)
    assert not asking.cut


def test_a_long_question_loses_its_end_and_a_short_window_is_refused() -> None:
    (aligned,) = made("word").aligned_all(["the cats sat on the mat"], ["the mat, the mat, the mat"])
    asking = windows(aligned, 12, 2, 3)
    assert asking.cut
    assert all(window.first == 5 for window in asking.windows)  # <s>, three words, </s>
    with pytest.raises(InputError, match="has places for 1 of the context"):
        windows(aligned, 10, 2, 100)
    (empty,) = made("word").aligned_all(["the"], [" "])
    with pytest.raises(InputError, match="nothing in the context"):
        windows(empty, 10, 2, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_the_tokens_that_hold_its_characters(kind: str) -> None:
    tokenizer, context = made(kind), TEXTS[0]
    (aligned,) = tokenizer.aligned_all([context])
    for answer in ("The cats'", "café", "5,500,000", "didn't it?"):
        begin = context.index(answer)
        found = covering(aligned.spans, begin, begin + len(answer))
        assert found is not None
        first, last = found
        held = context[aligned.spans[first][0] : aligned.spans[last][1]]
        assert answer in held
        if kind in {"byte", "char"}:
            assert held == answer
    assert covering(aligned.spans, len(context), len(context) + 3) is None
