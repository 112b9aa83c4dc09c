"""SentencePiece models as tokenizers of the library: the ids and the texts that sentencepiece itself gives."""

from __future__ import annotations

import struct
import tempfile
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from heed.core.errors import HeedError, InputError
from heed.text import Tokenizer, pretrained
from heed.text.sentencepiece import HIDDEN, NORMAL, UNKNOWN, Piece, Pieces, merges, read_pieces, relabelled
from tests.text.material import TEXTS, folder, real, trained

IDENTITY: dict[str, Any] = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
MODELS: dict[str, dict[str, Any]] = {
    "unigram": {},
    "unigram, bytes": {"byte_fallback": True, "vocab_size": 400},
    "unigram, as it is": IDENTITY,
    "unigram, lower case": {"normalization_rule_name": "nmt_nfkc_cf"},
    "unigram, no prefix": {"add_dummy_prefix": False},
    "unigram, symbols": {"user_defined_symbols": ("<x>", "[A]", "(")},
    "unigram, across words": {"split_by_whitespace": False},
    "pairs": {"model_type": "bpe"},
    "pairs, bytes": {"model_type": "bpe", "byte_fallback": True, "vocab_size": 400, **IDENTITY},
    "pairs, symbols": {
        "model_type": "bpe",
        "byte_fallback": True,
        "vocab_size": 400,
        "add_dummy_prefix": False,
        "user_defined_symbols": ("<x>", "[A]", "▁▁", "\n"),
        **IDENTITY,
    },
    "characters": {"model_type": "char"},
}
# What the library itself reads otherwise is left out: half-width katakana with a mark after them, a mark after a
# ligature, and names of special tokens beside characters that a model does not know.
ALPHABET = [
    *"     \n\tabcdehinorst.,'\"0123<>",
    "🎉",
    "你",
    "é",
    "e\u0301",
    "か\u3099",
    "▁",
    "ß",
    "가",
    "  ",
    " the",
    "ﬁ",
]
ALPHABET += ["Ａ", "\u3000", "\ufeff", "👩‍👩‍👧", "<x>", "[A]", " of the ", "world"]
ANYTHING = st.lists(st.sampled_from(ALPHABET), max_size=14).map("".join)


@cache
def both(name: str) -> tuple[Tokenizer, sentencepiece.SentencePieceProcessor]:
    data = trained(**MODELS[name])
    return Tokenizer(pieces_of(data).build()), sentencepiece.SentencePieceProcessor(model_proto=data)


def pieces_of(data: bytes) -> Pieces:
    with tempfile.TemporaryDirectory() as place:
        return read_pieces(folder(Path(place), {"x.model": data}) / "x.model")


@pytest.mark.parametrize("name", MODELS)
def test_the_ids_are_those_of_sentencepiece(name: str) -> None:
    tokenizer, theirs = both(name)
    for text in TEXTS:
        assert tokenizer.encode(text) == theirs.encode(text), text
        assert tokenizer.decode(theirs.encode(text)) == theirs.decode(theirs.encode(text)).replace(" ⁇ ", "")
    assert tokenizer.size == theirs.get_piece_size()


@pytest.mark.parametrize("name", MODELS)
@settings(deadline=None, max_examples=80)
@given(text=ANYTHING)
def test_the_ids_of_any_text(name: str, text: str) -> None:
    tokenizer, theirs = both(name)
    assert tokenizer.encode(text) == theirs.encode(text)


