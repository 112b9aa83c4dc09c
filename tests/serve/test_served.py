"""Pipelines served: texts in and out, stop strings, ends, an encoder-decoder, an encoder that is only called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tokenizers
import torch
from tokenizers import decoders, pre_tokenizers
from tokenizers.models import BPE

from heed.core.errors import InputError
from heed.decode import Sample
from heed.mixers import Attention, Cross
from heed.models import Decoder, Encoder, Seq2seq
from heed.parts.positions import Rope
from heed.pipelines import Text2TextGeneration, TextGeneration
from heed.pipelines.text import Target
from heed.serve import Engine, Limits, Request
from heed.text import Tokenizer

LIMITS = Limits(memory=1 << 22, rows=4, chunk=8, page=4)
PROMPTS = ("hello", "日本", "a 😀 b", "x" * 40)


def bytewise() -> Tokenizer:
    """A token for each byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = tokenizers.Tokenizer(BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(["</s>"])
    return Tokenizer(inner)


def language() -> TextGeneration:
    torch.manual_seed(3)
    mixer = Attention.Config(heads=2, position=Rope.Config())
    model = Decoder.Config(vocabulary=260, width=24, depth=2, mixer=mixer, tied=False).build()
    return TextGeneration(model, bytewise())


def translator() -> Text2TextGeneration:
    torch.manual_seed(4)
    sizes: dict[str, Any] = {"vocabulary": 260, "width": 24, "depth": 1}
    model = Seq2seq.Config(
        encoder=Encoder.Config(**sizes), decoder=Decoder.Config(**sizes, cross=Cross.Config()), shared=True
    ).build()
    return Text2TextGeneration(model, bytewise(), target=Target((7,)))


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine({"text": language(), "translator": translator()}, LIMITS) as made:
        yield made


@pytest.mark.parametrize("prompt", PROMPTS)
def test_texts_are_those_of_the_pipeline(engine: Engine, prompt: str) -> None:
    pipeline: Any = engine.models["text"].pipeline
    for strategy in (None, Sample(seed=11, temperature=0.8)):
        more = {} if strategy is None else {"sampling": strategy}
        request = Request(model="text", prompt=prompt, max_new_tokens=24, **more)  # type: ignore[arg-type]
        keywords = {} if strategy is None else {"temperature": 0.8, "seed": 11}
        expected = pipeline.generate(prompt, max_new_tokens=24, **keywords)
        made = engine.submit(request).result(20)
        pieces = [event.text for event in engine.submit(request)]
        assert made.text == expected == "".join(pieces)
        assert all(piece.encode() for piece in pieces if piece)


def test_stop_strings_never_leak(engine: Engine) -> None:
    free = engine.submit(Request(model="text", prompt="hello", max_new_tokens=24)).result(20)
    stops = {free.text[i : i + width] for i in range(2, 18, 3) for width in (1, 3)} - {""}
    assert len(stops) > 4
    for stop in stops:
        request = Request(model="text", prompt="hello", max_new_tokens=24, stop=[stop, "never \u2603"])
        pieces, made = list(engine.submit(request)), engine.submit(request).result(20)
        assert made.reason == "stop"
        assert made.text == "".join(event.text for event in pieces) == free.text[: free.text.index(stop)]
        assert free.tokens[: len(made.tokens)] == made.tokens
        assert made.usage.completion_tokens > len(made.tokens)


def test_an_end_token_is_no_text_and_may_be_ignored(engine: Engine) -> None:
    free = engine.submit(Request(model="text", prompt="hello", max_new_tokens=12, ends=())).result(20)
    end = free.tokens[6]
    first = free.tokens.index(end)
    made = engine.submit(Request(model="text", prompt="hello", max_new_tokens=12, ends=[end])).result(20)
    assert (made.reason, made.tokens) == ("end", free.tokens[:first])
    assert made.usage.completion_tokens == first + 1


def test_what_the_tokenizer_lacks_is_never_written(engine: Engine) -> None:
    """The model has logits of 260 tokens, its tokenizer 257."""
    loved = dict.fromkeys((257, 258, 259), 1e4)
    made = engine.submit(Request(model="text", prompt="hello", max_new_tokens=8, logit_bias=loved, ends=())).result(20)
    assert max(made.tokens) < 257


@pytest.mark.parametrize("source", PROMPTS)
def test_an_encoder_decoder_answers_its_source(engine: Engine, source: str) -> None:
    pipeline: Any = engine.models["translator"].pipeline
    expected = pipeline.translate(source, max_new_tokens=9)
    assert engine.submit(Request(model="translator", prompt=source, max_new_tokens=9)).result(20).text == expected
    ids = pipeline.source_ids(source)
    assert (
        engine.submit(Request(model="translator", prompt=(), source=ids, max_new_tokens=9)).result(20).text == expected
    )
    with pytest.raises(InputError, match="say what to encode"):
        engine.submit(Request(model="translator", prompt=[7]))


def test_tokens_and_texts(engine: Engine) -> None:
    ids = engine.tokenize("a 😀", model="text")
    assert len(ids) == 6
    assert engine.detokenize(ids, model="text") == "a 😀"
    assert engine.models["text"].generates


def test_a_model_that_does_not_generate_is_only_called() -> None:
    encoder = Encoder.Config(vocabulary=20, width=16, depth=1).build()
    with Engine(encoder, LIMITS) as engine:
        assert not engine.models["model"].generates
        with pytest.raises(InputError, match="does not generate"):
            engine.submit(Request(prompt=[1, 2]))
        x = torch.tensor([[1, 2, 3]])
        assert engine.call(lambda: encoder(x)[0].requires_grad).result(10) is False
