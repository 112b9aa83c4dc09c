"""Folders with damaged files: read or refused with an error of heed, never anything else, whatever is in them."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from heed.core.errors import HeedError
from heed.text import Bpe, Tokenizer
from tests.text.material import LINES, folder, trained

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "##s", "a", "the", "fox"]
SAID = {
    "tokenizer_class": "LlamaTokenizer",
    "bos_token": {"content": "<s>", "lstrip": False},
    "eos_token": "</s>",
    "add_bos_token": True,
    "added_tokens_decoder": {"0": {"content": "<unk>", "special": True}},
    "additional_special_tokens": ["<x>"],
    "chat_template": "{{ messages }}",
    "extra_ids": 3,
    "do_lower_case": True,
    "legacy": True,
}
MODEL = {"model_type": "llama", "eos_token_id": [1, 2], "bos_token_id": 0, "pad_token_id": None}
JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=4,
)


@cache
def whole(name: str) -> str:
    """A tokenizer.json of each kind."""
    if name == "pairs":
        return Bpe(size=280).train(LINES)._inner.to_str()
    if name == "words":
        inner = tokenizers.Tokenizer(
            models.WordPiece({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]")
        )
        inner.normalizer, inner.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        inner.decoder = decoders.WordPiece()
        inner.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        return inner.to_str()
    with tempfile.TemporaryDirectory() as place:
        files = {"spiece.model": trained(normalization_rule_name="identity"), "config.json": {"model_type": "t5"}}
        return Tokenizer.of_folder(folder(Path(place), files))._inner.to_str()


def used(files: dict[str, object]) -> None:
    """Read a folder and use what came out of it; errors of heed are fine."""
    with tempfile.TemporaryDirectory() as place:
        try:
            tokenizer = Tokenizer.of_folder(folder(Path(place), files))
            ids = tokenizer.encode("the fox's 12 ﬁ </s>")
            tokenizer.decode(ids)
            framed = tokenizer.framed("a", "b")
            marked = tokenizer.encode_marked("<s>a [SEP]")
            stream = tokenizer.stream()
            for index in ids[:3]:
                stream.push(index)
            stream.rest()
        except HeedError:
            return
    assert all(0 <= index < tokenizer.size for index in (*ids, *framed.ids, *marked))
    assert len(framed.ids) == len(framed.segments)


def places(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something is in a tree; of long lists and tables only some."""
    found = [path] if path else []
    entries = list(data.items()) if isinstance(data, dict) else list(enumerate(data)) if isinstance(data, list) else []
    for key, value in entries[:12] + entries[12:][-2:]:
        found += places(value, (*path, key))
    return found


def changed(draw: st.DrawFn, data: Any) -> Any:
    """A copy in which a few values are others, or gone."""
    copy = json.loads(json.dumps(data))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(copy)))
        owner = copy
        for key in path[:-1]:
            owner = owner[key]
        if draw(st.booleans()):
            owner[path[-1]] = draw(st.one_of(JUNK, st.integers(-3, 1 << 33)))
        elif len(copy) > 1 or len(path) > 1:
            del owner[path[-1]]
    return copy


@st.composite
def damaged(draw: st.DrawFn, data: Any) -> Any:
    return changed(draw, data)


@pytest.mark.parametrize("kind", ["pairs", "words", "unigram"])
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_damaged_tokenizer_json(kind: str, data: st.DataObject) -> None:
    used({"tokenizer.json": data.draw(damaged(json.loads(whole(kind))))})


@pytest.mark.parametrize("kind", ["pairs", "words", "unigram"])
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_tokenizer_json_with_other_bytes(kind: str, data: st.DataObject) -> None:
    text = bytearray(whole(kind).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    used(
        {
            "tokenizer.json": bytes(text[: data.draw(st.integers(0, len(text)))])
            if data.draw(st.booleans())
            else bytes(text)
        }
    )


@settings(deadline=None, max_examples=120)
@given(said=damaged(SAID), model=damaged(MODEL), special=damaged({"pad_token": "<pad>", "unk_token": {"content": "a"}}))
def test_damaged_settings(said: Any, model: Any, special: Any) -> None:
    beside = {"tokenizer_config.json": said, "config.json": model, "special_tokens_map.json": special}
    beside |= {"generation_config.json": model}
    used({"tokenizer.model": trained(model_type="bpe", normalization_rule_name="identity")} | beside)
    used({"vocab.txt": "\n".join(WORDS)} | beside)
    used({"tokenizer.json": whole("pairs")} | beside)


@settings(deadline=None, max_examples=100)
@given(
    vocabulary=st.one_of(st.text(max_size=40), st.binary(max_size=40), st.lists(st.sampled_from(WORDS)).map("\n".join)),
    pairs=st.dictionaries(st.text("abĠ</w>", max_size=3), st.integers(-1, 6), max_size=6),
    merges=st.lists(st.text("abĠ ", max_size=4), max_size=4).map("\n".join),
    kind=st.sampled_from(["bert", "gpt2", "clip", "roberta", "openai-gpt", "qwen2", "funnel", "mpnet", "marian", "t5"]),
)
def test_damaged_vocabularies(vocabulary: str | bytes, pairs: dict[str, int], merges: str, kind: str) -> None:
    used({"vocab.txt": vocabulary, "config.json": {"model_type": kind}})
    used({"vocab.json": pairs, "merges.txt": merges, "config.json": {"model_type": kind}})
    used(
        {
            "vocab.json": pairs,
            "source.spm": trained(normalization_rule_name="identity"),
            "config.json": {"model_type": kind},
        }
    )
    used({"added_tokens.json": pairs, "vocab.txt": "\n".join(WORDS)})
