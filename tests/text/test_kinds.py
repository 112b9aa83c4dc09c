"""The kinds: exact round trips, texts that read well, streams that never take back, the same file every time."""

from __future__ import annotations

import os
import subprocess
import sys
import unicodedata
from functools import cache

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from heed.core.config import Config
from heed.core.errors import ConfigError, InputError
from heed.text import AnyTokenizer, Bpe, Byte, Char, Tokenizer, TokenizerConfig, Word, pretokenizers
from heed.text.pretokenizers import byte_alphabet

TEXTS = ["The cat sat on the mat, said the cat.", "敏捷的棕色狐狸跳过懒狗。敏捷的", "🎉👩‍👩‍👧 ça été"] * 3

# Characters that Python's Unicode tables know, and more of those that are easily got wrong.
CHARACTERS = st.characters(exclude_categories=["Cs", "Cn"])
AWKWARD = st.sampled_from(
    [*" \n\t\r\0", "e\u0301", "你", "好", "👩‍👧", "🎉", "</s>", "<pad>", "  ", "\n\n", "It's", "Ω", "İ"]
)
ANYTHING = st.lists(AWKWARD | CHARACTERS).map("".join)


@cache
def trained(kind: TokenizerConfig) -> Tokenizer:
    return kind.train(TEXTS)


def streamed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = tokenizer.stream()
    return [*(stream.push(index) for index in ids), stream.rest()]


# --- round trips ---


@pytest.mark.parametrize("kind", [Byte(), Bpe(size=260), Bpe(size=320)], ids=repr)
@settings(deadline=None)
@given(text=ANYTHING)
def test_bytes_lose_nothing(kind: TokenizerConfig, text: str) -> None:
    tokenizer = trained(kind)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == unicodedata.normalize("NFC", text)
    assert all(index > 3 for index in ids)


@settings(deadline=None)
@given(text=ANYTHING)
def test_characters_lose_nothing_that_they_know(text: str) -> None:
    tokenizer = Char().train([text, "x"])
    normal = unicodedata.normalize("NFC", text)
    assert tokenizer.decode(tokenizer.encode(text)) == normal
    assert tokenizer.size == 4 + len({*normal, "x"})


def test_an_unknown_character_is_unknown() -> None:
    tokenizer = Char().train(["abc"])
    assert tokenizer.encode("a?b\n") == [4, 3, 5, 3]
    assert tokenizer.decode(tokenizer.encode("a?b")) == "ab"


def test_bytes_are_numbered_by_value() -> None:
    assert Byte().train().encode("A\0ÿ") == [4 + byte for byte in "A\0ÿ".encode()]
    assert Byte().train().size == 260
    assert set(byte_alphabet()) == set(pre_tokenizers.ByteLevel.alphabet())


@pytest.mark.parametrize("kind", [Byte(lowercase=True), Char(lowercase=True), Bpe(lowercase=True)], ids=repr)
def test_lower_case(kind: TokenizerConfig) -> None:
    tokenizer = kind.train(["ÄBC İx", "Cafe\u0301"])
    assert tokenizer.decode(tokenizer.encode("ÄBC")) == "äbc"
    assert tokenizer.decode(tokenizer.encode("İ")) == unicodedata.normalize("NFC", "İ".lower())
    assert tokenizer.encode("cafe\u0301") == tokenizer.encode("CAFÉ")


READS = [
    '"Hello," he said, "there is $5.20 (and/or 50%) well-known." \'Yes\'',
    "„Ja“, sagte er. „Nein“ sagte sie.",
    "A man's dog isn't here... ok? [1]",
    '¿Qué? a—b a & b 3.5 ❤️! 10:30, 1,000.5 km/h ("Bob") #tag f(x) = "y"',
    "你好，世界。 你好！",
    "One line.\n\n“Another” line\nword , word .",
    "👩‍👩‍👧 family",
]


@pytest.mark.parametrize("text", READS)
def test_words_come_back_so_that_they_read_well(text: str) -> None:
    tokenizer = Word().train(READS)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_words_are_limited_to_the_most_frequent() -> None:
    tokenizer = Word(size=6).train(["b a a c a b"])
    assert tokenizer.size == 6
    assert tokenizer.encode("a b c") == [4, 5, 3]
    assert tokenizer.decode([4, 5]) == "a b"
    assert Word(lowercase=True).train(["A a"]).size == 5


