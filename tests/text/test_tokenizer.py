"""Tokenizers: what goes in comes out, special tokens never come out of a text, and files are taken with care."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

from heed.core.errors import InputError
from heed.text import (
    NAMES,
    SPECIAL,
    TOKENIZERS,
    Bpe,
    Byte,
    Char,
    File,
    Tokenizer,
    TokenizerConfig,
    Word,
)
from heed.text import pretokenizers as pieces_module

TEXTS = [
    'The quick brown fox said "hello", twice.\n',
    "Ein Mann mit einem Hut.\tZwei Männer.",
    "敏捷的棕色狐狸跳过懒狗。",
    "👩‍👩‍👧 🎉 <s> </s>",
]
KINDS = (Byte(), Char(), Word(), Bpe(size=300))


@pytest.fixture(params=KINDS, ids=lambda kind: kind.kind)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    kind: TokenizerConfig = request.param
    return kind.train(TEXTS)


def other(model: models.Model, *added: AddedToken) -> tokenizers.Tokenizer:
    """A tokenizer as another library might have made it."""
    inner = tokenizers.Tokenizer(model)
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_tokens(list(added))
    return inner


# --- special tokens ---


def test_the_four_have_the_first_ids(tokenizer: Tokenizer) -> None:
    assert (tokenizer.pad, tokenizer.begin, tokenizer.end, tokenizer.unknown) == (0, 1, 2, 3)
    assert tokenizer.tokens([0, 1, 2, 3]) == list(SPECIAL) == ["<pad>", "<s>", "</s>", "<unk>"]
    assert [tokenizer.need(role) for role in NAMES] == [0, 1, 2, 3]
    assert tokenizer.decode([0, 1, 2, 3]) == ""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_a_text_that_spells_a_special_token_is_text(kind: TokenizerConfig) -> None:
    """Even if the tokenizer was trained on nothing else, so that the spelling is its most frequent piece."""
    spelt = "".join(SPECIAL)
    tokenizer = kind.train([f"{spelt} {spelt}"] * 50)
    ids = tokenizer.encode(f"{spelt} x {spelt}")
    assert not {0, 1, 2} & set(ids)
    if not isinstance(kind, Word):
        assert 3 not in tokenizer.encode(spelt)
        assert tokenizer.decode(tokenizer.encode(spelt)) == spelt


SCORED: list[tuple[str, float]] = [("<unk>", 0.0), ("</s>", 0.0), ("a", -5.0), ("<", -5.0), ("/", -5.0), ("s>", -9.0)]


@pytest.mark.parametrize(
    ("inner", "text", "ids"),
    [
        (other(models.WordLevel({"<unk>": 0, "</s>": 1, "a": 2}, unk_token="<unk>")), "a </s> a", [2, 0, 2]),
        (
            other(models.WordLevel({"a": 0, "[SEP]": 1}, unk_token="?"), AddedToken("[SEP]", special=True)),
            "a [SEP]",
            [0],
        ),
        (other(models.Unigram(SCORED, 0, byte_fallback=False)), "a </s>", [2, 0]),
    ],
    ids=["words", "no unknown", "unigram"],
)
def test_a_vocabulary_that_holds_a_special_token_as_a_word(
    inner: tokenizers.Tokenizer, text: str, ids: list[int]
) -> None:
    assert Tokenizer(inner).encode(text) == ids


def test_normalisation_does_not_make_special_tokens() -> None:
    inner = other(models.WordLevel({"<unk>": 0, "</s>": 1}, unk_token="<unk>"))
    inner.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    assert Tokenizer(inner).encode("</S> ＜/s＞") == [0, 0]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["[PAD]", "[UNK]", "[CLS]", "[SEP]"], (0, 2, 3, 1)),
        (["<|endoftext|>"], (None, 0, 0, None)),
        (["<bos>", "<eos>"], (None, 0, 1, None)),
        (["x"], (None, None, None, None)),
    ],
)
def test_usual_names_are_found(names: list[str], found: tuple[int | None, ...]) -> None:
    tokenizer = Tokenizer(other(models.WordLevel({name: number for number, name in enumerate(names)}, unk_token="?")))
    assert (tokenizer.pad, tokenizer.begin, tokenizer.end, tokenizer.unknown) == found
    ids = {index for index in found[:3] if index is not None}
    assert tokenizer.decode(sorted(ids)) == ""  # special now, even if the file did not say so
    if found[0] is None:
        with pytest.raises(InputError, match=r"no pad token \(none of <pad>, \[PAD\], .*\), which is needed here; "):
            tokenizer.need("pad")


# --- ids ---


def test_ids_end_at_size(tokenizer: Tokenizer) -> None:
    assert max(max(ids) for ids in tokenizer.encode_all(TEXTS)) < tokenizer.size
    assert tokenizer.decode([tokenizer.size - 1]) is not None
    for wrong in (tokenizer.size, -1):
        with pytest.raises(InputError, match=f"{wrong} is not an id of this tokenizer; its ids are 0 to"):
            tokenizer.decode([4, wrong])
        with pytest.raises(InputError, match="is not an id"):
            tokenizer.tokens([wrong])
        with pytest.raises(InputError, match="is not an id"):
            tokenizer.stream().push(wrong)


def test_size_counts_holes() -> None:
    assert Tokenizer(other(models.WordLevel({"a": 0, "b": 9}, unk_token="a"))).size == 10
    with pytest.raises(InputError, match="at least one token"):
        Tokenizer(tokenizers.Tokenizer(models.BPE()))


def test_many_texts_are_encoded_like_one(tokenizer: Tokenizer) -> None:
    texts = [*TEXTS, "", *TEXTS]
    assert tokenizer.encode_all(texts) == [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_all([]) == []
    rows = tokenizer.encode_all(texts)
    assert tokenizer.decode_all(rows) == [tokenizer.decode(ids) for ids in rows]


def test_padding_and_truncation_of_a_file_are_off() -> None:
    inner = other(models.WordLevel({"a": 0}, unk_token="a"))
    inner.enable_truncation(2)
    inner.enable_padding(length=5)
    assert Tokenizer(inner).encode("a a a") == [0, 0, 0]


@pytest.mark.parametrize("text", ["a\ud800b", "\udfff"])
def test_what_is_no_text_is_refused(tokenizer: Tokenizer, text: str) -> None:
    with pytest.raises(InputError, match="is half of a surrogate pair"):
        tokenizer.encode_all(["fine", text])
    with pytest.raises(InputError, match="is half of a surrogate pair"):
        Bpe().train(["fine", text])
    with pytest.raises(InputError, match="takes text, not int"):
        tokenizer.encode_all([3])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"write \[text\]"):
        tokenizer.encode_all("text")


def test_copies_keep_their_manners(tokenizer: Tokenizer) -> None:
    copy: Tokenizer = pickle.loads(pickle.dumps(tokenizer))
    assert copy.encode("</s><s>") == tokenizer.encode("</s><s>")
    assert not {0, 1, 2} & set(copy.encode("</s><s>"))


def test_long_texts_are_cut_where_it_does_not_matter(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "one two\nthree\n\nfour  \n five\n\u0301six\n" * 20 + "敏捷\n的棕\r\n色 \nend"
    whole = tokenizer.encode(text)
    monkeypatch.setattr(pieces_module, "LONG", 3)
    parts = list(pieces_module.cut(text))
    assert len(parts) > 20
    assert "".join(parts) == text
    assert tokenizer.encode(text) == whole
    monkeypatch.setattr("heed.text.tokenizer.BATCH", 10)
    assert tokenizer.encode_all([text, "x", text]) == [whole, tokenizer.encode("x"), whole]


def test_texts_are_not_cut_for_tokenizers_that_would_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = other(models.WordLevel({"<unk>": 0, "▁a": 1, "a": 2}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", "removed"), pre_tokenizers.Metaspace(prepend_scheme="first")]
    )
    monkeypatch.setattr(pieces_module, "LONG", 1)
    assert Tokenizer(inner).encode("a\na\na") == [1, 2, 2]


# --- for people ---


@pytest.mark.parametrize(
    ("kind", "text", "shown"),
    [
        (Byte(), "a ü\n", ["a", "␣", r"\xc3", r"\xbc", "⏎"]),
        (Char(), "M ä\t", ["M", "␣", "ä", "⇥"]),
        (Word(), 'fox said "hello"', ["fox", "said", '␣"', "hello", '"']),
        (Bpe(size=400), "The fox棕", ["The", "␣fox", "棕"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, TokenizerConfig) else "",
)
def test_tokens_are_readable(kind: TokenizerConfig, text: str, shown: list[str]) -> None:
    tokenizer = kind.train([*TEXTS, "棕棕 棕 The fox The fox"] * 3)
    assert tokenizer.tokens(tokenizer.encode(text)) == shown


def test_sentencepiece_spaces_are_shown() -> None:
    inner = other(models.WordLevel({"▁a": 0, "b": 1}, unk_token="?"))
    inner.decoder = decoders.Metaspace()
    assert Tokenizer(inner).tokens([0, 1]) == ["␣a", "b"]


# --- files ---


def test_files_round_trip(tokenizer: Tokenizer, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    for again in (Tokenizer.read(path), File(path=str(path)).train([])):
        assert again.size == tokenizer.size
        assert again.encode_all([*TEXTS, "</s>"]) == tokenizer.encode_all([*TEXTS, "</s>"])
        again.save(tmp_path / "again.json")
        assert (tmp_path / "again.json").read_bytes() == path.read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["again.json", "tokenizer.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokenizer.json"
    Byte().train().save(path)
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        Char().train(TEXTS).save(path)
    assert Tokenizer.read(path).size == 260


BROKEN = json.dumps({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}})
FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is cut off or not a tokenizer.json: EOF"),
    "binary": (b"\x89PNG\xff\xfe\x00", "is not text, so it is no tokenizer.json"),
    "other json": (b'{"model_type": "gpt2"}', "not a tokenizer.json"),
    "a list": (b"[1, 2]", "not a tokenizer.json"),
    "not json": (b"hello", "not a tokenizer.json"),
    "inconsistent": (BROKEN.encode(), "not a tokenizer.json"),
    "no tokens": (BROKEN.replace('"a": 0', "").replace('"a b"', "").encode(), "at least one token"),
}


@pytest.mark.parametrize(("data", "words"), FILES.values(), ids=FILES)
def test_bad_files_are_explained(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match=words) as caught:
        Tokenizer.read(path)
    assert str(path) in str(caught.value)


def test_a_truncated_file_a_missing_one_and_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    Byte().train().save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="is cut off or not a tokenizer.json: EOF while parsing"):
        Tokenizer.read(path)
    with pytest.raises(InputError, match="there is no file .*absent.json; give the path of a tokenizer.json"):
        File(path=str(tmp_path / "absent.json")).train()
    with pytest.raises(InputError, match="is a folder; give the path of the tokenizer.json in it"):
        Tokenizer.read(tmp_path)


def test_a_file_that_makes_the_library_panic_is_explained(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = json.loads(BROKEN)
    broken["model"] |= {"vocab": {"a": 0, "b": 1}, "continuing_subword_prefix": "##"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(broken))
    with pytest.raises(InputError, match="not a tokenizer.json"):
        Tokenizer.read(tmp_path / "tokenizer.json")
    capfd.readouterr()


def test_kinds_are_unique() -> None:
    kinds = [config.model_fields["kind"].default for config in TOKENIZERS]
    assert kinds == ["byte", "char", "word", "bpe", "file", "none"]


def test_special_tokens_around_a_text_are_of_the_vocabulary() -> None:
    inner = tokenizers.Tokenizer(models.WordLevel({"[CLS]": 0, "[SEP]": 1, "a": 2}, unk_token="a"))
    inner.post_processor = processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0))
    assert Tokenizer(inner).framed("a").ids == [0, 2, 1]
    inner.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 0))
    with pytest.raises(InputError, match="puts the id 3 around texts; its ids end at 2"):
        Tokenizer(inner)
