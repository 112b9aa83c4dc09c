"""BERT's descendants as decoders beside `transformers`: language models, and encoder-decoders made of two halves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import heed
from heed import weights
from heed.core.contract import Given, Where
from heed.core.errors import WeightsError
from heed.core.laws import LAWS, Law
from heed.models import Decoder, Embedded, Seq2seq, familiar
from heed.weights.replays.greedy import greedy
from tests.pipelines.small import WORDS, worded
from tests.weights.families.twosided import in_pieces
from tests.weights.live import close, decoder_agrees, ids, returns, saved
from tests.weights.support import whole_and_in_pieces

EXACT = 1e-10
ROUNDED = 3e-6  # RoFormer's table of sines is float32 in transformers, whatever the model is in
STEPS = 5
SHAPE: dict[str, Any] = {
    "vocab_size": len(WORDS),
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 16,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DECODERS: dict[str, tuple[str, dict[str, Any], float]] = {
    "bert": ("BertLMHeadModel", {}, EXACT),
    "bert, untied": ("BertLMHeadModel", {"tie_word_embeddings": False, "type_vocab_size": 3}, EXACT),
    "roberta": ("RobertaForCausalLM", {"type_vocab_size": 1}, EXACT),
    "xlm-roberta": ("XLMRobertaForCausalLM", {}, EXACT),
    "camembert": ("CamembertForCausalLM", {}, EXACT),
    "roformer": ("RoFormerForCausalLM", {}, ROUNDED),
    "roformer, narrow": ("RoFormerForCausalLM", {"embedding_size": 5, "rotary_value": True}, ROUNDED),
    "electra": ("ElectraForCausalLM", {"embedding_size": 5}, EXACT),
    "big_bird": ("BigBirdForCausalLM", {"attention_type": "original_full", "use_bias": False}, EXACT),
    "big_bird, scaled": ("BigBirdForCausalLM", {"attention_type": "original_full", "rescale_embeddings": True}, EXACT),
}


def config(kind: str, **more: Any) -> Any:
    """A config of the class of this name."""
    return getattr(transformers, kind).config_class(**SHAPE | more)


def decoder(kind: str, **more: Any) -> Any:
    name, options, _ = DECODERS[kind]
    model = getattr(transformers, name)(config(name, is_decoder=True, **options | more))
    return model


def with_waves(model: Any) -> Any:
    """RoFormer's table of sines is a parameter: drawn at random like all others, it is put back."""
    for module in model.modules():
        if type(module).__name__ == "RoFormerSinusoidalPositionalEmbedding":
            module.requires_grad_(False)
            module.weight.data = module.create_weight().to(module.weight.dtype)
    return model


RANKED = "roberta", "xlm-roberta", "camembert"  # their positions count ids that are not padding, mask or no mask
APART = *RANKED, "roformer", "roformer, narrow"


@pytest.mark.parametrize("kind", [kind for kind in DECODERS if kind not in APART])
def test_as_a_language_model(kind: str, tmp_path: Path) -> None:
    decoder_agrees(decoder(kind), tmp_path, tolerance=DECODERS[kind][2])


@pytest.mark.parametrize("kind", APART)
@torch.no_grad()
def test_as_a_language_model_with_its_own_positions(kind: str, tmp_path: Path) -> None:
    theirs = with_waves(saved(decoder(kind), tmp_path / "random"))
    theirs.save_pretrained(tmp_path / "theirs")
    opened = weights.load(tmp_path / "theirs")
    tokens = ids(2, 11, len(WORDS))
    wanted = theirs(input_ids=tokens).logits
    within = DECODERS[kind][2]
    close(opened.model(tokens, Where.run(2, 11))[0], wanted, within)
    whole_and_in_pieces(opened.model, tokens, 0, EXACT)
    mask = torch.ones_like(tokens)
    mask[1, 6:] = 0
    made = opened.model(tokens, Where.ragged([11, 6]))[0]
    close(made[1, :6], theirs(input_ids=tokens, attention_mask=mask).logits[1, :6], within)
    written, _ = greedy(opened.model, tokens, Where.run(2, 11), STEPS)
    known = tokens  # their `generate` counts the positions of RoBERTa's descendants otherwise than a call does
    for _ in range(STEPS):
        known = torch.cat((known, theirs(input_ids=known).logits[:, -1:].argmax(-1)), 1)
    assert torch.equal(torch.cat((tokens, written), 1), known)
    again = returns(opened, tmp_path / "ours", theirs)
    assert torch.equal(again(input_ids=tokens).logits, wanted)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("kind", ["bert", "roformer, narrow", "electra"])