def test_frequent_pairs_are_joined() -> None:
    tokenizer = Bpe(size=300).train(["hello hello hello"])
    assert tokenizer.tokens(tokenizer.encode("hello hello")) == ["hello", "␣hello"]
    assert 260 < tokenizer.size < 300  # there is nothing more to join
    assert Bpe(size=262).train(["hello hello hello"]).size == 262


LAYOUT = "a\n\n\nb  \n c\n\n  \n\tb\n b\n"


@pytest.mark.parametrize("kind", [Byte(), Char(), Word(), Bpe(size=290)], ids=repr)
@settings(deadline=None)
@given(text=st.text("ab. \n\t\r\u0301你", max_size=40))
def test_a_long_text_has_the_ids_of_a_short_one(kind: TokenizerConfig, text: str) -> None:
    """Long texts are cut, but only where no piece reaches across: not within white space, which makes pieces, too."""
    tokenizer = kind.train([LAYOUT] * 5)
    whole = tokenizer.encode(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretokenizers, "LONG", 1)
        assert "".join(pretokenizers.cut(text)) == text
        assert tokenizer.encode(text) == whole


# --- streams ---

STREAMED = [Byte(), Char(), Word(), Bpe(size=270), Bpe(size=320)]


@pytest.mark.parametrize("kind", STREAMED, ids=repr)
@settings(deadline=None)
@given(text=ANYTHING)
def test_a_stream_gives_whole_characters(kind: TokenizerConfig, text: str) -> None:
    tokenizer = trained(kind)
    ids = tokenizer.encode(text.replace("\ufffd", ""))
    parts = streamed(tokenizer, ids)
    assert "".join(parts) == tokenizer.decode(ids)
    assert not any("\ufffd" in part for part in parts)
    assert parts[-1] == ""


@pytest.mark.parametrize("kind", STREAMED, ids=repr)
@settings(deadline=None)
@given(data=st.data())
def test_a_stream_of_any_ids_is_what_decode_gives(kind: TokenizerConfig, data: st.DataObject) -> None:
    """Broken characters, too: untrained models write them."""
    tokenizer = trained(kind)
    ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1)))
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)


def test_a_character_waits_for_its_last_byte_and_a_stream_begins_anew() -> None:
    tokenizer = trained(Byte())
    ids = tokenizer.encode("a你🎉")
    assert streamed(tokenizer, ids) == ["a", "", "", "你", "", "", "", "🎉", ""]
    stream = tokenizer.stream()
    assert stream.push(ids[1]) + stream.rest() == "\ufffd"
    assert stream.push(ids[0]) + stream.rest() == "a"


def sentencepiece(decoder: decoders.Decoder) -> Tokenizer:
    """Words with ▁ for a space, and bytes for what is unknown."""
    names = ["<unk>", "▁a", "b", "▁c", *(f"<0x{byte:02X}>" for byte in "你🎉".encode())]
    inner = tokenizers.Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}, "<unk>"))
    inner.decoder = decoder
    return Tokenizer(inner)


FOREIGN = {
    "metaspace": decoders.Metaspace(),
    "wordpiece": decoders.WordPiece(),
    "byte fallback": decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    ),
}


@pytest.mark.parametrize("decoder", FOREIGN.values(), ids=FOREIGN)
@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 10)))
def test_a_stream_of_a_tokenizer_of_others(decoder: decoders.Decoder, ids: list[int]) -> None:
    tokenizer = sentencepiece(decoder)
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)


def test_byte_fallback_gives_whole_characters() -> None:
    tokenizer = sentencepiece(FOREIGN["byte fallback"])
    assert streamed(tokenizer, [1, 4, 5, 6, 2, 7, 8, 9, 10]) == ["a", "", "", "", "你b", "", "", "", "", "🎉"]


