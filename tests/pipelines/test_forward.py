"""A model called with ids and masks, beside `transformers`, live: logits, hidden states, losses, attention weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import heed
from heed.core.errors import InputError
from heed.models import Seq2seq
from heed.pipelines import Attentions, CrossAttentions, ModelOutput, Pipeline
from tests.pipelines.small import HF, NARROW, WORDS, bert, gpt2, llama, opened, t5
from tests.weights.live import close, ids, saved
from tests.weights.support import GOLDEN

MASKS = {
    "right": torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6]),
    "left": torch.tensor([[1] * 7, [0] * 3 + [1] * 4, [0] * 6 + [1]]),
    "both": torch.tensor([[1] * 7, [0] * 2 + [1] * 4 + [0], [0] * 3 + [1] * 3 + [0]]),
}
TOLERANCE = 1e-6  # rotations are made in float32 there


def tokens(rows: int = 3, length: int = 7) -> Tensor:
    return ids(rows, length, len(WORDS))


def close_where(made: Tensor, wanted: Tensor, mask: Tensor) -> None:
    """Equal at tokens, zero at padding."""
    close(made[mask.bool()], wanted[mask.bool()], TOLERANCE)
    assert not made[~mask.bool()].any()


# --- language models ---


@pytest.mark.parametrize("make", [gpt2, llama], ids=["gpt2", "llama"])
@torch.no_grad()
def test_logits_are_those_of_the_reference(make: Any, tmp_path: Path) -> None:
    theirs, m = make(tmp_path)
    given = tokens()
    out, wanted = m(given), theirs(given).logits
    assert isinstance(out, ModelOutput)
    close(out.logits, wanted, TOLERANCE)
    for same in (m(given.tolist()), m(input_ids=given.numpy()), m(given, torch.ones_like(given))):
        close(same.logits, out.logits, 1e-12)
    close(m(given[0].tolist()).logits, wanted[:1], TOLERANCE)  # one row
    for mask in MASKS.values():
        position = (mask.cumsum(1) - 1).clamp(min=0)
        masked = theirs(given, attention_mask=mask, position_ids=position).logits
        close_where(m(given, mask).logits, masked, mask)
        close_where(m(given, attention_mask=mask.bool().tolist()).logits, masked, mask)


@torch.no_grad()
def test_lists_of_different_lengths_are_padded(tmp_path: Path) -> None:
    theirs, m = gpt2(tmp_path)
    rows = [[5, 6, 7, 8], [9, 10]]
    out = m(rows).logits
    assert out.shape == (2, 4, len(WORDS))
    close(out[1, :2], theirs(torch.tensor([rows[1]])).logits[0], TOLERANCE)
    assert not out[1, 2:].any()
    with pytest.raises(InputError, match="attention_mask is known; leave it out"):
        m(rows, [[1] * 4] * 2)


@torch.no_grad()
def test_what_the_tokenizer_gives_and_texts(tmp_path: Path) -> None:
    theirs, m = gpt2(tmp_path)
    tokenizer = m.tokenizer
    encoded = tokenizer(["the cat sat", "a"], padding=True, return_tensors="pt")
    wanted = theirs(**encoded).logits
    mask = encoded.attention_mask
    for out in (m(encoded), m(**encoded), m(encoded.input_ids, mask), m(["the cat sat", "a"])):
        close_where(out.logits, wanted, mask)
    close(m("the cat").logits, theirs(torch.tensor([[5, 6]])).logits, TOLERANCE)
    tokenizer.padding_side = "left"
    left = tokenizer(["the cat sat", "a"], padding=True, return_tensors="pt")
    close(m(**left).logits[:, -1], torch.stack((wanted[0, 2], wanted[1, 0])), TOLERANCE)


def test_a_loss_can_be_trained_on(tmp_path: Path) -> None:
    theirs, m = llama(tmp_path)
    given, labels = tokens(), tokens()
    labels[0, :3] = -100
    close(m(given, labels=labels).loss, theirs(given, labels=labels).loss, TOLERANCE)
    mask = MASKS["right"]  # padding has no labels, whatever is given there
    wanted = theirs(given, attention_mask=mask, labels=labels.masked_fill(mask == 0, -100)).loss
    loss = m(given, mask, labels=labels).loss
    close(loss, wanted, TOLERANCE)
    loss.backward()
    wanted.backward()
    ours = dict(m.model.named_parameters())["embeddings.table.weight"].grad
    assert ours is not None
    close(ours, theirs.model.embed_tokens.weight.grad, TOLERANCE)
    with pytest.raises(InputError, match=r"labels must be one for each token, \[3, 7\], not int64 of shape \[1, 3\]"):
        m(given, labels=torch.tensor([[1], [2], [3]])[:, 0])


@torch.no_grad()
def test_without_a_tokenizer_ids_are_still_taken(tmp_path: Path) -> None:
    config = HF.MambaConfig(hidden_size=16, num_hidden_layers=2, vocab_size=len(WORDS))
    theirs = saved(HF.MambaForCausalLM(config), tmp_path)
    m = heed.load(tmp_path)
    close(m(tokens()).logits, theirs(tokens()).logits, TOLERANCE)
    mask = MASKS["left"]
    alone = m(tokens()[1:2, 3:]).logits[0]
    close(m(tokens(), mask).logits[1, 3:], alone, TOLERANCE)  # a recurrence does not see padding either
    with pytest.raises(InputError, match="cannot encode texts: it is a checkpoint without a tokenizer"):
        m("the cat")
    with pytest.raises(InputError, match="has no attention weights to show"):
        m.attentions([5, 6])
    with pytest.raises(InputError, match="cannot show attention weights of this: it is a checkpoint without"):
        m.attentions("the cat")


FAMILIES = (
    *("bert/pretraining", "bitnet/unquantized", "bloom/lm", "deberta_v2/model", "deepseek_v3/lm_mla_moe", "fnet/mlm"),
    *("funnel/mlm", "gemma2/lm", "gpt_neox/lm", "infini/lm_delta_rule", "longformer/mlm_global", "longt5/local"),
    *("marian/seq2seq", "mistral/lm_window5", "mixtral/lm", "mpt/lm", "opt/lm", "qwen3/lm", "reformer/lm_local_lsh"),
    *("retnet/lm_three_forms", "roberta/mlm", "rwkv/lm_state", "t5/seq2seq", "transfo-xl/adaptive_mems", "xlnet/plain"),
)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_padding_on_the_left_changes_nothing_in_any_family(family: str) -> None:
    m = heed.load(GOLDEN / family)
    row, other, target = ids(1, 6, 30), ids(1, 9, 30, seed=1), ids(2, 3, 30, seed=2)
    encodes = {"decoder_input_ids": target} if isinstance(m.model, Seq2seq) else {}
    alone = m(row, **{name: given[:1] for name, given in encodes.items()})
    padded = torch.cat((torch.cat((torch.zeros(1, 3, dtype=torch.long), row), 1), other))
    out = m(padded, [[0] * 3 + [1] * 6, [1] * 9], **encodes)
    for name, wanted in alone.items():
        made = out[name][:1]
        close(made if made.shape == wanted.shape else made[:, 3:], wanted, 1e-4)


# --- encoders ---

KINDS = {
    "BertForMaskedLM": ("logits", "logits"),
    "BertForSequenceClassification": ("logits", "logits"),
    "BertForTokenClassification": ("logits", "logits"),
    "BertModel": ("pooler_output", "pooler_output"),
    "BertForQuestionAnswering": ("start_logits", "start_logits"),
    "BertForPreTraining": ("seq_relationship_logits", "seq_relationship_logits"),
}


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_encoders_give_what_their_heads_give(kind: str, tmp_path: Path) -> None:
    theirs, m = bert(tmp_path, kind)
    given, mask, name = tokens(), MASKS["right"], KINDS[kind][0]
    segments = torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 3)
    wanted = theirs(given, attention_mask=mask, token_type_ids=segments, output_hidden_states=True)
    out = m(given, mask, token_type_ids=segments)
    if out[name].dim() == 3 or name == "start_logits":
        close_where(out[name], wanted[name], mask)
    else:
        close(out[name], wanted[name], TOLERANCE)
    hidden = wanted.last_hidden_state if kind == "BertModel" else wanted.hidden_states[-1]
    close_where(out.last_hidden_state, hidden, mask)
    left = m(given.flip(1), mask.flip(1), token_type_ids=segments.flip(1))  # the same texts, backwards and padded left
    assert left[name].shape == out[name].shape


@torch.no_grad()
def test_padding_on_the_left_changes_nothing_for_an_encoder(tmp_path: Path) -> None:
    _, m = bert(tmp_path, "BertForTokenClassification")
    row = tokens(1, 4)
    padded = torch.cat((torch.zeros(1, 3, dtype=torch.long), row), 1)
    for types in (None, [0, 0, 1, 1]):
        wanted = m(row, token_type_ids=None if types is None else [types]).logits[0]
        told = None if types is None else [[0, 0, 0, *types]]
        out = m(padded, [[0, 0, 0, 1, 1, 1, 1]], token_type_ids=told).logits[0]
        close(out[3:], wanted, 1e-12)
        assert not out[:3].any()


def test_losses_of_heads(tmp_path: Path) -> None:
    given = tokens()
    labels: dict[str, tuple[Tensor, dict[str, Any]]] = {
        "BertForMaskedLM": (tokens().masked_fill(tokens() > 9, -100), {}),
        "BertForTokenClassification": (tokens() % 2, {"num_labels": 2}),
        "BertForSequenceClassification": (torch.tensor([0, 1, 2]), {"num_labels": 3}),
    }
    for kind, (told, config) in labels.items():
        theirs, m = bert(tmp_path / kind, kind, **config)
        close(m(given, labels=told).loss, theirs(given, labels=told).loss, TOLERANCE)
    for name, config, told in (
        ("value", {"num_labels": 1}, torch.tensor([0.5, 1.0, -1.0], dtype=torch.float64)),
        (
            "several",
            {"num_labels": 3, "problem_type": "multi_label_classification"},
            torch.tensor([[0, 1.0, 1]] * 3, dtype=torch.float64),
        ),
    ):
        theirs, m = bert(tmp_path / name, "BertForSequenceClassification", **config)
        close(m(given, labels=told).loss, theirs(given, labels=told).loss, TOLERANCE)
    _, bare = bert(tmp_path / "bare", "BertModel")
    with pytest.raises(InputError, match="no head that labels could be compared with"):
        bare(given, labels=told)


# --- encoder-decoders and images ---


def bart(folder: Path) -> tuple[Any, Pipeline]:
    layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    feeds = {"encoder_ffn_dim": 20, "decoder_ffn_dim": 20, "d_model": 16, "max_position_embeddings": 24}
    special = {"decoder_start_token_id": 2, "eos_token_id": 2, "bos_token_id": 1, "pad_token_id": 0}
    config = HF.BartConfig(vocab_size=len(WORDS), **layers, **feeds, **special)
    return opened(HF.BartForConditionalGeneration(config), folder)


@pytest.mark.parametrize("make", [t5, bart], ids=["t5", "bart"])
@torch.no_grad()
def test_encoder_decoders_take_a_source_and_a_target(make: Any, tmp_path: Path) -> None:
    theirs, m = make(tmp_path)
    source, target, mask = tokens(), tokens(3, 5), MASKS["right"]
    wanted = theirs(source, attention_mask=mask, decoder_input_ids=target)
    out = m(source, mask, decoder_input_ids=target)
    close(out.logits, wanted.logits, TOLERANCE)
    close_where(out.encoder_last_hidden_state, wanted.encoder_last_hidden_state, mask)
    labels = tokens(3, 5)
    loss = theirs(source, attention_mask=mask, decoder_input_ids=target, labels=labels).loss
    close(m(source, mask, decoder_input_ids=target, labels=labels).loss, loss, TOLERANCE)
    with pytest.raises(InputError, match=r"with a source and with what is known of its target"):
        m(source)


@torch.no_grad()
def test_targets_of_different_lengths_have_a_mask_of_their_own(tmp_path: Path) -> None:
    _, m = t5(tmp_path)
    source, mask = tokens(2), [[1, 1, 1, 1, 0, 0, 0], [1] * 7]
    out = m(source, mask, decoder_input_ids=[[5, 6, 7], [8]])
    padded, shown = [[5, 6, 7], [8, 0, 0]], [[1, 1, 1], [1, 0, 0]]
    close(out.logits, m(source, mask, decoder_input_ids=padded, decoder_attention_mask=shown).logits, 1e-12)
    close(out.logits[1, :1], m(source[1:], decoder_input_ids=[[8]]).logits[0], 1e-5)


@torch.no_grad()
def test_images_are_pixel_values(tmp_path: Path) -> None:
    sizes = {name: size for name, size in NARROW.items() if name != "vocab_size"}
    config = HF.ViTConfig(**sizes, intermediate_size=20, image_size=16, patch_size=8, num_labels=3)
    theirs = saved(HF.ViTForImageClassification(config), tmp_path)
    m = heed.load(tmp_path)
    pixels = torch.randn(2, 3, 16, 16, dtype=torch.float64)
    close(m(pixel_values=pixels).logits, theirs(pixel_values=pixels).logits, TOLERANCE)
    with pytest.raises(InputError, match=r"pixel_values of shape \[images, channels, height, width\]"):
        m([1, 2])


# --- what is given, and what comes back ---


def test_a_result_has_names_and_an_order(tmp_path: Path) -> None:
    _, m = bert(tmp_path)
    out = m(tokens(), labels=tokens())
    assert list(out) == ["loss", "logits", "last_hidden_state"]
    assert out[0] is out.loss is out["loss"] is out.to_tuple()[0]
    assert dict(**out)["logits"] is out.logits
    assert repr(out) == f"ModelOutput(loss [], logits [3, 7, {len(WORDS)}], last_hidden_state [3, 7, 16])"
    with pytest.raises(AttributeError, match="has no scores; it has loss, logits"):
        _ = out.scores
    with pytest.raises(KeyError, match="has no scores"):
        out["scores"]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "floats": ({"input_ids": [0.5]}, r"integer ids of shape \[rows, tokens\], not float32 of shape \[1, 1\]"),
    "nothing": ({}, r"is called with ids: m\(input_ids\)"),
    "an object": ({"input_ids": object()}, "input_ids must be a tensor, a list of numbers"),
    "depth": ({"input_ids": [[[5]]]}, r"not int64 of shape \[1, 1, 1\]"),
    "a strange id": ({"input_ids": [5, 99]}, "the vocabulary has 21"),
    "an added mask": (
        {"input_ids": [5, 6], "attention_mask": [0.0, -1e9]},
        "must be 1 for tokens and 0 for padding, of shape",
    ),
    "a mask of weights": ({"input_ids": [5, 6], "attention_mask": [1.0, 0.5]}, "must be 1 for tokens and 0 for"),
    "a square mask": ({"input_ids": [5, 6], "attention_mask": [[1, 1], [0, 1]]}, r"of shape \[1, 2\] like the ids"),
    "a cache": ({"input_ids": [5], "past_key_values": 1}, "what a model remembers is a value"),
    "weights": ({"input_ids": [5], "output_attentions": True}, r"write m\.attentions"),
    "a slip": ({"input_ids": [5], "attention_masks": [1]}, r"did you mean attention_mask\?"),
    "a target": ({"input_ids": [5], "decoder_input_ids": [5]}, "this model takes no decoder_input_ids"),
}


@pytest.mark.parametrize(("given", "words"), WRONG.values(), ids=WRONG)
def test_wrong_calls_are_explained(given: dict[str, Any], words: str, tmp_path: Path) -> None:
    _, m = llama(tmp_path)
    with pytest.raises(InputError, match=words):
        m(**given)


# --- attention weights ---


@pytest.mark.parametrize("make", [gpt2, llama, bert], ids=["gpt2", "llama", "bert"])
@torch.no_grad()
def test_attention_weights_are_those_of_the_reference(make: Any, tmp_path: Path) -> None:
    theirs, m = make(tmp_path)
    theirs.set_attn_implementation("eager")  # the only one that tells its weights
    found = m.attentions("the cat sat")
    assert isinstance(found, Attentions)
    given = torch.tensor([[WORDS.index(token) for token in found.tokens]])
    wanted = theirs(given, output_attentions=True).attentions
    assert len(found) == len(wanted) == 2
    for ours, other in zip(found, wanted, strict=True):
        close(ours, other[0], TOLERANCE)
    assert found.weights.shape == (2, 2, len(found.tokens), len(found.tokens))
    assert found.keys == found.tokens
    assert torch.equal(found[-1], found.layers[1])
    assert repr(found).startswith(f"Attentions(2 layers × 2 heads × {len(found.tokens)} tokens: ")
    for same in (given[0].tolist(), given, given[0]):  # ids, as they are
        assert torch.equal(m.attentions(same).weights, found.weights)
    with pytest.raises(InputError, match="loop over the texts"):
        m.attentions(["the cat"])


@torch.no_grad()
def test_an_encoder_decoder_has_three_kinds_of_weights(tmp_path: Path) -> None:
    theirs, m = t5(tmp_path)
    theirs.set_attn_implementation("eager")
    found = m.attentions("the cat sat", "a dog")
    assert isinstance(found, CrossAttentions)
    assert found.cross.keys == found.encoder.tokens == ("[CLS]", "the", "cat", "sat", "[SEP]")
    assert found.cross.tokens == found.decoder.tokens == ("[PAD]", "a", "dog")
    source, target = ([WORDS.index(token) for token in some] for some in (found.encoder.tokens, found.decoder.tokens))
    wanted = theirs(torch.tensor([source]), decoder_input_ids=torch.tensor([target]), output_attentions=True)
    for ours, others in (
        (found.encoder, wanted.encoder_attentions),
        (found.decoder, wanted.decoder_attentions),
        (found.cross, wanted.cross_attentions),
    ):
        for layer, other in zip(ours, others, strict=True):
            close(layer, other[0], TOLERANCE)
    assert "3 tokens × 5 keys" in repr(found.cross)
    written = m.attentions("the cat sat")  # the target that it generates
    assert isinstance(written, CrossAttentions)
    assert written.encoder.tokens == found.encoder.tokens


def test_a_recurrence_has_no_weights_to_show(tmp_path: Path) -> None:
    config = HF.RwkvConfig(hidden_size=16, attention_hidden_size=16, num_hidden_layers=2, vocab_size=len(WORDS))
    _, m = opened(HF.RwkvForCausalLM(config), tmp_path, framed=False)
    assert "attentions" not in m.can
    with pytest.raises(InputError, match="no attention weights to show: what its mixers remember is a state"):
        m.attentions("the cat")