def test_laws(kind: str, law: Law, tmp_path: Path) -> None:
    with_waves(saved(decoder(kind), tmp_path / "random")).save_pretrained(tmp_path / "theirs")
    model = weights.load(tmp_path / "theirs").model
    assert isinstance(model, Decoder)
    torch.manual_seed(0)
    finding = law(Embedded(model), familiar(model))
    assert finding.holds, finding


def test_text_is_continued(tmp_path: Path) -> None:
    model = saved(decoder("bert"), tmp_path)
    worded(tmp_path)
    m = heed.load(tmp_path)
    assert "generate" in m.can
    prompt = torch.tensor([[1, *(WORDS.index(word) for word in ["the", "cat", "sat"])]])
    theirs = model.generate(prompt, max_new_tokens=STEPS, do_sample=False, attention_mask=torch.ones_like(prompt))
    wanted = [WORDS[index] for index in theirs[0, 4:].tolist() if index > 4]
    assert m.generate("the cat sat", max_new_tokens=STEPS).split() == wanted


# --- two halves ---

CROSSED = {"is_decoder": True, "add_cross_attention": True}
PAIRS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "bert to bert": ("BertModel", {}, "BertLMHeadModel", {}),
    "roberta to roberta": ("RobertaModel", {}, "RobertaForCausalLM", {"type_vocab_size": 1}),
    "bert to gpt2": ("BertModel", {}, "GPT2LMHeadModel", {"n_embd": 12, "n_layer": 2, "n_head": 2}),
    "distilbert to bert": (
        "DistilBertModel",
        {"dim": 12, "hidden_dim": 16, "n_layers": 1, "n_heads": 2},
        "BertLMHeadModel",
        {},
    ),
    "wider": ("BertModel", {"hidden_size": 15}, "BertLMHeadModel", {"num_hidden_layers": 3}),
    "albert to electra": ("AlbertModel", {"embedding_size": 5}, "ElectraForCausalLM", {"embedding_size": 5}),
    "big_bird to bert": ("BigBirdModel", {"attention_type": "original_full"}, "BertLMHeadModel", {}),
}


def pair(kind: str) -> Any:
    """Two small models, put together."""
    first, one, second, other = PAIRS[kind]
    halves = config(first, **one), config(second, **other | CROSSED)
    whole = transformers.EncoderDecoderConfig.from_encoder_decoder_configs(*halves)
    whole.decoder_start_token_id, whole.pad_token_id, whole.eos_token_id = 1, 0, 2
    return transformers.EncoderDecoderModel(whole)


