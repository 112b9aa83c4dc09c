"""What files of encoder-decoders hold: tables tied or not, halves, constants, old names; what they must not claim."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.models import Encoder
from heed.weights import replay
from heed.weights.rename import export
from tests.weights.families.twosided import (
    BART_SMALL,
    EXACT,
    KINDS,
    READ,
    SINGLE,
    VOCABULARY,
    WRITTEN,
    agrees,
    in_full,
    loaded,
    made,
    padded,
    returned,
    stored,
    tolerance,
)
from tests.weights.live import close, ids


@pytest.mark.parametrize("tied", [True, False])
def test_marian_with_two_vocabularies(tied: bool, tmp_path: Path) -> None:
    apart = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 23, "tie_word_embeddings": tied}
    model = agrees(made("marian", **apart), tmp_path, SINGLE)
    assert isinstance(model.encoder, Encoder)
    assert model.encoder.config.vocabulary == VOCABULARY
    assert model.config.decoder.vocabulary == 23
    assert model.config.decoder.tied == tied


@pytest.mark.parametrize("kind", ["switch_transformers", "bart", "marian"])
def test_nothing_tied(kind: str, tmp_path: Path) -> None:
    """Source, target and head have tables of their own; the one that they could share is carried along, unused."""
    model = agrees(made(kind, tie_word_embeddings=False), tmp_path, tolerance(kind))
    assert not model.config.shared
    assert not model.config.decoder.tied


@torch.no_grad()
def test_t5_with_a_head_of_its_own(tmp_path: Path) -> None:
    """T5 1.1, which the reference library reads but does not write: the head is separate if the file holds one."""
    stored(made("t5", feed_forward_proj="gated-gelu", tie_word_embeddings=False), tmp_path / "theirs")
    path = tmp_path / "theirs" / "model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {"lm_head.weight": tensors["shared.weight"].flip(0)}, path, {"format": "pt"})
    model = transformers.T5ForConditionalGeneration.from_pretrained(path.parent, dtype=torch.float64)
    model = in_full(model.eval())
    opened, ours = loaded(path.parent)
    source, target = ids(2, READ, VOCABULARY), ids(2, WRITTEN, VOCABULARY, seed=1)
    memory = ours.encode(source, Where.run(2, READ))
    wanted = model(input_ids=source, decoder_input_ids=target).logits
    close(ours(target, Where.run(2, WRITTEN).give(encoder_output=memory))[0], wanted, EXACT)
    again = returned(opened, tmp_path / "ours", model)
    assert torch.equal(again(input_ids=source, decoder_input_ids=target).logits, wanted)


def test_t5_of_old_files(tmp_path: Path) -> None:
    """The one table under four names, and distances of a cross-attention that never used them."""
    stored(made("t5"), tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    table = tensors["shared.weight"]
    source, where = ids(2, READ, VOCABULARY), Where.run(2, READ)
    wanted = loaded(tmp_path)[1].encode(source, where).parts[0]
    names = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"
    unused = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": table[:32, :3].clone()}
    save_file(tensors | {name: table.clone() for name in names} | unused, path)
    close(loaded(tmp_path)[1].encode(source, where).parts[0], wanted, EXACT)
    save_file(tensors | {names[1]: table + 1e-3}, path)
    with pytest.raises(WeightsError, match=r"are tied in this model, but differ by up to 0\.001"):
        weights.load(tmp_path)


@torch.no_grad()
def test_no_token_is_left_out_for_want_of_capacity(tmp_path: Path) -> None:
    """What a token becomes depends on what it sees, not on how many others its expert had before."""
    model = stored(made("switch_transformers", num_experts=2), tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"expert_capacity": 1}))
    source, target = ids(2, READ, VOCABULARY), ids(2, WRITTEN, VOCABULARY, seed=1)
    _, ours = loaded(tmp_path)
    memory = ours.encode(source, Where.run(2, READ))
    wanted = model(input_ids=source, decoder_input_ids=target).logits  # with room for all
    close(ours(target, Where.run(2, WRITTEN).give(encoder_output=memory))[0], wanted, EXACT)


ALONE = {"t5": transformers.T5EncoderModel, "umt5": transformers.UMT5EncoderModel}


@pytest.mark.parametrize("kind", ALONE)
@torch.no_grad()
def test_an_encoder_alone(kind: str, tmp_path: Path) -> None:
    config, _, small = KINDS[kind]
    model = stored(ALONE[kind](config(**small)), tmp_path / "theirs")
    opened = weights.load(tmp_path / "theirs")
    assert isinstance(opened.model, Encoder)
    tokens, mask = ids(2, READ, VOCABULARY), padded(2, READ, "right")
    stream = opened.model(tokens, Where.ragged([READ, READ - 3]))[0]
    wanted = model(input_ids=tokens, attention_mask=mask).last_hidden_state
    close(stream[mask.bool()], wanted[mask.bool()], EXACT)
    again = returned(opened, tmp_path / "ours", model)
    assert torch.equal(again(input_ids=tokens, attention_mask=mask).last_hidden_state, wanted)


@torch.no_grad()
def test_bart_saved_bare(tmp_path: Path) -> None:
    """Without its head: names have no prefix, there is no last bias, and fairseq's version may stand beside."""
    model = stored(transformers.BartModel(transformers.BartConfig(**BART_SMALL)), tmp_path / "theirs")
    path = tmp_path / "theirs" / "model.safetensors"
    save_file(load_file(path) | {"encoder.version": torch.tensor([3.0])}, path, {"format": "pt"})
    opened, ours = loaded(path.parent)
    source, target = ids(2, READ, VOCABULARY), ids(2, WRITTEN, VOCABULARY, seed=1)
    wanted = model(input_ids=source, decoder_input_ids=target)
    memory = ours.encode(source, Where.run(2, READ))
    close(memory.parts[0], wanted.encoder_last_hidden_state, EXACT)
    (stream, _), head = ours.hidden_states(target, Where.run(2, WRITTEN).give(encoder_output=memory)), ours.lm_head
    close(stream, wanted.last_hidden_state, EXACT)
    assert not [name for name, _ in head.named_parameters() if name == "bias"]
    again = returned(opened, tmp_path / "ours", model)
    assert torch.equal(again(input_ids=source, decoder_input_ids=target).last_hidden_state, wanted.last_hidden_state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_stored_sinusoids_are_checked(dtype: torch.dtype, tmp_path: Path) -> None:
    """Old files of Marian hold them; in another table than heed computes, something else was trained."""
    model = stored(made("marian"), tmp_path).to(dtype)
    path = tmp_path / "model.safetensors"
    tensors = {name: tensor.to(dtype) for name, tensor in load_file(path).items()}
    name = "model.encoder.embed_positions.weight"
    waves = model.state_dict()[name]
    save_file(tensors | {name: waves}, path)
    opened = weights.load(tmp_path)
    assert torch.equal(export(opened.model, opened.table)[name], waves)
    save_file(tensors | {name: waves.flip(0)}, path)
    with pytest.raises(WeightsError, match="is not the constant"):
        weights.load(tmp_path)


RECORDED = "hidden_states", "attentions"


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_what_was_recorded_is_replayed(kind: str, tmp_path: Path) -> None:
    """Hidden states, weights, logits under their names in the reference; the loss of labels, which are shifted its way."""
    model = stored(made(kind), tmp_path)
    model.set_attn_implementation("eager")
    labels = ids(2, WRITTEN, VOCABULARY, seed=1)
    labels[1, -2:] = -100
    mask = padded(2, READ, "left")
    inputs = {"input_ids": ids(2, READ, VOCABULARY), "attention_mask": mask, "labels": labels}
    found = model(**inputs, output_hidden_states=True, output_attentions=True)
    outputs = {"logits": found.logits, "loss": found.loss}
    for name in (*(f"{side}_{what}" for side in ("encoder", "decoder") for what in RECORDED), "cross_attentions"):
        outputs |= {f"{name}.{depth}": tensor for depth, tensor in enumerate(found[name])}
    for name, tensors in {"inputs": inputs, "outputs": outputs}.items():
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, tmp_path / f"{name}.safetensors")
    for name, tensor in replay(tmp_path).items():
        shown = (tensor, outputs[name])
        if kind == "longt5" and name.startswith("encoder_attentions"):
            continue  # block by block, with hidden keys among them, other than elsewhere
        if name.startswith("encoder_attentions"):
            shown = (tensor.transpose(1, 2), outputs[name].transpose(1, 2))
        real = mask.bool() if name.startswith("encoder_") else ...  # what padding becomes means nothing
        rounded = kind == "longt5"  # the reference takes the softmax of its encoder in float32
        close(shown[0][real], shown[1][real], SINGLE if rounded else tolerance(kind))


