"""Golden-like folders beyond the golden ones: holes and windows, bare models, long rotations, positions as an input.

The reference computes norms, rotations and softmaxes of some families in float32 whatever the weights are: NEAR bounds
what that leaves, relative to the largest magnitude.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, get_args

import pytest
import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.activations import ACT2FN

from heed import weights
from heed.core.errors import WeightsError
from heed.parts.feedforward.mlp import Activation, activate
from heed.weights import replay
from heed.weights.families.base import ACTIVATIONS
from tests.weights.live import close, ids, returns, saved

Sizes: TypeAlias = dict[str, Any]
Make: TypeAlias = Callable[[], Any]

NEAR = 5e-6
V = 61
SPECIAL: Sizes = {"vocab_size": V, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None}
LLAMA: Sizes = SPECIAL | {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 40,
    "max_position_embeddings": 40,
}
GPT: Sizes = SPECIAL | {"n_embd": 24, "n_head": 3, "n_layer": 2, "n_positions": 40}
FALCON: Sizes = SPECIAL | {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
OPT: Sizes = {
    "vocab_size": V,
    "hidden_size": 24,
    "num_attention_heads": 3,
    "num_hidden_layers": 2,
    "ffn_dim": 37,
    "max_position_embeddings": 40,
    "word_embed_proj_dim": 16,
}
NEO: Sizes = SPECIAL | {
    "hidden_size": 24,
    "num_heads": 3,
    "num_layers": 2,
    "max_position_embeddings": 40,
    "window_size": 4,
    "attention_types": [[["global", "local"], 1]],
}
T5: Sizes = {"vocab_size": V, "d_model": 24, "d_kv": 7, "d_ff": 37, "num_layers": 2, "num_heads": 3}
BART: Sizes = {
    "vocab_size": V,
    "d_model": 24,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "max_position_embeddings": 40,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 9,
    "decoder_ffn_dim": 9,
    "pad_token_id": 1,
    "decoder_start_token_id": 2,
}
WHISPER: Sizes = BART | {
    "num_mel_bins": 8,
    "max_source_positions": 20,
    "max_target_positions": 24,
    "begin_suppress_tokens": None,
    "suppress_tokens": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SHORT, LONG = [1.0, 1.1, 1.3, 2.0], [1.0, 2.0, 3.5, 6.0]
LONGROPE: Sizes = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "short_factor": SHORT,
    "long_factor": LONG,
    "original_max_position_embeddings": 20,
}
DYNAMIC: Sizes = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
MASKS = {
    "right": [[1] * 13, [1] * 9 + [0] * 4, [1] + [0] * 12],
    "left": [[1] * 13, [0] * 4 + [1] * 9, [0] * 12 + [1]],
    "holes": [[1, 1, 1, 0] + [1] * 9, [1, 0, 0, 1, 1, 0] + [1] * 5 + [0, 0], [0, 0, 1, 1, 1, 1, 0] + [1] * 6],
}


def named(out: Any) -> dict[str, Tensor]:
    """What a reference gave, under the names of a golden folder."""
    made = {name: value for name, value in out.items() if isinstance(value, Tensor)}
    for name, value in out.items():
        if isinstance(value, tuple):
            made |= {f"{name}.{depth}": tensor for depth, tensor in enumerate(value)}
    return {name: tensor.contiguous().clone() for name, tensor in made.items()}


def real(name: str, tensor: Tensor, inputs: dict[str, Tensor]) -> Tensor:
    """Without what stands at padding."""
    mask = inputs.get("attention_mask")
    if mask is None or tensor.dim() < 3:
        return tensor
    at = tensor.transpose(1, 2) if "attentions" in name else tensor
    return at[mask.bool()] if at.shape[:2] == mask.shape else tensor


def replayed(folder: Path, inputs: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    """Both are written into the folder, and heed must make the same."""
    save_file({name: tensor.contiguous() for name, tensor in inputs.items()}, folder / "inputs.safetensors")
    save_file(wanted, folder / "outputs.safetensors")
    made = replay(folder, next(tensor.dtype for tensor in wanted.values() if tensor.is_floating_point()))
    assert made.keys() == wanted.keys()
    for name, tensor in wanted.items():
        if tensor.is_floating_point():
            assert made[name].shape == tensor.shape, name
            close(real(name, made[name], inputs), real(name, tensor, inputs), NEAR)
        else:
            assert torch.equal(made[name], tensor), name


@torch.no_grad()
def called(model: Any, folder: Path, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """All that one call of the model gives; replayed, too."""
    wanted = named(model(**inputs, output_hidden_states=True))
    replayed(folder, inputs, wanted)
    return wanted


@torch.no_grad()
def continued(model: Any, folder: Path, inputs: dict[str, Tensor], steps: int = 5) -> None:
    """Likewise a greedy continuation."""
    told = {"max_new_tokens": steps, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    found = model.generate(**inputs, **told, return_dict_in_generate=True, output_logits=True)
    replayed(folder, inputs, {"sequences": found.sequences, "step_logits": torch.stack(found.logits, 1)})


HIDDEN: dict[str, Make] = {
    "mistral": lambda: tf.MistralForCausalLM(tf.MistralConfig(**LLAMA, sliding_window=4)),
    "gemma2": lambda: tf.Gemma2ForCausalLM(tf.Gemma2Config(**LLAMA, head_dim=8, sliding_window=4)),
    "qwen2": lambda: tf.Qwen2ForCausalLM(
        tf.Qwen2Config(**LLAMA, use_sliding_window=True, sliding_window=3, max_window_layers=0)
    ),
    "gpt_neo": lambda: tf.GPTNeoForCausalLM(tf.GPTNeoConfig(**NEO)),
    "opt": lambda: tf.OPTForCausalLM(tf.OPTConfig(**OPT)),
    "mpt": lambda: tf.MptForCausalLM(tf.MptConfig(**SPECIAL, d_model=24, n_heads=3, n_layers=2)),
    "falcon, rotated": lambda: tf.FalconForCausalLM(tf.FalconConfig(**FALCON)),
    "falcon, alibi": lambda: tf.FalconForCausalLM(tf.FalconConfig(**FALCON, alibi=True)),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_padding_anywhere(name: str, tmp_path: Path) -> None:
    """Windows are measured in columns, over padding that stands between tokens.

    In float32: in float64 some references fill masks with what overflows in their softmax, and all becomes NaN.
    """
    model, tokens = saved(HIDDEN[name](), tmp_path).float(), ids(3, 13, V)
    for mask in MASKS.values():
        called(model, tmp_path, {"input_ids": tokens, "attention_mask": torch.tensor(mask)})
    for shown in (torch.tensor(MASKS["left"])[:, 2:], torch.tensor(MASKS["holes"])[:, :11]):  # rows end with a token
        continued(model, tmp_path, {"input_ids": tokens[:, :11], "attention_mask": shown})


@pytest.mark.parametrize("rope", [LONGROPE, DYNAMIC], ids=["longrope", "dynamic"])
def test_rotations_that_depend_on_the_length(rope: dict[str, Any], tmp_path: Path) -> None:
    model = saved(tf.LlamaForCausalLM(tf.LlamaConfig(**LLAMA, rope_parameters=rope)), tmp_path)
    for length in (13, 60):
        model = tf.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float64).eval()  # it grows with its calls
        called(model, tmp_path, {"input_ids": ids(2, length, V)})
    if rope is LONGROPE:
        continued(model, tmp_path, {"input_ids": ids(2, 25, V), "attention_mask": torch.ones(2, 25).long()})
    save_file({"input_ids": ids(2, 18 if rope is LONGROPE else 60, V)}, tmp_path / "inputs.safetensors")
    save_file({"step_logits": torch.zeros(2, 6, V)}, tmp_path / "outputs.safetensors")
    with pytest.raises(WeightsError, match="tokens cannot be continued by 6: .*stays within one length"):
        replay(tmp_path)
    (tmp_path / "outputs.safetensors").unlink()  # then what can be made is made
    assert {"logits", "last_hidden_state"} <= replay(tmp_path).keys()


APART: Sizes = {"tie_word_embeddings": False}
BARE: dict[str, Make] = {
    "llama": lambda: tf.LlamaModel(tf.LlamaConfig(**LLAMA, **APART)),
    "phi3": lambda: tf.Phi3Model(tf.Phi3Config(**LLAMA, **APART)),
    "gpt2": lambda: tf.GPT2Model(tf.GPT2Config(**GPT, **APART)),
    "gptj": lambda: tf.GPTJModel(tf.GPTJConfig(**GPT, **APART, rotary_dim=4)),
    "gpt_neo": lambda: tf.GPTNeoModel(tf.GPTNeoConfig(**NEO, **APART)),
    "gpt_neox": lambda: tf.GPTNeoXModel(tf.GPTNeoXConfig(**FALCON, **APART, intermediate_size=48)),
    "bloom": lambda: tf.BloomModel(tf.BloomConfig(**SPECIAL, **APART, hidden_size=24, n_head=3, n_layer=2)),
    "mpt": lambda: tf.MptModel(tf.MptConfig(**SPECIAL, **APART, d_model=24, n_heads=3, n_layers=2)),
    "falcon": lambda: tf.FalconModel(tf.FalconConfig(**FALCON, **APART)),
    "opt": lambda: tf.OPTModel(tf.OPTConfig(**OPT, **APART)),
    "bart": lambda: tf.BartModel(tf.BartConfig(**BART, **APART)),
    "t5": lambda: tf.T5Model(tf.T5Config(**T5, **APART)),
    "whisper": lambda: tf.WhisperModel(tf.WhisperConfig(**WHISPER, **APART)),
}


@pytest.mark.parametrize("name", BARE)
def test_bodies_saved_alone(name: str, tmp_path: Path) -> None:
    model = saved(BARE[name](), tmp_path / "theirs")
    inputs = {"input_ids": ids(3, 13, V), "attention_mask": torch.tensor(MASKS["right"])}
    if name in ("bart", "t5"):
        inputs["decoder_input_ids"] = ids(3, 5, V, seed=1)
    if name == "whisper":
        sound = torch.randn(3, 8, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        inputs = {"input_features": sound, "decoder_input_ids": ids(3, 5, V)}
    wanted = called(model, tmp_path / "theirs", inputs)
    assert "last_hidden_state" in wanted
    with torch.no_grad():
        again = returns(weights.load(tmp_path / "theirs"), tmp_path / "ours", model)
        assert torch.equal(again(**inputs).last_hidden_state, wanted["last_hidden_state"])


def test_a_head_that_is_lost_is_missed(tmp_path: Path) -> None:
    saved(tf.LlamaForCausalLM(tf.LlamaConfig(**LLAMA)), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(WeightsError, match=r"lm_head.weight \[61, 32\] is missing"):
        weights.load(tmp_path)


PLACED: dict[str, Make] = {
    "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**LLAMA)),
    "gpt2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(**GPT)),
    "opt": lambda: tf.OPTForCausalLM(tf.OPTConfig(**OPT)),
}


@pytest.mark.parametrize("name", PLACED)
def test_positions_as_an_input(name: str, tmp_path: Path) -> None:
    model, tokens = saved(PLACED[name](), tmp_path), ids(3, 13, V)
    twice, later = 2 * torch.arange(13)[None], torch.arange(13) + torch.tensor([[0], [5], [9]])
    given = {"input_ids": tokens, "attention_mask": torch.tensor(MASKS["left"]), "position_ids": later}
    called(model, tmp_path, given)
    continued(model, tmp_path, given)
    called(model, tmp_path, {"input_ids": tokens, "position_ids": twice})
    plain = replay(tmp_path)["logits"]
    save_file({"input_ids": tokens}, tmp_path / "inputs.safetensors")
    assert (replay(tmp_path)["logits"] - plain).abs().max() > 0.1
    save_file({"input_ids": tokens, "position_ids": twice[:, 1:].contiguous()}, tmp_path / "inputs.safetensors")
    with pytest.raises(WeightsError, match=r"position_ids must be whole numbers of the shape \[3, 13\]"):
        replay(tmp_path)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (PLACED["llama"], "inputs_embeds"),
        (PLACED["gpt2"], "head_mask"),
        (PLACED["gpt2"], "past_key_values.0.key"),
        (HIDDEN["falcon, alibi"], "position_ids"),
        (BARE["t5"], "decoder_inputs_embeds"),
        (BARE["bart"], "cross_attn_head_mask"),
        (BARE["whisper"], "decoder_position_ids"),
    ],
)
def test_inputs_that_are_not_read_are_told(make: Make, name: str, tmp_path: Path) -> None:
    saved(make(), tmp_path)
    save_file({"input_ids": ids(2, 5, V), name: torch.zeros(2, 5)}, tmp_path / "inputs.safetensors")
    with pytest.raises(WeightsError, match=f"inputs.safetensors holds {name}, which heed does not feed"):
        replay(tmp_path)


@pytest.mark.parametrize(("buckets", "distance"), [(5, 8), (7, 9), (9, 20), (33, 128)])
def test_an_odd_number_of_buckets(buckets: int, distance: int, tmp_path: Path) -> None:
    sizes: Sizes = {"relative_attention_num_buckets": buckets, "relative_attention_max_distance": distance}
    model = saved(tf.T5ForConditionalGeneration(tf.T5Config(**T5, **sizes)), tmp_path)
    called(model, tmp_path, {"input_ids": ids(2, 40, V), "decoder_input_ids": ids(2, 30, V, seed=1)})


@pytest.mark.parametrize("name", sorted(ACTIVATIONS.keys() & ACT2FN.keys()))
def test_activations(name: str) -> None:
    x = torch.cat((torch.linspace(-15, 15, 301, dtype=torch.float64), torch.tensor([-3.0, 0.0, 3.0, 6.0])))
    gap = (activate(ACTIVATIONS[name], x) - ACT2FN[name](x)).abs().max().item()
    assert gap <= 1e-6, gap  # gelu_fast and gelu_accurate round the constant of the tanh form


def test_all_activations_are_named() -> None:
    assert set(ACTIVATIONS.values()) == set(get_args(Activation))


CARRIED: dict[str, tuple[Make, tuple[str, ...]]] = {
    "bart": (lambda: tf.BartForConditionalGeneration(tf.BartConfig(**BART, **APART)), ("model.shared.weight",)),
    "marian": (lambda: tf.MarianMTModel(tf.MarianConfig(**BART, **APART)), ("model.shared.weight",)),
    "switch": (
        lambda: tf.SwitchTransformersForConditionalGeneration(
            tf.SwitchTransformersConfig(**T5, **APART, num_decoder_layers=2, num_experts=2)
        ),
        ("shared.weight",),
    ),
    "vit": (
        lambda: tf.ViTModel(
            tf.ViTConfig(
                hidden_size=24,
                num_attention_heads=3,
                num_hidden_layers=1,
                intermediate_size=9,
                image_size=8,
                patch_size=4,
            ),
            use_mask_token=True,
        ),
        ("embeddings.mask_token",),
    ),
    "swin": (
        lambda: tf.SwinModel(
            tf.SwinConfig(image_size=16, patch_size=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4),
            use_mask_token=True,
        ),
        ("embeddings.mask_token",),
    ),
}


@pytest.mark.parametrize("name", CARRIED)
def test_what_nothing_reads_is_written_back(name: str, tmp_path: Path) -> None:
    make, carried = CARRIED[name]
    saved(make(), tmp_path / "theirs")
    weights.write(weights.load(tmp_path / "theirs"), tmp_path / "ours")
    theirs, ours = (load_file(tmp_path / side / "model.safetensors") for side in ("theirs", "ours"))
    assert ours.keys() == theirs.keys()
    assert set(carried) <= ours.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in carried)


def test_an_output_that_heed_does_not_make_is_not_passed_over(tmp_path: Path) -> None:
    """A comparison of what is left would hold, and say nothing of what was recorded."""
    torch.manual_seed(0)
    model = saved(tf.GPT2LMHeadModel(tf.GPT2Config(**GPT)), tmp_path)
    tokens = ids(1, 5, V)
    save_file({"input_ids": tokens}, tmp_path / "inputs.safetensors")
    with torch.no_grad():
        wanted = {"logits": model(tokens).logits.contiguous()}
    save_file(wanted, tmp_path / "outputs.safetensors")
    assert replay(tmp_path).keys() == {"logits"}
    save_file(wanted | {"logit": torch.zeros(1)}, tmp_path / "outputs.safetensors")
    with pytest.raises(
        WeightsError, match="outputs.safetensors holds logit, which heed does not make for gpt2; it makes .*logits"
    ):
        replay(tmp_path)