def test_bytes_under_any_decoder_wait_for_their_character() -> None:
    names = [byte_alphabet()[byte] for byte in "a你".encode()]
    inner = tokenizers.Tokenizer(models.WordLevel({name: number for number, name in enumerate(names)}))
    inner.decoder = decoders.Sequence([decoders.ByteLevel()])  # in a sequence it may be anything: all is decoded anew
    tokenizer = Tokenizer(inner)
    assert streamed(tokenizer, [0, 1, 2, 3]) == ["a", "", "", "你", ""]
    assert streamed(tokenizer, [0, 1]) == ["a", "", "\ufffd"]


# --- training ---


@pytest.mark.parametrize(("text", "tokens"), [("ab", 2), ("ab ab", 1)])
def test_only_what_occurs_twice_is_joined(text: str, tokens: int) -> None:
    assert len(Bpe(size=300).train([text]).encode("ab")) == tokens


@pytest.mark.parametrize("kind", [Char(), Word(), Bpe()], ids=repr)
@pytest.mark.parametrize("texts", [[], [""], ["", " \n"]], ids=repr)
def test_nothing_to_train_on(kind: TokenizerConfig, texts: list[str]) -> None:
    with pytest.raises(InputError, match="nothing to train a tokenizer on: there are no texts, or all are empty"):
        kind.train(texts)


def test_one_text_is_not_a_list_of_texts() -> None:
    with pytest.raises(InputError, match=r"write \[text\]"):
        Char().train("abc")


def test_texts_may_come_one_by_one() -> None:
    assert Bpe(size=300).train(text for text in TEXTS).encode("the cat") == Bpe(size=300).train(TEXTS).encode("the cat")


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="size 259 does not hold the 256 bytes and .*; least: 260"):
        Bpe(size=259)
    with pytest.raises(ConfigError, match="size 4 leaves no word beside <pad> <s> </s> <unk>; it must be at least 5"):
        Word(size=4)


def test_a_place_in_a_configuration() -> None:
    class Owner(Config):
        tokenizer: AnyTokenizer = Byte()

    assert Owner.load({"tokenizer": {"kind": "bpe", "size": 500}}).tokenizer == Bpe(size=500)
    with pytest.raises(ConfigError, match="tokenizer.kind is 'bep'; did you mean"):
        Owner.load({"tokenizer": {"kind": "bep"}})
    with pytest.raises(ConfigError, match="tokenizer.path is missing"):
        Owner.load({"tokenizer": {"kind": "file"}})


# --- processes ---


def run(code: str, **environment: str) -> str:
    """What another Python prints; nothing may go to stderr."""
    kept = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_same_texts_give_the_same_file() -> None:
    """Whatever the seed of Python's hashes, the order of sets and the number of threads."""
    code = """
import hashlib
from heed.text import Bpe, Char, Word
texts = [f"word{n % 97} and{n % 31} 你{chr(0x4e00 + n % 50)} </s>" for n in range(3000)]
for kind in (Char(), Word(size=90), Bpe(size=500)):
    print(hashlib.sha256(kind.train(texts)._inner.to_str(pretty=True).encode()).hexdigest())
"""
    first = run(code, PYTHONHASHSEED="1", RAYON_NUM_THREADS="1")
    assert len(set(first.split())) == 3
    assert run(code, PYTHONHASHSEED="2", RAYON_NUM_THREADS="3") == first


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
@pytest.mark.skipif(tokenizers.__version__ < "0.23", reason="the library told of its threads at every fork until 0.23")
def test_a_fork_is_quiet_and_the_child_works() -> None:
    """The library leaves its threads behind; a child that waited for them would hang, an older one would warn."""
    code = """
import os, warnings
from heed.text import Byte
warnings.simplefilter("ignore", DeprecationWarning)  # since 3.12 Python itself warns of a fork beside threads
tokenizer = Byte().train()
texts = ["hello"] * 1000
ids = tokenizer.encode_all(texts)
child = os.fork()
if child == 0:
    os._exit(0 if tokenizer.encode_all(texts) == ids else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    run(code, RAYON_NUM_THREADS="2")


def test_importing_is_light() -> None:
    code = "import sys, heed.text; print(sorted({'torch', 'datasets', 'numpy', 'transformers'} & set(sys.modules)))"
    assert run(code).strip() == "[]"