@pytest.mark.filterwarnings("ignore")  # theirs
@pytest.mark.parametrize("kind", PAIRS)
@torch.no_grad()
def test_an_encoder_decoder_of_two(kind: str, tmp_path: Path) -> None:
    model = saved(pair(kind), tmp_path / "theirs")
    opened = weights.load(tmp_path / "theirs")
    ours = opened.model
    assert isinstance(ours, Seq2seq)
    source, target = ids(2, 9, len(WORDS)), ids(2, 7, len(WORDS), seed=1)
    mask, wanted, output = torch.ones_like(source), source, ours.encode(source, Where.run(2, 9))
    for short in (9, 5):
        mask[1, short:] = 0
        wanted = model(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
        output = ours.encode(source, Where.ragged([9, short]))
        close(ours(target, Where.run(2, 7).give(encoder_output=output))[0], wanted, EXACT)
        close(in_pieces(ours, target, output), wanted, EXACT)

    begun = torch.ones(2, 1, dtype=torch.long)
    written, _ = greedy(ours, begun, Where.run(2, 1), STEPS, Given(encoder_output=output))
    asked = {"max_new_tokens": STEPS, "do_sample": False, "use_cache": False, "eos_token_id": None}
    theirs = model.generate(input_ids=source, attention_mask=mask, **asked)
    assert torch.equal(torch.cat((begun, written), 1), theirs)

    again = returns(opened, tmp_path / "ours", model)
    assert torch.equal(again(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits, wanted)
    held = [load_file(tmp_path / whose / "model.safetensors") for whose in ("ours", "theirs")]
    assert held[0].keys() == held[1].keys()
    assert all(torch.equal(held[0][name], held[1][name]) for name in held[0])


@pytest.mark.filterwarnings("ignore")  # theirs
def test_two_halves_in_use(tmp_path: Path) -> None:
    model = saved(pair("bert to bert"), tmp_path)
    worded(tmp_path)
    m = heed.load(tmp_path)
    assert "translate" in m.can
    texts = ["the cat sat on a mat", "the dog"]
    found = m.translate(texts, max_new_tokens=STEPS)
    for text, made in zip(texts, found, strict=True):
        source = torch.tensor([[1, *(WORDS.index(word) for word in text.split()), 2]])
        theirs = model.generate(input_ids=source, max_new_tokens=STEPS, do_sample=False)
        assert made.split() == [WORDS[index] for index in theirs[0, 1:].tolist() if index > 4]


HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"encoder": None}, "encoder"),
    ({"decoder": {"model_type": "bart"}}, "cross-attention of bert"),
    ({"decoder": {"model_type": "nothing"}}, "nothing"),
    ({"decoder": {"model_type": "encoder-decoder"}}, "encoder-decoder itself"),
    ({"encoder": {"model_type": "gpt2"}}, "which is none"),
    ({"decoder": {"hidden_size": 1 << 30}}, "wide"),
    ({"decoder": {"num_hidden_layers": 1 << 20}}, "layers"),
    ({"decoder": {"is_decoder": False}}, "is_decoder=False"),
    ({"decoder": {"add_cross_attention": False}}, "add_cross_attention=False"),
    ({"encoder": {"is_decoder": True}}, "needed is the head of a language model"),
    ({"decoder": {"intermediate_size": 17}}, "shape"),
    ({"decoder": {"model_type": "big_bird"}}, "look at the encoder instead"),
]


@pytest.mark.parametrize(("change", "message"), HOSTILE)
def test_halves_that_do_not_fit_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(pair("bert to bert"), tmp_path)
    held = json.loads((tmp_path / "config.json").read_text())
    for half, fields in change.items():
        held[half] = None if fields is None else {**held[half], **fields}
    (tmp_path / "config.json").write_text(json.dumps(held))
    with pytest.raises(WeightsError, match=message):
        heed.load(tmp_path)


def test_a_missing_projection_is_named(tmp_path: Path) -> None:
    saved(pair("wider"), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({name: one for name, one in tensors.items() if "enc_to_dec" not in name}, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"15 wide and its decoder 12: needed is enc_to_dec_proj"):
        heed.load(tmp_path)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("bert", {"add_cross_attention": True}, "together with its encoder"),
        ("big_bird", {"attention_type": "block_sparse"}, "blocks look ahead"),
        ("bert", {"position_embedding_type": "relative_key"}, "absolute"),
        ("bert", {"model_type": "layoutlm"}, "as an encoder"),
    ],
)
def test_a_decoder_that_cannot_be_is_refused(kind: str, change: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(decoder(kind), tmp_path)
    held = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**held, **change}))
    with pytest.raises(WeightsError, match=message):
        heed.load(tmp_path)