@pytest.mark.parametrize("name", MODELS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_stream_of_any_ids_is_what_decode_gives(name: str, data: st.DataObject) -> None:
    tokenizer, theirs = both(name)
    ids = data.draw(st.lists(st.integers(0, tokenizer.size - 1), max_size=12))
    stream = tokenizer.stream()
    assert "".join([*(stream.push(index) for index in ids), stream.rest()]) == tokenizer.decode(ids)
    plain = [index for index in ids if not theirs.is_byte(index) and not theirs.is_unknown(index)]
    assert tokenizer.decode(plain) == theirs.decode(plain)


def test_a_stream_gives_what_it_can_and_begins_anew() -> None:
    tokenizer, _ = both("pairs, bytes")
    stream = tokenizer.stream()
    ids = tokenizer.encode("the fox €x")
    parts = [stream.push(index) for index in ids]
    assert "".join(parts) == "the fox €x"
    assert parts[0] == "the"
    assert [part for part in parts if "€" in part] == ["€x"]
    assert stream.rest() == ""
    assert stream.push(ids[0]) == "the"


@pytest.mark.parametrize("name", ["unigram", "unigram, bytes", "pairs", "pairs, bytes"])
def test_a_text_that_spells_a_special_token_or_a_byte_is_text(name: str) -> None:
    tokenizer, theirs = both(name)
    for text in ("</s>", "a <s> b", "<unk>", "<0x41>"):
        ids = tokenizer.encode(text)
        assert not {1, 2} & set(ids)
        if "bytes" in name:
            assert tokenizer.decode(ids) == text
            assert ids == theirs.encode(text)


def test_llama_2_is_read_id_for_id(tmp_path: Path) -> None:
    path = folder(tmp_path, {"tokenizer.model": real("llama2_tokenizer.model.gz")}) / "tokenizer.model"
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    tokenizer = Tokenizer(read_pieces(path).build())
    assert tokenizer.size == 32000
    texts = [*TEXTS, "def f(x):\n    return x  # ok\n\n\n", "▁ ▁▁ a▁b", "\u200d\u0301", "Ωmega ﷽ 𝕏"]
    assert tokenizer.encode_all(texts) == theirs.encode(texts)
    assert tokenizer.decode_all(theirs.encode(texts)) == theirs.decode(theirs.encode(texts))


# --- the parts of a conversion ---


def test_pairs_are_merged_by_the_score_of_what_they_make() -> None:
    pieces = [Piece("a", -9), Piece("b", -9), Piece("c", -9), Piece("bc", -1), Piece("ab", -2), Piece("abc", -3)]
    assert merges(pieces) == [("b", "c"), ("a", "b"), ("a", "bc"), ("ab", "c")]
    assert merges([*pieces, Piece("ca", 0, 5)])[0] == ("c", "a")  # unused, but a step on the way
    assert ("a", "</s>") not in merges([*pieces, Piece("</s>", 0, 3), Piece("a</s>", 0)])


def test_ids_of_another_file(tmp_path: Path) -> None:
    model = Pieces(
        (Piece("<unk>", 0, UNKNOWN), Piece("▁a", -1), Piece("▁b", -2), Piece("▁", -3), Piece("c", -4)), False
    )
    ids = {"</s>": 0, "<unk>": 1, "▁b": 2, "▁x": 3, "▁": 4, "c": 5, ">>de<<": 6}
    tokenizer = Tokenizer(relabelled(model, ids, ["<unk>", "</s>"]).build())
    assert tokenizer.encode("b c") == [2, 4, 5]
    assert tokenizer.encode("x") == [4, 1]  # ▁x is written but not read
    assert tokenizer.encode(f"{HIDDEN}▁x") == [4, 4, 1]
    assert tokenizer.decode([2, 3, 5]) == "b xc"
    assert tokenizer.encode(">>de<< b") == [6, 2]
    for wrong in ({"<unk>": 0, "c": 2}, {"<unk>": 0, "c": 0}):
        with pytest.raises(InputError, match="are not 0 to 1, each of them once"):
            relabelled(model, wrong, ["<unk>"])


def test_a_piece_that_is_there_twice() -> None:
    with pytest.raises(InputError, match="holds a piece twice"):
        Pieces((Piece("a"), Piece("a")), pairs=True)


# --- files ---


def field(number: int, value: int | bytes) -> bytes:
    return bytes([number << 3, value]) if isinstance(value, int) else bytes([number << 3 | 2, len(value)]) + value


def piece(text: str, kind: int = NORMAL) -> bytes:
    return field(1, field(1, text.encode()) + b"\x15" + struct.pack("<f", -1) + field(3, kind))


GOOD = piece("<unk>", 2) + piece("a") + field(2, field(3, 2))
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it holds no pieces"),
    "cut off": (GOOD[:-1], "a field of|does not end"),
    "text": (b"hello world, this is text", "not a SentencePiece model"),
    "tiktoken": (b"IQ== 0\nIg== 1\n", "tiktoken's files have the same name"),
    "endless number": (b"\x08" + b"\xff" * 20, "does not end"),
    "long field": (b"\x0a\xff\xff\xff\xff\x7f", "begins at byte"),
    "field longer than its piece": (field(1, b"\x0a\x02a"), "a field of 2 bytes begins at byte 2 of 3"),
    "group": (b"\x0b", "begins no field"),
    "not UTF-8": (field(1, field(1, b"\xff\xfe")), "a piece is not UTF-8"),
    "number for a piece": (field(1, 7), "a number stands where a text belongs"),
    "text for a type": (field(1, field(1, b"a") + field(3, b"x")), "a text stands where a number belongs"),
    "short score": (field(1, field(1, b"a") + field(2, b"x")), "is no number"),
    "words": (piece("a") + field(2, field(3, 3)), "of type 3 are not supported"),
    "suffix": (piece("a") + field(2, bytes([24 << 3 & 0x7F | 0x80, 1, 1])), "spaces at the ends of words"),
    "unescaped": (piece("a") + field(3, field(5, 0)), "leaves spaces as they are"),
    "twice": (piece("a") + piece("a"), "a piece twice"),
    "long piece": (field(1, field(1, b"x")) + b"\x0a\x84\x08\x0a\x81\x08" + b"a" * 1025, "a piece of 1,025 characters"),
    "map": (piece("a") + field(3, field(2, b"\x00\x01")), "cannot be converted"),
}


@pytest.mark.parametrize(("data", "words"), BROKEN.values(), ids=BROKEN)
def test_bad_files_are_explained(tmp_path: Path, data: bytes, words: str) -> None:
    path = folder(tmp_path, {"tokenizer.model": data}) / "tokenizer.model"
    with pytest.raises(InputError, match=words):
        read_pieces(path).build()
    with pytest.raises(InputError, match=words):
        pretrained.read(tmp_path)


