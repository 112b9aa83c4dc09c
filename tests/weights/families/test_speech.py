"""Whisper, Wav2Vec2 and HuBERT beside the reference library, live."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from heed import weights
from heed.core.contract import Given, Where
from heed.core.errors import WeightsError
from heed.models import AudioEncoder, Seq2seq
from heed.parts.outputs.loss import cross_entropy
from heed.weights.replays.greedy import greedy
from tests.weights.live import close, ids, returns, saved

EXACT = 1e-10  # float64 throughout
FEW = settings(max_examples=6, deadline=None, derandomize=True)


def sound(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


WHISPERS = st.fixed_dictionaries(
    {
        "num_mel_bins": st.sampled_from([5, 8]),
        "encoder_layers": st.integers(1, 3),
        "decoder_layers": st.integers(1, 2),
        "encoder_attention_heads": st.sampled_from([2, 4]),
        "decoder_attention_heads": st.sampled_from([1, 4]),
        "encoder_ffn_dim": st.sampled_from([24, 31]),
        "decoder_ffn_dim": st.sampled_from([20, 64]),
        "activation_function": st.sampled_from(["gelu", "relu", "gelu_new", "silu"]),
        "max_source_positions": st.sampled_from([9, 12]),
        "scale_embedding": st.booleans(),  # the reference stores it and never uses it
        "tie_word_embeddings": st.booleans(),
    }
)


@FEW
@given(drawn=WHISPERS)
def test_whisper(tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, Any]) -> None:
    special: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}
    config = transformers.WhisperConfig(d_model=16, vocab_size=37, max_target_positions=15, **special, **drawn)
    whisper_agrees(transformers.WhisperForConditionalGeneration(config), tmp_path_factory.mktemp("whisper"))


@torch.no_grad()
def whisper_agrees(model: Any, folder: Path) -> None:
    """Scores whole, a target that ends early, greedy tokens, and the way back."""
    model = saved(model, folder / "theirs")
    opened = weights.load(folder / "theirs")
    ours, config = opened.model, model.config
    assert isinstance(ours, Seq2seq)
    features, target = sound(2, config.num_mel_bins, 2 * config.max_source_positions), ids(2, 7, config.vocab_size)
    wanted = model(input_features=features, decoder_input_ids=target)
    memory = ours.encode(features.mT, Where.run(2, features.shape[2]))
    close(memory.parts[0], wanted.encoder_last_hidden_state, EXACT)
    close(ours(target, Where.run(2, 7).give(encoder_output=memory))[0], wanted.logits, EXACT)

    shorter = model(input_features=features[1:], decoder_input_ids=target[1:, :4]).logits
    close(ours(target, Where.ragged([7, 4]).give(encoder_output=memory))[0][1:, :4], shorter, EXACT)

    tokens = target[:, :1]
    for _ in range(5):
        logits = model(input_features=features, decoder_input_ids=tokens).logits[:, -1]
        tokens = torch.cat((tokens, logits.argmax(-1, keepdim=True)), 1)
    written, _ = greedy(ours, target[:, :1], Where.run(2, 1), 5, Given(encoder_output=memory))
    assert torch.equal(written, tokens[:, 1:])

    again = returns(opened, folder / "ours", model)
    assert torch.equal(again(input_features=features, decoder_input_ids=target).logits, wanted.logits)


@torch.no_grad()
def test_whisper_without_prefix(tmp_path: Path) -> None:
    config = transformers.WhisperConfig(
        d_model=16, vocab_size=37, num_mel_bins=5, max_source_positions=9, max_target_positions=15, pad_token_id=0
    )
    config.encoder_attention_heads = config.decoder_attention_heads = 4
    model = saved(transformers.WhisperModel(config), tmp_path / "theirs")
    opened = weights.load(tmp_path / "theirs")
    assert isinstance(opened.model, Seq2seq)
    features, target = sound(1, 5, 18), ids(1, 4, 37)
    wanted = model(input_features=features, decoder_input_ids=target).last_hidden_state
    memory = opened.model.encode(features.mT, Where.run(1, 18))
    close(opened.model.decoder.hidden_states(target, Where.run(1, 4).give(encoder_output=memory))[0], wanted, EXACT)
    again = returns(opened, tmp_path / "ours", model)
    assert torch.equal(again(input_features=features, decoder_input_ids=target).last_hidden_state, wanted)


CONVOLUTIONS = st.sampled_from([((12,), (5,), (3,)), ((12, 8), (4, 3), (2, 2)), ((8, 12, 16), (5, 3, 2), (3, 2, 1))])
LISTENERS = st.fixed_dictionaries(
    {
        "num_hidden_layers": st.integers(1, 3),
        "num_attention_heads": st.sampled_from([1, 4]),
        "intermediate_size": st.sampled_from([24, 31]),
        "hidden_act": st.sampled_from(["gelu", "relu"]),
        "feat_extract_activation": st.sampled_from(["gelu", "relu", "gelu_new"]),
        "feat_extract_norm": st.sampled_from(["group", "layer"]),
        "do_stable_layer_norm": st.booleans(),
        "conv_bias": st.booleans(),
        "layer_norm_eps": st.sampled_from([1e-5, 1e-3]),
        "num_conv_pos_embeddings": st.sampled_from([1, 4, 5]),
        "num_conv_pos_embedding_groups": st.sampled_from([1, 2, 16]),
        "mask_time_prob": st.sampled_from([0.0, 0.05]),
    }
)


def listener_config(kind: Any, convolutions: tuple[Any, Any, Any], drawn: dict[str, Any]) -> Any:
    channels, kernels, strides = convolutions
    shape = {"conv_dim": channels, "conv_kernel": kernels, "conv_stride": strides}
    return kind(hidden_size=16, vocab_size=11, **shape, **drawn)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(drawn=LISTENERS, convolutions=CONVOLUTIONS, bare=st.booleans())
def test_wav2vec2(
    tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, Any], convolutions: tuple[Any, Any, Any], bare: bool
) -> None:
    config = listener_config(transformers.Wav2Vec2Config, convolutions, drawn)
    kind = transformers.Wav2Vec2Model if bare else transformers.Wav2Vec2ForCTC
    listener_agrees(kind(config), tmp_path_factory.mktemp("wav2vec2"))


@FEW
@given(drawn=LISTENERS, convolutions=CONVOLUTIONS, normed=st.booleans(), bare=st.booleans())
def test_hubert(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: dict[str, Any],
    convolutions: tuple[Any, Any, Any],
    normed: bool,
    bare: bool,
) -> None:
    config = listener_config(transformers.HubertConfig, convolutions, {**drawn, "feat_proj_layer_norm": normed})
    kind = transformers.HubertModel if bare else transformers.HubertForCTC
    listener_agrees(kind(config), tmp_path_factory.mktemp("hubert"))


def answer(model: Any, **inputs: Tensor) -> Tensor:
    found = model(**inputs)
    wanted: Tensor = found["logits" if "logits" in found else "last_hidden_state"]
    return wanted


def heard(model: AudioEncoder, waves: Tensor, where: Where) -> Tensor:
    seen = model.encode(waves, where)
    stream = seen.parts[0]
    found: Tensor = model.heads["tagged"](stream, seen) if "tagged" in model.heads else stream
    return found


@torch.no_grad()
def listener_agrees(model: Any, folder: Path) -> None:
    """Alone, in a batch with a shorter sound, and the way back."""
    model = saved(model, folder / "theirs")
    opened = weights.load(folder / "theirs")
    ours, waves = opened.model, sound(2, 61)
    assert isinstance(ours, AudioEncoder)
    wanted = answer(model, input_values=waves)
    close(heard(ours, waves, Where.run(2, 61)), wanted, EXACT)

    where = Where.ragged([61, 43])
    waves[1, 43:] = torch.nan  # whatever stands there does not matter
    found, frames = heard(ours, waves, where), ours.embeddings.frames(where).real
    close(found[0], wanted[0], EXACT)
    close(found[1][frames[1]], answer(model, input_values=waves[1:, :43])[0], EXACT)
    if model.config.feat_extract_norm == "layer":  # with a norm over time the reference counts padding
        mask = where.real.long()
        padded = answer(model, input_values=waves.nan_to_num(), attention_mask=mask)
        close(found[1][frames[1]], padded[1][frames[1]], EXACT)

    again = returns(opened, folder / "ours", model)
    assert torch.equal(answer(again, input_values=waves[:1]), answer(model, input_values=waves[:1]))


def golden(folder: Path, model: Any, inputs: dict[str, Tensor], outputs: dict[str, Tensor]) -> None:
    model.save_pretrained(folder)
    save_file(inputs, folder / "inputs.safetensors")
    save_file({name: tensor.contiguous() for name, tensor in outputs.items()}, folder / "outputs.safetensors")


@pytest.mark.parametrize("norm", ["layer", "group"])
@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@torch.no_grad()
def test_a_recorded_run_with_padding_is_replayed(tmp_path: Path, norm: str, stable: bool, reduction: str) -> None:
    options = {"feat_extract_norm": norm, "do_stable_layer_norm": stable, "ctc_loss_reduction": reduction}
    more = {"num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "ctc_zero_infinity": True}
    drawn = {**options, **more, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    config = listener_config(transformers.Wav2Vec2Config, ((12, 8), (4, 3), (2, 2)), drawn)
    model = transformers.AutoModelForCTC.from_config(config, attn_implementation="eager").double().eval()
    waves, mask = sound(2, 61), Where.ragged([61, 43]).real.long()
    labels = torch.tensor([[3, 3, 4, 5], [4, 6, -100, -100]])
    inputs = {"input_values": waves, "attention_mask": mask, "labels": labels}
    found = model(**inputs, output_hidden_states=True, output_attentions=True)
    outputs = {"logits": found.logits, "loss": found.loss}
    outputs |= {f"hidden_states.{i}": x for i, x in enumerate(found.hidden_states)}
    outputs |= {f"attentions.{i}": x for i, x in enumerate(found.attentions)}
    golden(tmp_path / "a", model, inputs, outputs)
    made = weights.replay(tmp_path / "a")
    frames = model._get_feat_extract_output_lengths(mask.sum(1))
    for name, tensor in outputs.items():
        if name == "loss":  # the reference makes it in float32
            close(made[name], tensor, 1e-6)
            continue
        for row, length in enumerate(frames):
            part = (row, slice(None), slice(length), slice(length)) if "att" in name else (row, slice(length))
            close(made[name][part], tensor[part], EXACT)


@torch.no_grad()
def test_a_bare_model_is_replayed(tmp_path: Path) -> None:
    config = listener_config(transformers.Wav2Vec2Config, ((12, 8), (4, 3), (2, 2)), {"num_attention_heads": 4})
    config.num_hidden_layers, config.intermediate_size = 1, 24
    model = transformers.Wav2Vec2Model(config).double().eval()
    found = model(input_values=sound(1, 61))
    outputs = {name: found[name] for name in ("last_hidden_state", "extract_features")}
    golden(tmp_path / "a", model, {"input_values": sound(1, 61)}, outputs)
    for name, tensor in weights.replay(tmp_path / "a").items():
        close(tensor, outputs[name], EXACT)


@pytest.fixture
def plain(tmp_path: Path) -> tuple[Any, Path]:
    """A small Wav2Vec2, pre-trained, in a folder."""
    drawn = {"num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 24}
    sizes = {"num_codevectors_per_group": 5, "codevector_dim": 6, "proj_codevector_dim": 7}
    config = listener_config(transformers.Wav2Vec2Config, ((12, 8), (4, 3), (2, 2)), {**drawn, **sizes})
    return saved(transformers.Wav2Vec2ForPreTraining(config), tmp_path / "a"), tmp_path / "a"


@torch.no_grad()
def test_what_only_pretraining_needs_is_not_read(plain: tuple[Any, Path]) -> None:
    model, folder = plain
    opened = weights.load(folder)
    assert isinstance(opened.model, AudioEncoder)
    waves = sound(1, 61)
    close(heard(opened.model, waves, Where.run(1, 61)), model.wav2vec2(waves).last_hidden_state, EXACT)


@torch.no_grad()
def test_old_names_of_the_weight_norm(plain: tuple[Any, Path], tmp_path: Path) -> None:
    model, folder = plain
    tensors = load_file(folder / "model.safetensors")
    stem = "wav2vec2.encoder.pos_conv_embed.conv."
    for number, old in enumerate(("weight_g", "weight_v")):
        tensors[stem + old] = tensors.pop(f"{stem}parametrizations.weight.original{number}")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    opened = weights.load(folder)
    assert isinstance(opened.model, AudioEncoder)
    waves = sound(1, 61)
    close(heard(opened.model, waves, Where.run(1, 61)), model.wav2vec2(waves).last_hidden_state, EXACT)
    weights.write(opened, tmp_path / "b")
    kept = load_file(tmp_path / "b" / "model.safetensors")
    assert {name: tensor.tolist() for name, tensor in kept.items()} == {
        name: tensor.tolist() for name, tensor in tensors.items()
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"add_adapter": True}, "it has adapters"),
        ({"adapter_attn_dim": 8}, "it has adapters"),
        ({"model_type": "hubert", "conv_pos_batch_norm": True}, "conv_pos_batch_norm is set"),
        ({"feat_extract_norm": "batch"}, "feat_extract_norm is 'batch'"),
        ({"conv_kernel": [4]}, "must say as much as each other"),
        ({"num_hidden_layers": 10**9}, "it claims 1000000002 layers"),
        ({"hidden_size": 10**9}, "width 1000000000"),
        ({"num_attention_heads": 10**9}, "does not divide into 1000000000 heads"),
        ({"num_conv_pos_embedding_groups": 3}, "does not divide into 3 groups"),
        ({"num_conv_pos_embeddings": 10**12}, "too|original"),
        ({"conv_dim": [10**15, 8]}, "built|shape"),
        ({"hidden_act": "selu"}, "the activation 'selu'"),
    ],
)
def test_what_cannot_be_is_refused(plain: tuple[Any, Path], change: dict[str, Any], message: str) -> None:
    _, folder = plain
    config = weights.Folder.open(folder).config | change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match=message):
        weights.load(folder)


def classifier_config(**more: Any) -> Any:
    config = listener_config(transformers.Wav2Vec2Config, ((12, 8), (4, 3), (2, 2)), {"num_attention_heads": 4})
    config.num_hidden_layers, config.intermediate_size = 1, 24
    config.num_labels, config.classifier_proj_size = 5, 7
    for name, value in more.items():
        setattr(config, name, value)
    return config


@torch.no_grad()
def test_a_classifier_of_sounds(tmp_path: Path) -> None:
    """Alone, in a batch with a shorter sound, the loss, and the way back."""
    model = saved(
        transformers.Wav2Vec2ForSequenceClassification(classifier_config(feat_extract_norm="layer")), tmp_path / "a"
    )
    opened = weights.load(tmp_path / "a")
    assert isinstance(opened.model, AudioEncoder)
    waves, where, labels = sound(2, 61), Where.ragged([61, 43]), torch.tensor([3, 0])
    waves[1, 43:] = 0
    wanted = model(input_values=waves, attention_mask=where.real.long(), labels=labels)
    seen = opened.model.encode(waves, where)
    logits = opened.model.heads["pooled"](seen.parts[0], seen)
    close(logits, wanted.logits, EXACT)
    close(cross_entropy(logits, labels[:, None]).total / 2, wanted.loss, 1e-6)
    again = returns(opened, tmp_path / "b", model)
    assert torch.equal(answer(again, input_values=waves[:1]), answer(model, input_values=waves[:1]))


@torch.no_grad()
def test_a_classifier_of_sounds_by_whispers_encoder(tmp_path: Path) -> None:
    config = transformers.WhisperConfig(
        d_model=16, vocab_size=37, num_mel_bins=5, max_source_positions=9, encoder_layers=2, encoder_attention_heads=4
    )
    config.num_labels, config.classifier_proj_size, config.pad_token_id = 5, 7, 0
    model = saved(transformers.WhisperForAudioClassification(config), tmp_path / "a")
    opened = weights.load(tmp_path / "a")
    assert isinstance(opened.model, AudioEncoder)
    features, labels = sound(2, 5, 18), torch.tensor([1, 4])
    wanted = model(input_features=features, labels=labels)
    seen = opened.model.encode(features.mT, Where.run(2, 18))
    logits = opened.model.heads["pooled"](seen.parts[0], seen)
    close(logits, wanted.logits, EXACT)
    close(cross_entropy(logits, labels[:, None]).total / 2, wanted.loss, 1e-6)
    again = returns(opened, tmp_path / "b", model)
    assert torch.equal(again(input_features=features).logits, wanted.logits)


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        (transformers.Wav2Vec2ForSequenceClassification, {"use_weighted_layer_sum": True}, "it holds layer_weights"),
        (transformers.Wav2Vec2ForAudioFrameClassification, {}, "of a classifier of frames"),
        (transformers.Wav2Vec2ForXVector, {"tdnn_dim": (8,) * 5, "xvector_output_dim": 4}, "it holds objective.weight"),
    ],
)
def test_other_classifiers_are_refused(tmp_path: Path, model: Any, change: dict[str, Any], message: str) -> None:
    model(classifier_config(**change)).save_pretrained(tmp_path / "a")
    with pytest.raises(WeightsError, match=message):
        weights.load(tmp_path / "a")


def test_a_weighted_sum_of_whispers_layers_is_refused(tmp_path: Path) -> None:
    config = transformers.WhisperConfig(d_model=16, num_mel_bins=5, max_source_positions=9, encoder_layers=1)
    config.encoder_attention_heads, config.use_weighted_layer_sum, config.pad_token_id = 4, True, 0
    transformers.WhisperForAudioClassification(config).save_pretrained(tmp_path / "a")
    with pytest.raises(WeightsError, match="it holds layer_weights"):
        weights.load(tmp_path / "a")
