"""Models of heed's own in the layout of a family: transformers loads them and computes the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.mixers import Attention, Cross
from heed.models import GPT2, T5, Bert, Decoder, Encoder, Seq2seq, Shape
from heed.parts.feedforward import FeedForward, Gated
from heed.parts.layers.norms import LayerNorm, RMSNorm
from heed.parts.masks import Whole, Window
from heed.parts.positions import Learned, Rope
from heed.parts.residual.wiring import PostNorm, PreNorm
from heed.runs import Recipe, find
from heed.weights.edits import BitLinear, LoRA, edit
from heed.weights.home.fit import Trained, at_home, fitting
from heed.weights.home.plain import differences, plain
from tests.weights.live import close, ids

transformers.utils.logging.disable_progress_bar()
HF: Any = transformers

VOCABULARY, LENGTH = 41, 64
SINGLE = 1e-5  # the reference computes norms and rotations in float32, whatever a model is in
TOKENS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1}


def decoder(**options: Any) -> Decoder.Config:
    usual: dict[str, Any] = {"width": 24, "depth": 2, "norm": RMSNorm(), "feedforward": Gated.Config(hidden=20)}
    rope = Attention.Config(heads=4, kv_heads=2, bias=False, position=Rope.Config(base=500.0))
    return Decoder.Config(**{"vocabulary": VOCABULARY, "mixer": rope, **usual, **options})


def two_sided(wiring: PreNorm | PostNorm) -> Seq2seq.Config:
    """As BART and mBART are."""
    usual: dict[str, Any] = {"vocabulary": VOCABULARY, "width": 24, "depth": 2, "wiring": wiring, "scaled": True}
    usual |= {"position": Learned.Config(length=30, offset=2), "embedding_norm": LayerNorm()}
    usual["feedforward"] = FeedForward.Config(hidden=20, activation="gelu")
    encoder = Encoder.Config(mixer=Attention.Config(heads=2, mask=Whole()), **usual)
    side = Decoder.Config(mixer=Attention.Config(heads=3), cross=Cross.Config(heads=3), head_bias=True, **usual)
    return Seq2seq.Config(encoder=encoder, decoder=side, shared=True)


def of_recipe(name: str, *changes: str) -> Shape:
    return Recipe.read(find(name), ["model.width=24", "model.depth=2", *changes]).shape(VOCABULARY)


SHAPES: dict[str, tuple[str, Shape]] = {
    "characters": ("arcee", of_recipe("characters")),
    "stdlib": ("llama", of_recipe("stdlib")),
    "dates": ("marian", of_recipe("dates", "model.dropout=0.1")),
    "translation": ("pegasus", of_recipe("translation")),
    "gpt2": ("gpt2", GPT2(width=24, depth=2, length=30).sized(VOCABULARY)),
    "gpt2, head apart": ("gpt2", GPT2(width=24, depth=2).sized(VOCABULARY).model_copy(update={"tied": False})),
    "t5": ("t5", T5(width=24, depth=2, head_size=7).sized(VOCABULARY)),
    "llama": ("llama", decoder()),
    "llama, head apart": ("llama", decoder(tied=False, feedforward=Gated.Config(activation="gelu_tanh", bias=True))),
    "mistral": ("mistral", decoder(mixer=Attention.Config(bias=False, mask=Window(back=5), position=Rope.Config()))),
    "qwen2": ("qwen2", decoder(mixer=Attention.Config(out_bias=False, position=Rope.Config()))),
    "qwen3": (
        "qwen3",
        decoder(mixer=Attention.Config(bias=False, head_size=10, head_norm=RMSNorm(), position=Rope.Config())),
    ),
    "bart": ("bart", two_sided(PostNorm())),
    "mbart": ("mbart", two_sided(PreNorm())),
}


def built(shape: Shape) -> Any:
    """A model in float64 whose weights are not tiny."""
    torch.manual_seed(0)
    model = shape.build().double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@torch.no_grad()
@pytest.mark.parametrize("name", SHAPES)
def test_transformers_computes_the_same(name: str, tmp_path: Path) -> None:
    kind, shape = SHAPES[name]
    model = built(shape)
    opened = at_home(model, Trained(shape), length=LENGTH, tokens=TOKENS)
    assert opened.config["model_type"] == kind
    weights.write(opened, str(tmp_path / "out"))
    seq2seq = isinstance(shape, Seq2seq.Config)
    auto = HF.AutoModelForSeq2SeqLM if seq2seq else HF.AutoModelForCausalLM
    theirs, told = auto.from_pretrained(tmp_path / "out", output_loading_info=True, dtype=torch.float64)
    assert not told["missing_keys"], told
    assert not told["unexpected_keys"], told
    tokens, where = ids(2, 11, VOCABULARY), Where.run(2, 11)
    if seq2seq:
        source = ids(2, 7, VOCABULARY, seed=1)
        where = where.give(encoder_output=model.encode(source, Where.run(2, 7)))
        wanted = theirs.eval()(input_ids=source, decoder_input_ids=tokens).logits
    else:
        wanted = theirs.eval()(input_ids=tokens).logits
    close(model(tokens, where)[0], wanted, SINGLE)


@torch.no_grad()
def test_bert_with_its_heads(tmp_path: Path) -> None:
    shape = Bert(width=24, length=30).sized(VOCABULARY)
    model = built(shape)
    weights.write(at_home(model, Trained(shape), length=LENGTH, tokens={"pad_token_id": 0}), tmp_path / "out")
    theirs, told = HF.BertForPreTraining.from_pretrained(
        tmp_path / "out", output_loading_info=True, dtype=torch.float64
    )
    assert not told["missing_keys"], told
    assert not told["unexpected_keys"], told
    tokens = ids(2, 9, VOCABULARY)
    wanted = theirs.eval()(input_ids=tokens)
    typed = torch.stack((tokens, torch.zeros_like(tokens)), -1)
    stream, _ = model(typed, Where.run(2, 9))
    close(model.heads["masked"](stream, Where.run(2, 9)), wanted.prediction_logits, SINGLE)
    close(model.heads["pooled"](stream, Where.run(2, 9)), wanted.seq_relationship_logits, SINGLE)


def test_what_dropout_and_defaults_say_is_the_same() -> None:
    one, two = GPT2(dropout=0.3).sized(9), GPT2(dropout=0.0).sized(9)
    assert one != two
    assert plain(one) == plain(two)
    wide = one.model_copy(update={"mixer": (Attention.Config(heads=4, kv_heads=4, head_size=32, dropout=0.1),)})
    assert differences(plain(wide), plain(one)) == []
    other = one.model_copy(update={"mixer": (Attention.Config(heads=2),)})
    assert {found.place for found in differences(plain(other), plain(one))} == {
        *("mixer.heads", "mixer.kv_heads", "mixer.head_size", "mixer.scale")
    }


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (of_recipe("deep"), "that transformers reads is a deep of attention; `heed run` takes it as it is"),
        (of_recipe("xl"), "is a decoder of"),
        (of_recipe("characters", "model.norm.kind=layernorm"), "nearest is arcee, but for\n  - norm: layernorm, where"),
        (decoder(scaled=True), "nearest is llama, but for\n  - scaled: True, where llama has False\ntrain with those"),
        (
            decoder(mixer=Attention.Config(bias=False, position=Rope.Config(layout="pairs"))),
            "mixer.position.layout: pairs, where llama has halves",
        ),
    ],
)
def test_what_no_family_has_is_told(shape: Shape, told: str) -> None:
    with pytest.raises(WeightsError) as error:
        fitting(shape, LENGTH, TOKENS)
    assert told in str(error.value)
    assert "--layout heed" in str(error.value)


def test_adapters_are_worked_into_a_copy(tmp_path: Path) -> None:
    _, shape = SHAPES["llama"]
    model, change = built(shape), LoRA(rank=2, on="*.query")
    edit(model, change)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith((".a", ".b")):
                parameter.normal_()
    tokens, where = ids(1, 5, VOCABULARY), Where.run(1, 5)
    wanted = model(tokens, where)[0]
    opened = at_home(model, Trained(shape, (change,)), length=LENGTH, tokens=TOKENS)
    close(opened.model(tokens, where)[0], wanted, 1e-12)
    assert torch.equal(model(tokens, where)[0], wanted)  # and this one still has them


def test_other_edits_have_no_home() -> None:
    _, shape = SHAPES["llama"]
    model, change = built(shape), BitLinear(on="*.query")
    edit(model, change)
    with pytest.raises(WeightsError, match=r"was edited \(bitlinear\), which the Hugging Face layout cannot hold"):
        at_home(model, Trained(shape, (change,)), length=LENGTH, tokens=TOKENS)


def test_blocks_that_are_more_or_fewer_are_a_difference() -> None:
    """Two lists that begin alike are not alike: a model of two blocks is not one of three."""
    one, two, three = ({"kind": "decoder", "mixer": [{"kind": "attention"}] * count} for count in (1, 2, 3))
    assert differences(two, dict(two)) == []
    for other in (one, three):
        assert [found.place for found in differences(two, other)] == ["mixer"]
        assert [found.place for found in differences(other, two)] == ["mixer"]
