"""BitNet beside the reference library: plain, rounded in every call, in two bits; and back again.

Whatever a model is in, the reference rounds channels and norms in float32. A channel that lies that near to the middle
between two whole numbers may be rounded the other way, so models are drawn until none does (`surely`); then `SINGLE` is
what a few layers leave. Quantised folders are written here: the library reads them only with a package of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import transformers as reference
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.kernels import written_out
from heed.models import Decoder
from heed.parts.layers.bitnet import PackedTernaryLinear, TernaryLinear
from heed.parts.layers.linear import LinearLike
from heed.weights import replay
from tests.weights.families.test_llamas import agrees, few, flags, sizes
from tests.weights.live import close, ids

with patch("torch.compile", lambda function: function):  # it compiles its roundings, which takes longer than the tests
    from transformers.integrations import bitnet as theirs

SINGLE = 1e-5
SAFE = 2e-5  # of a step: 127 steps of numbers that are right to 6e-8
LENGTH, VOCABULARY = 7, 24
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 12,
    "intermediate_size": 20,  # theirs packs multiples of four
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "max_position_embeddings": 32,
}
FORMS = {
    "online": {"linear_class": "autobitlinear", "quantization_mode": "online"},
    "offline": {"linear_class": "autobitlinear", "quantization_mode": "offline"},
    "offline in bytes": {"linear_class": "autobitlinear", "quantization_mode": "offline"},
    "bitlinear": {"linear_class": "bitlinear", "quantization_mode": "offline"},
}


@few
@given(st.data())
def test_plain_weights(data: st.DataObject) -> None:
    fields = sizes(data, free=False) | {"attention_bias": data.draw(flags)}
    fields["hidden_act"] = data.draw(st.sampled_from(["relu2", "silu", "gelu"]))
    agrees(reference.BitNetForCausalLM(reference.BitNetConfig(**fields)))


def quantised(form: str, seed: int, **changes: Any) -> tuple[Any, dict[str, Any], dict[str, Tensor]]:
    """A random model of the reference in float64, its config with the quantisation, and its tensors as they are stored.

    The master weights of every ternary layer are drawn; what is stored of them depends on the form.
    """
    told = {"quant_method": "bitnet", "use_rms_norm": False, **FORMS[form], **changes.pop("quantization", {})}
    kind: Any = reference.LlamaForCausalLM if changes.pop("llama", False) else reference.BitNetForCausalLM
    config = kind.config_class(**SMALL, **changes)
    model = kind(config)
    kept = told.get("modules_to_not_convert")
    given = {name: value for name, value in told.items() if name != "quant_method"}
    named = reference.BitNetQuantConfig(**given)
    model = theirs.replace_with_bitnet_linear(model, ["lm_head"] if kept is None else kept, named)
    draw = torch.Generator().manual_seed(seed)
    for layer in model.modules():
        for name, parameter in layer.named_parameters(
            recurse=False
        ):  # of norms that were added just now: without memory
            gain = parameter.is_meta or (parameter.dim() == 1 and bool((parameter == 1).all()))
            spread = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.3
            drawn = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
            setattr(layer, name, nn.Parameter(float(gain) + spread * drawn, requires_grad=False))
    model = model.double().eval()
    for layer in model.modules():
        _store(layer, draw)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        model.tie_weights()
        tensors.pop("lm_head.weight")
    if form == "offline in bytes":
        for name in [name.removesuffix("_scale") for name in tensors if name.endswith(".weight_scale")]:
            tensors[name] = theirs.pack_weights(tensors[name].clone())
    return model, {**config.to_dict(), "quantization_config": told}, tensors


def _store(layer: nn.Module, draw: torch.Generator) -> None:
    """Ternary weights and their scale in the place of what was drawn, where the form stores them so."""
    stored: Any = layer
    if isinstance(layer, theirs.BitLinear):
        master = torch.randn(layer.out_features, layer.in_features, generator=draw, dtype=torch.float64)
        layer.dtype = torch.float64
        scale = 1 / master.abs().mean()
        stored.weight = theirs.pack_weights((master * scale).round().clamp(-1, 1))
        stored.weight_scale = scale.reshape(1)
    elif isinstance(layer, theirs.AutoBitLinear) and not layer.online_quant:
        mean = layer.weight.abs().mean()
        layer.weight.data = (layer.weight / mean).round().clamp(-1, 1)
        stored.weight_scale = mean.reshape(1)


def written(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config, default=str))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


@contextmanager
def watched(model: nn.Module) -> Iterator[list[float]]:
    """How near the channels of every ternary layer come to the middle between two whole numbers."""
    near: list[float] = []

    def see(layer: nn.Module, inputs: tuple[Tensor]) -> None:
        assert isinstance(layer, TernaryLinear | PackedTernaryLinear)
        x = inputs[0] if layer.norm is None else layer.norm(inputs[0])
        steps = x / x.abs().amax(-1, keepdim=True) * 127
        near.append(float((steps.frac().abs() - 0.5).abs().min()))

    hooks = [layer.register_forward_pre_hook(see) for layer in model.modules() if isinstance(layer, LinearLike)]
    yield near
    for hook in hooks:
        hook.remove()


def surely(folder: Path, form: str, **changes: Any) -> tuple[Any, weights.Opened, Tensor]:
    """Both models and tokens, the first drawn that are not in doubt."""
    tokens = ids(2, LENGTH, VOCABULARY)
    for seed in range(20):
        model, config, tensors = quantised(form, seed, **dict(changes))
        opened = weights.load(written(folder / str(seed), config, tensors))
        with watched(opened.model) as near:
            opened.model(tokens, Where.run(2, LENGTH))
        if min(near) > SAFE:
            return model, opened, tokens
    raise AssertionError("every model came too near to a tie")


OPTIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "normed, biased, untied": {
        "quantization": {"use_rms_norm": True, "rms_norm_eps": 1e-3},
        "attention_bias": True,
        "tie_word_embeddings": False,
    },
    "some layers": {"quantization": {"modules_to_not_convert": ["lm_head", "down_proj", "model.layers.0.self_attn"]}},
    "the head, too": {"quantization": {"modules_to_not_convert": []}},
    "a Llama": {"llama": True, "quantization": {"use_rms_norm": True}},
}


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("form", FORMS)
@torch.no_grad()
def test_ternary_weights(form: str, options: str, tmp_path: Path) -> None:
    model, opened, tokens = surely(tmp_path, form, **OPTIONS[options])
    ours = opened.model
    assert isinstance(ours, Decoder)
    kind = TernaryLinear if form == "online" else PackedTernaryLinear
    assert any(isinstance(layer, kind) for layer in ours.modules())
    wanted = model(input_ids=tokens).logits
    close(ours(tokens, Where.run(2, LENGTH))[0], wanted, SINGLE)

    cut, begin = list[Tensor](), 0
    state: Any = ours.start(2)
    for end in (1, 4, LENGTH):
        y, state = ours(tokens[:, begin:end], Where.run(2, end - begin, start=begin), state)
        cut.append(y)
        begin = end
    close(torch.cat(cut, 1), wanted, SINGLE)

    weights.write(opened, tmp_path / "back")  # every tensor as it was; a number divided by twice may lose its last bit
    source = next(
        path for path in sorted(tmp_path.iterdir(), key=lambda path: -path.stat().st_mtime) if path.name != "back"
    )
    before, after = (load_file(place / "model.safetensors") for place in (source, tmp_path / "back"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        assert tensor.dtype == after[name].dtype
        assert torch.equal(tensor, after[name]) or (
            name.endswith("weight_scale") and torch.allclose(tensor, after[name], rtol=1e-15)
        )


@torch.no_grad()
def test_a_packed_model_takes_a_twelfth_and_scores_the_same(tmp_path: Path) -> None:
    """Golden weights of full precision, rounded in every call; then packed: to the last bit the same logits."""
    from heed.weights.edits import Packed as Pack
    from heed.weights.edits import edit

    folder = Path(__file__).parents[2] / "golden" / "bitnet" / "online_b158"
    inputs = load_file(folder / "inputs.safetensors")["input_ids"]
    where = Where.run(*inputs.shape)
    model: Any = weights.load(folder).model
    with written_out():  # the same sums in the same order
        wanted, _ = model(inputs, where)
    large = sum(layer.weight.nbytes for layer in model.modules() if isinstance(layer, TernaryLinear))
    edit(model, Pack())
    small = sum(
        layer.codes.nbytes + layer.scale.nbytes for layer in model.modules() if isinstance(layer, PackedTernaryLinear)
    )
    with written_out():
        assert torch.equal(model(inputs, where)[0], wanted)
    assert 12 * small <= large


def test_what_is_refused(tmp_path: Path) -> None:
    def refused(name: str, config: dict[str, Any], tensors: dict[str, Tensor]) -> str:
        with pytest.raises(WeightsError) as error:
            weights.load(written(tmp_path / name, config, tensors))
        return str(error.value)

    _, config, tensors = quantised("offline", 0)
    name = "model.layers.0.mlp.up_proj.weight"
    half = {**tensors, name: tensors[name] / 2}
    assert "up_proj.weight must hold -1, 0 and 1, it holds others" in refused("halves", config, half)
    _, packed, bytes_ = quantised("bitlinear", 0)
    strange = {**bytes_, name: torch.full_like(bytes_[name], 0b11)}
    assert "-1, 0 and 1 in two bits each" in refused("bits", packed, strange)
    lost = {key: value for key, value in bytes_.items() if key != f"{name}_scale"}
    assert f"{name}_scale [1] is missing" in refused("scale", packed, lost)
    pattern = {**config["quantization_config"], "modules_to_not_convert": ["model.layers.*.mlp"]}
    assert "heed reads names there" in refused("pattern", {**config, "quantization_config": pattern}, tensors)
    other = {**config["quantization_config"], "linear_class": "ternary"}
    assert "linear_class" in refused("class", {**config, "quantization_config": other}, tensors)
    assert "for bitnet and llama, not for mistral" in refused("mistral", {**config, "model_type": "mistral"}, tensors)
    tied = {**config["quantization_config"], "modules_to_not_convert": []}
    told = {**config, "quantization_config": tied, "tie_word_embeddings": True}
    assert "lm_head is tied" in refused("tied", told, tensors)


def test_a_layer_of_another_size(tmp_path: Path) -> None:
    layer = theirs.AutoBitLinear(20, 36, bias=False, online_quant=True)
    x = torch.randn(2, 3, 20, generator=torch.Generator().manual_seed(0))
    whole, scale = (layer.weight / layer.weight.abs().mean()).round().clamp(-1, 1), 1 / layer.weight.abs().mean()
    held = {"weight": layer.weight.detach(), "packed_weight": theirs.pack_weights(whole.clone())}
    sizes = {"model_type": "bitnet", "in_features": 20, "out_features": 36}
    folder = written(tmp_path / "x", sizes, {**held, "packed_weight_scale_divisor": scale.detach().reshape(1)})
    save_file({"input": x}, folder / "inputs.safetensors")
    made = replay(folder)
    for name in ("online", "packed_bitlinear", "offline_autobitlinear"):
        close(made[name], layer(x), 2e-6)
    assert torch.equal(made["ternary"], whole)
    (folder / "config.json").write_text(json.dumps({**sizes, "out_features": 12}))
    with pytest.raises(WeightsError, match="a layer of 20 inputs and 12 outputs"):
        replay(folder)
