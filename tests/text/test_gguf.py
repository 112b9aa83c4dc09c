"""Tokenizers in the metadata of GGUF files: the same ids as from the files that they were made of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from heed.core.errors import HeedError, InputError
from heed.text import Bpe, Tokenizer, pretrained
from heed.text.gguf import BYTE_LEVEL, split_by
from heed.text.sentencepiece import read_pieces
from tests.text.material import LINES, TEXTS, folder, real, trained

IDENTITY: dict[str, Any] = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
LLAMA: dict[str, Any] = {"model_type": "bpe", "byte_fallback": True, "vocab_size": 400, **IDENTITY}
KINDS = {"is_unknown": 2, "is_control": 3, "is_unused": 5, "is_byte": 6}


def metadata(model: str, tokens: list[str], **others: object) -> dict[str, object]:
    values = {
        "ggml.model": model,
        "ggml.tokens": tokens,
        **{key.replace("__", "."): one for key, one in others.items()},
    }
    return {f"tokenizer.{key}": value for key, value in values.items()}


def of_sentencepiece(model: str, data: bytes, **others: object) -> dict[str, object]:
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    ids = range(theirs.get_piece_size())
    types = [next((kind for name, kind in KINDS.items() if getattr(theirs, name)(index)), 1) for index in ids]
    scores = [theirs.get_score(index) for index in ids]
    tokens = [theirs.id_to_piece(index) for index in ids]
    return metadata(model, tokens, ggml__scores=scores, ggml__token_type=types, **others)


def of_pairs(**others: object) -> tuple[Tokenizer, dict[str, object]]:
    ours = Bpe(size=400).train(LINES)
    written = json.loads(ours._inner.to_str())["model"]
    merges = [" ".join(pair) for pair in written["merges"]]
    ends = {"ggml__bos_token_id": 1, "ggml__eos_token_id": 2, "ggml__padding_token_id": 0}
    kinds = [3] * 4 + [1] * (len(written["vocab"]) - 4)
    known = {"ggml__pre": "gpt-2", "ggml__merges": merges, "ggml__token_type": kinds, **ends, **others}
    return ours, metadata("gpt2", list(written["vocab"]), **known)


def test_pairs_of_bytes() -> None:
    ours, meta = of_pairs(ggml__add_bos_token=True, chat_template="{{ bos_token }}{{ messages[0].content }}")
    tokenizer = pretrained.from_gguf(meta)
    plain = [text for text in TEXTS if text.isascii()]  # heed's own are brought to NFC
    assert tokenizer.encode_all(plain) == ours.encode_all(plain)
    assert [tokenizer.decode(ids) for ids in tokenizer.encode_all(TEXTS)] == TEXTS
    assert (tokenizer.pad, tokenizer.begin, tokenizer.end, tokenizer.unknown, tokenizer.ends) == (0, 1, 2, None, (2,))
    assert tokenizer.framed("fox").ids == [1, *ours.encode("fox")]
    assert tokenizer.framed("a", "b").segments == [0, 0, 1]
    assert tokenizer.encode_marked("<s>fox</s>") == [1, *ours.encode("fox"), 2]
    assert tokenizer.encode("</s>") == ours.encode("</s>")
    assert tokenizer.chat is not None
    assert tokenizer.chat.tokens == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}


def test_gpt_2(tmp_path: Path) -> None:
    files = {"vocab.json": real("gpt2_encoder.json.gz"), "merges.txt": real("gpt2_vocab.bpe.gz")}
    folder_read = Tokenizer.of_folder(folder(tmp_path, files))
    merges = files["merges.txt"].decode().strip().split("\n")[1:]
    tokens = list(json.loads(files["vocab.json"]))
    tokenizer = pretrained.from_gguf(metadata("gpt2", tokens, ggml__pre="gpt-2", ggml__merges=merges))
    assert tokenizer.encode_all(TEXTS) == folder_read.encode_all(TEXTS)


def test_pairs_of_sentencepiece() -> None:
    data = trained(**LLAMA)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    tokenizer = pretrained.from_gguf(of_sentencepiece("llama", data))
    assert tokenizer.encode_all(TEXTS) == theirs.encode(TEXTS)
    assert tokenizer.framed_all(TEXTS) == [([1, *ids], [0] * (len(ids) + 1)) for ids in theirs.encode(TEXTS)]
    assert (tokenizer.begin, tokenizer.end, tokenizer.unknown) == (1, 2, 0)  # they go without saying
    bare = pretrained.from_gguf(
        of_sentencepiece("llama", data, ggml__add_space_prefix=False, ggml__add_bos_token=False)
    )
    assert bare.framed(" the fox").ids == tokenizer.encode("the fox") != bare.framed("the fox").ids
    assert bare.decode(bare.encode(" the fox")) == " the fox"


def test_llama_2(tmp_path: Path) -> None:
    data = real("llama2_tokenizer.model.gz")
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    tokenizer = pretrained.from_gguf(of_sentencepiece("llama", data))
    assert tokenizer.encode_all(TEXTS) == theirs.encode(TEXTS)


def test_unigram(tmp_path: Path) -> None:
    data = trained(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    read = read_pieces(folder(tmp_path, {"spiece.model": data}) / "spiece.model")
    others = {"ggml__precompiled_charsmap": [byte - 256 * (byte > 127) for byte in read.charsmap]}
    tokenizer = pretrained.from_gguf(of_sentencepiece("t5", data, ggml__remove_extra_whitespaces=True, **others))
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    assert [one.ids for one in tokenizer.framed_all(TEXTS)] == [[*ids, 1] for ids in theirs.encode(TEXTS)]
    assert (tokenizer.pad, tokenizer.begin, tokenizer.end, tokenizer.unknown) == (0, None, 1, 2)


def test_wordpiece(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", ",", "test", "##s", "x", "##x", "cafe"]
    folder_read = Tokenizer.of_folder(folder(tmp_path, {"vocab.txt": "\n".join(words)}))
    phantom = [word if word[0] == "[" else word[2:] if word.startswith("##") else f"▁{word}" for word in words]
    ids = {"padding": 0, "unknown": 1, "cls": 2, "seperator": 3, "mask": 4}
    said = {f"ggml__{name}_token_id": index for name, index in ids.items()}
    kinds = [3] * 5 + [1] * (len(words) - 5)
    tokenizer = pretrained.from_gguf(metadata("bert", phantom, ggml__token_type=kinds, **said))
    texts = [*TEXTS, "Hello worlds, Café xxx tests [SEP]"]
    assert tokenizer.framed_all(texts, texts) == folder_read.framed_all(texts, texts)
    for role in ("pad", "begin", "end", "unknown", "mask", "ends"):
        assert getattr(tokenizer, role) == getattr(folder_read, role)
    assert tokenizer.decode([5, 9, 6]) == "hellos world"


def test_control_tokens_are_special_and_those_of_the_user_are_found() -> None:
    _, meta = of_pairs()
    meta["tokenizer.ggml.tokens"] += ["<|im_end|>", "<think>", "<|eot|>", "<|end|>"]  # type: ignore[operator]
    meta["tokenizer.ggml.token_type"] += [3, 4, 3, 1]  # type: ignore[operator]
    meta["tokenizer.ggml.eot_token_id"] = len(meta["tokenizer.ggml.tokens"]) - 2  # type: ignore[arg-type]
    tokenizer = pretrained.from_gguf(meta)
    end, think, eot, _ = range(tokenizer.size - 4, tokenizer.size)
    assert think in tokenizer.encode("a<think>b")
    assert end not in tokenizer.encode("a<|im_end|>b")
    assert end in tokenizer.encode_marked("a<|im_end|>b")
    assert tokenizer.decode([end, think, eot]) == "<think>"
    assert tokenizer.ends == (2, eot, end)  # <|end|> is a word like any other in this file


# --- how texts are split ---

TEXT = "It's HelloWorld 12345 a=b...\n\n  x 你好!"
GPT2 = ["It", "'s", " HelloWorld", " 12345", " a", "=", "b", "...", "\n\n ", " x", " 你好", "!"]
DIGITS = ["It", "'s", " HelloWorld", " ", *"12345", " a", "=", "b", "...", "\n\n ", " x", " 你好", "!"]
QWEN = ["It", "'s", " HelloWorld", " ", *"12345", " a", "=b", "...\n\n", " ", " x", " 你好", "!"]
LLAMA3 = ["It", "'s", " HelloWorld", " ", "123", "45", " a", "=b", "...\n\n", " ", " x", " 你好", "!"]
DEFAULT = ["It", "'", "s", " HelloWorld", " ", "123", "45", " a", "=", "b", "...", "\n\n ", " x", " 你好", "!"]
DEEPSEEK = ["It", "'", "s", " HelloWorld", " ", "12345", " a", "=", "b", "...", "\n", "\n", " ", " x", " ", "你好", "!"]
SPLITS = {
    "default": DEFAULT,
    "gpt-2": GPT2,
    "mpt": GPT2,
    "falcon": DEFAULT,
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r"), DIGITS),
    "qwen2": QWEN,
    "llama-bpe": LLAMA3,
    "bloom": ["It's", " HelloWorld", " 12345", " a=b", "...\n\n ", " x", " 你好", "!"],
    "tekken": ["It", "'s", " Hello", "World", " ", *"12345", " a", "=b", "...\n\n", " ", " x", " 你好", "!"],
    "gpt-4o": ["It's", " Hello", "World", " ", "123", "45", " a", "=b", "...\n\n", " ", " x", " 你好", "!"],
    "deepseek-llm": DEEPSEEK,
    "deepseek-v3": [*LLAMA3[:-2], " ", "你好", "!"],
}


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_texts_are_split_and_nothing_is_lost(name: str) -> None:
    tokenizer = pretrained.from_gguf(of_pairs(ggml__pre=name)[1])
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT
    if name in SPLITS:
        pieces = split_by(BYTE_LEVEL[name]).pre_tokenize_str(TEXT)
        assert [TEXT[begin:end] for _, (begin, end) in pieces] == SPLITS[name]


def test_a_whole_word_is_a_token_where_merges_are_ignored() -> None:
    _, meta = of_pairs(ggml__pre="llama-bpe")
    meta["tokenizer.ggml.tokens"] += ["zqzq"]  # type: ignore[operator]
    meta["tokenizer.ggml.token_type"] += [1]  # type: ignore[operator]
    tokenizer = pretrained.from_gguf(meta)
    assert tokenizer.encode("zqzq") == [tokenizer.size - 1]
    assert tokenizer.framed("zqzq").ids == [1, tokenizer.size - 1]  # it begins texts unless the file denies it
    assert len(pretrained.from_gguf(meta | {"tokenizer.ggml.pre": "gpt-2"}).encode("zqzq")) == 4


# --- what is wrong ---


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "rwkv"}, "tokenizer.ggml.model of the GGUF file is 'rwkv'; known are gpt2, llama, t5, bert"),
        ({"model": ["gpt2"]}, "known are gpt2"),
        ({"pre": "mystery"}, "tokenizer.ggml.pre of the GGUF file is 'mystery'; known are bloom, .*qwen2"),
        ({"tokens": None}, "tokenizer.ggml.tokens of the GGUF file is missing or no list"),
        ({"tokens": []}, "holds 0 tokens"),
        ({"tokens": ["a", "a"]}, "none of them twice"),
        ({"tokens": ["a", 3]}, "token_type has .* fit entries for 1 tokens"),
        ({"token_type": [1]}, "has 1 fit entries for"),
        ({"merges": ["a b c"]}, "does not fit together"),
        ({"merges": ["zz yy"]}, "does not fit together"),
        ({"add_bos_token": 1}, "add_bos_token of the GGUF file is 1; bool is needed"),
        ({"model": "llama"}, "scores of the GGUF file is missing"),
        ({"model": "llama", "scores": ["x"]}, "scores has 0 fit entries"),
    ],
)
def test_what_is_wrong_is_told(change: dict[str, object], words: str) -> None:
    _, meta = of_pairs()
    with pytest.raises(InputError, match=words):
        pretrained.from_gguf(meta | {f"tokenizer.ggml.{key}": value for key, value in change.items()})


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(),
    st.sampled_from(["gpt2", "llama", "t5", "bert", "qwen2", "", "<s>"]),
    st.lists(st.one_of(st.text("ab▁<s>/ #", max_size=4), st.integers(-300, 300), st.floats(), st.none()), max_size=6),
)
KEYS = ["model", "pre", "tokens", "scores", "token_type", "merges", "bos_token_id", "eos_token_id", "unknown_token_id"]
KEYS += ["add_bos_token", "add_space_prefix", "remove_extra_whitespaces", "precompiled_charsmap", "eot_token_id"]


@settings(deadline=None, max_examples=150)
@given(
    model=st.sampled_from(["gpt2", "llama", "t5", "bert"]),
    changes=st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=4),
)
def test_strange_metadata_is_read_or_refused(model: str, changes: dict[str, object]) -> None:
    _, meta = of_pairs(ggml__scores=[0.0] * 400)
    meta["tokenizer.ggml.scores"] = [0.0] * len(meta["tokenizer.ggml.tokens"])  # type: ignore[arg-type]
    meta["tokenizer.ggml.model"] = model
    try:
        tokenizer = pretrained.from_gguf(meta | {f"tokenizer.ggml.{key}": value for key, value in changes.items()})
        ids = tokenizer.encode("the fox ﬁ")
        tokenizer.decode(ids)
        framed = tokenizer.framed("a", "b")
    except HeedError:
        return
    assert all(0 <= index < tokenizer.size for index in (*ids, *framed.ids))