HUGE = 10**9
BAD = {
    "t5": [
        {"num_layers": HUGE},
        {"num_decoder_layers": HUGE},
        {"d_model": HUGE},
        {"d_kv": HUGE},
        {"num_heads": HUGE},
        {"d_ff": HUGE},
        {"vocab_size": HUGE},
        {"relative_attention_num_buckets": HUGE},
        {"relative_attention_max_distance": HUGE},
        {"relative_attention_max_distance": 3},
        {"relative_attention_num_buckets": 7},
        {"feed_forward_proj": "gated-nonsense", "dense_act_fn": None},
        {"feed_forward_proj": "fenced-gelu", "dense_act_fn": None},
        {"is_gated_act": True},
    ],
    "switch_transformers": [{"num_experts": HUGE}, {"num_experts": 2}, {"router_bias": True}, {"num_layers": HUGE}],
    "bart": [
        {"encoder_layers": HUGE},
        {"decoder_layers": HUGE},
        {"encoder_attention_heads": HUGE},
        {"decoder_ffn_dim": HUGE},
        {"max_position_embeddings": HUGE},
        {"activation_function": "nonsense"},
        {"d_model": 13},
    ],
    "marian": [{"d_model": 13}, {"share_encoder_decoder_embeddings": False}, {"vocab_size": HUGE}],
}


@pytest.mark.parametrize("kind", BAD)
def test_what_no_file_bears_out_is_refused(kind: str, tmp_path: Path) -> None:
    stored(made(kind), tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    for claim in BAD[kind]:
        path.write_text(json.dumps(config | claim))
        with pytest.raises(WeightsError):
            weights.load(tmp_path)


def test_what_a_target_begins_with_must_be_known(tmp_path: Path) -> None:
    stored(made("t5"), tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    tokens = ids(2, READ, VOCABULARY)
    for lacking in ("decoder_start_token_id", "pad_token_id"):
        path.write_text(json.dumps(config | {lacking: None}))
        save_file({"input_ids": tokens, "labels": tokens.clone()}, tmp_path / "inputs.safetensors")
        with pytest.raises(WeightsError, match=lacking):
            replay(tmp_path)