def test_a_good_file_is_read(tmp_path: Path) -> None:
    found = read_pieces(folder(tmp_path, {"x.model": GOOD}) / "x.model")
    assert found.pieces == (Piece("<unk>", -1, UNKNOWN), Piece("a", -1, NORMAL))
    assert found.pairs


@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(data: st.DataObject) -> None:
    """Nothing but an error of heed comes out, whatever bytes are changed, cut or doubled."""
    kind, rule = data.draw(st.sampled_from(["unigram", "bpe"])), data.draw(st.sampled_from(["nmt_nfkc", "identity"]))
    good = bytearray(trained(vocab_size=90, model_type=kind, normalization_rule_name=rule))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(good) - 1))
        good[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    good = good[: data.draw(st.integers(0, len(good)))] if data.draw(st.booleans()) else good
    try:
        tokenizer = Tokenizer(pieces_of(bytes(good)).build())
        ids = tokenizer.encode("the fox, ﬁ 1 が")
        tokenizer.decode(ids)
    except HeedError:
        return
    assert all(0 <= index < tokenizer.size for index in ids)


# --- llama2.c ---


def written(tokens: list[tuple[float, bytes]]) -> bytes:
    return struct.pack("<i", 9) + b"".join(struct.pack("<fi", score, len(text)) + text for score, text in tokens)


def by_merging(text: str, data: bytes, size: int) -> list[int]:
    """As llama2.c does it: characters or bytes, then the best pair again and again."""
    at, tokens, scores = 4, [], []
    for _ in range(size):
        score, length = struct.unpack_from("<fi", data, at)
        tokens.append(data[at + 8 : at + 8 + length])
        scores.append(score)
        at += 8 + length
    known = {token: index for index, token in enumerate(tokens)}
    ids = [1, *([known[b" "]] if text else [])]
    for character in text:
        spelt = character.encode()
        ids += [known[spelt]] if spelt in known else [byte + 3 for byte in spelt]
    while True:
        pairs = [known.get(tokens[left] + tokens[right]) for left, right in pairwise(ids)]
        best = max((scores[made] for made in pairs if made is not None), default=None)
        if best is None:
            return ids
        place = next(place for place, made in enumerate(pairs) if made is not None and scores[made] == best)
        ids[place : place + 2] = [pairs[place] or 0]


SPECIAL = [(0.0, b"<unk>"), (0.0, b"\n<s>\n"), (0.0, b"\n</s>\n")]
BYTES = [(0.0, f"<0x{byte:02X}>".encode()) for byte in range(256)]
LEARNT = [(-1.0, b" t"), (-2.0, b"he"), (-3.0, b" the"), (-4.0, b"ll")]
SMALL = written([*SPECIAL, *BYTES, *LEARNT, *((-9.0, bytes([byte])) for byte in b" thelo")])


@settings(deadline=None, max_examples=60)
@given(text=st.text(" thelo\né🎉", max_size=20))
def test_llama2c_is_merged_as_its_author_does_it(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "small.bin"
    path.write_bytes(SMALL)
    tokenizer = pretrained.from_llama2c(path, 269)
    assert list(tokenizer.framed(text).ids) == by_merging(text, SMALL, 269)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_tokenizer_of_the_stories(tmp_path: Path) -> None:
    data = real("tok512.bin")
    path = folder(tmp_path, {"tok512.bin": data}) / "tok512.bin"
    tokenizer = pretrained.from_llama2c(path, 512)
    assert (tokenizer.begin, tokenizer.end, tokenizer.unknown, tokenizer.ends) == (1, 2, 0, (2,))
    assert tokenizer.framed("Once upon a time").ids == [1, 403, 407, 261, 378]
    for text in (*TEXTS, "Lily and Tom went to the park. It was fun!", "naïve 🎉"):
        assert tokenizer.framed(text).ids == by_merging(text, data, 512), text


@pytest.mark.parametrize(
    ("data", "size", "words"),
    [
        (SMALL, 100, "has the 256 bytes and 3 special tokens at least, not 100"),
        (SMALL, 268, "goes on after 268 tokens"),
        (SMALL, 270, "ends at token 269 of 270"),
        (SMALL[:-1], 269, "ends at token 268 of 269"),
        (written([*SPECIAL, *BYTES, (0.0, b"\xff")]), 260, r"token 259 of .* is b'\\xff', which is not UTF-8"),
        (struct.pack("<ifi", 9, 0.0, -5) + SMALL, 269, "ends at token 0"),
        (b"", 269, "ends at token 0"),
    ],
)
def test_bad_files_of_llama2c(tmp_path: Path, data: bytes, size: int, words: str) -> None:
    path = folder(tmp_path, {"tok.bin": data}) / "tok.bin"
    with pytest.raises(InputError, match=words):
        pretrained.from_llama2c(path, size)
