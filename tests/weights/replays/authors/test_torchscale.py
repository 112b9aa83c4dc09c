"""torchscale's Decoder and Encoder: golden folders, and other options against the equations."""

from __future__ import annotations

import cmath
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from heed.core.errors import WeightsError
from heed.weights import Folder, replay
from heed.weights.rename import export
from heed.weights.replays.authors import torchscale
from tests.weights.support import (
    EXACT,
    GOLDEN,
    PADDING,
    TOLERANCES,
    Options,
    Tensors,
    agree,
    linear,
    normed,
    whole_and_in_pieces,
    write,
)

DECODERS, ENCODER = ("xpos/decoder_subln", "deepnorm/decoder"), "deepnorm/encoder_padded"
CASES = (*DECODERS, ENCODER)


# --- golden folders ---


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    wanted, inputs = (load_file(GOLDEN / case / f"{name}.safetensors") for name in ("outputs", "inputs"))
    real = ~inputs["encoder_padding_mask"] if "encoder_padding_mask" in inputs else None
    agree(replay(GOLDEN / case), wanted, 10 * TOLERANCES[case]["absolute"], real)


@pytest.mark.parametrize("case", CASES)
def test_what_is_loaded_is_exported(case: str) -> None:
    folder = Folder.open(GOLDEN / case)
    written = export(torchscale.model(folder), torchscale.options(folder).names(torchscale.side_of(folder)))
    assert written.keys() == folder.weights.keys()
    assert all(torch.equal(written[name], tensor) for name, tensor in folder.weights.items())


@pytest.mark.parametrize("case", DECODERS)
@pytest.mark.parametrize("seed", range(3))
def test_whole_and_in_pieces(case: str, seed: int) -> None:
    folder = Folder.open(GOLDEN / case)
    model, tokens = torchscale.model(folder), folder.input("prev_output_tokens")
    whole_and_in_pieces(model, tokens, seed, 10 * TOLERANCES[case]["absolute"])


# --- torchscale, written out ---


def bucket(gap: int, buckets: int, distance: int) -> int:
    """T5's bucket of a key `gap` after the query, both ways."""
    each, far = buckets // 2, abs(gap)
    small = each // 2
    if far >= small:
        far = min(each - 1, small + int(math.log(far / small) / math.log(distance / small) * (each - small)))
    return far + each * (gap > 0)


def scores(c: Options, w: Tensors, query: Tensor, key: Tensor) -> Tensor:
    """[B, T, H, d] twice -> [B, H, T, T], with xPos pair by pair or buckets."""
    length, size = query.shape[1], query.shape[3]
    if not c["xpos_rel_pos"]:
        score = torch.einsum("bihd,bjhd->bhij", query, key) / size**0.5
        if c["rel_pos_buckets"]:
            table = next(tensor for name, tensor in w.items() if "relative_attention_bias" in name)
            index = [
                [bucket(j - i, c["rel_pos_buckets"], c["max_rel_pos"]) for j in range(length)] for i in range(length)
            ]
            score = score + table[torch.tensor(index)].permute(2, 0, 1)
        return score
    turn = torch.zeros(length, length, size // 2, dtype=torch.complex128)
    for i in range(length):
        for j in range(length):
            for k in range(size // 2):
                zeta = (2 * k + 0.4 * size) / (1.4 * size)
                angle = cmath.exp(1j * (i - j) * 10000 ** (-2 * k / size))
                turn[i, j, k] = zeta ** ((i - j) / c["xpos_scale_base"]) * angle
    pairs = [torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) for x in (query, key)]
    return torch.einsum("bihk,bjhk,ijk->bhij", pairs[0], pairs[1].conj(), turn).real / size**0.5


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "swish": F.silu, "gelu": F.gelu}


def layer(c: Options, w: Tensors, name: str, x: Tensor, visible: Tensor) -> Tensor:
    rows, length, width = x.shape
    eps, before = c["layernorm_eps"], c["normalize_before"]
    alpha = (2 * c["layers"]) ** 0.25 if c["deepnorm"] else 1.0

    h = normed(w, f"{name}.self_attn_layer_norm", x, eps) if before else x
    query, key, value = (
        linear(w, f"{name}.self_attn.{part}_proj", h).reshape(rows, length, c["attention_heads"], -1) for part in "qkv"
    )
    weight = scores(c, w, query, key).masked_fill(~visible[:, None], -math.inf).softmax(-1).nan_to_num()
    mixed = torch.einsum("bhij,bjhd->bihd", weight, value).reshape(rows, length, width)
    mixed = normed(w, f"{name}.self_attn.inner_attn_ln", mixed, eps) if c["subln"] else mixed
    x = alpha * x + linear(w, f"{name}.self_attn.out_proj", mixed)
    x = x if before else normed(w, f"{name}.self_attn_layer_norm", x, eps)

    h = normed(w, f"{name}.final_layer_norm", x, eps) if before else x
    h = ACTIVATIONS[c["activation_fn"]](linear(w, f"{name}.ffn.fc1", h))
    h = normed(w, f"{name}.ffn.ffn_layernorm", h, eps) if c["subln"] else h
    x = alpha * x + linear(w, f"{name}.ffn.fc2", h)
    return x if before else normed(w, f"{name}.final_layer_norm", x, eps)


def reference(c: Options, w: Tensors, side: str, tokens: Tensor, real: Tensor) -> Tensors:
    length = tokens.shape[1]
    visible = real[:, None, :].expand(-1, length, -1)
    visible = visible.tril() if side == "decoder" else visible
    x = w["embed_tokens.weight"][tokens] * (1.0 if c["no_scale_embedding"] else c["embed_dim"] ** 0.5)
    if "embed_positions.weight" in w:
        x = x + w["embed_positions.weight"][2 : length + 2]
    if c["layernorm_embedding"]:
        x = normed(w, "layernorm_embedding", x, c["layernorm_eps"])
    inner = [x]
    for depth in range(c["layers"]):
        inner.append(layer(c, w, f"layers.{depth}", inner[-1], visible))
    last = normed(w, "layer_norm", inner[-1], c["layernorm_eps"]) if "layer_norm.weight" in w else inner[-1]
    head = c["vocab_size"] > 0 and not c["no_output_layer"]
    if head:
        last = last @ w["embed_tokens.weight" if c["share_input_output_embed"] else "output_projection.weight"].T
    if side == "encoder":
        return {f"encoder_states.{k}": x for k, x in enumerate(inner)} | {"encoder_out": last}
    made = {f"inner_states.{k}": x for k, x in enumerate(inner)}
    return made | ({"logits": last, "logits_incremental": last} if head else {"features": last})


def weights_of(c: Options, side: str, *, positions: bool) -> Tensors:
    width, hidden = c["embed_dim"], c["ffn_embed_dim"]
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (17, width)}
    if positions:
        shapes["embed_positions.weight"] = (12, width)
    if c["vocab_size"] > 0 and not c["no_output_layer"] and not c["share_input_output_embed"]:
        shapes["output_projection.weight"] = (17, width)
    if c["rel_pos_buckets"]:
        name = "relative_position" if side == "encoder" else "self_attn_relative_position"
        shapes[f"{name}.relative_attention_bias.weight"] = (c["rel_pos_buckets"], c["attention_heads"])
    norms = {"layernorm_embedding": c["layernorm_embedding"]}
    norms["layer_norm"] = c["normalize_before"] and (side == "decoder" or c["normalize_output"])
    sizes = {name: width for name, there in norms.items() if there}
    for i in range(c["layers"]):
        sizes |= {f"layers.{i}.self_attn_layer_norm": width, f"layers.{i}.final_layer_norm": width}
        if c["subln"]:
            sizes |= {f"layers.{i}.self_attn.inner_attn_ln": width, f"layers.{i}.ffn.ffn_layernorm": hidden}
        square = {f"layers.{i}.self_attn.{part}_proj": (width, width) for part in ("q", "k", "v", "out")}
        for name, (out, into) in (
            square | {f"layers.{i}.ffn.fc1": (hidden, width), f"layers.{i}.ffn.fc2": (width, hidden)}
        ).items():
            shapes |= {f"{name}.weight": (out, into), f"{name}.bias": (out,)}
    shapes |= {f"{name}.{kind}": (size,) for name, size in sizes.items() for kind in ("weight", "bias")}
    return {name: 0.4 * torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}


def named(c: Options, side: str) -> Options:
    """torchscale's names of the options."""
    ours = {"embed_dim", "attention_heads", "ffn_embed_dim", "layers", "normalize_before"}
    config = {f"{side}_{name}" if name in ours else name: value for name, value in c.items()}
    config[f"share_{side}_input_output_embed"] = config.pop("share_input_output_embed")
    return config | {"model_type": "deepnorm" if c["deepnorm"] else "xpos", "dropout": 0.1, "segment_length": None}


BASE: Options = {"embed_dim": 12, "attention_heads": 2, "ffn_embed_dim": 20, "layers": 2, "normalize_before": True}
BASE |= {"activation_fn": "gelu", "subln": False, "deepnorm": False, "no_scale_embedding": True, "vocab_size": 17}
BASE |= {"layernorm_embedding": False, "layernorm_eps": 1e-5, "share_input_output_embed": False, "max_rel_pos": 0}
BASE |= {"no_output_layer": False, "normalize_output": True, "xpos_rel_pos": False, "xpos_scale_base": 512}
BASE |= {"rel_pos_buckets": 0}
VARIANTS: dict[str, Options] = {
    "pre-norm, relu, scaled": {"activation_fn": "relu", "no_scale_embedding": False},
    "post-norm, swish": {"normalize_before": False, "activation_fn": "swish", "layers": 3},
    "subln, shared head": {"subln": True, "share_input_output_embed": True},
    "deepnorm, large eps": {"deepnorm": True, "normalize_before": False, "layernorm_eps": 0.01, "layers": 3},
    "buckets": {"rel_pos_buckets": 8, "max_rel_pos": 20},
    "buckets, deepnorm": {"rel_pos_buckets": 6, "max_rel_pos": 7, "deepnorm": True, "normalize_before": False},
    "xpos": {"xpos_rel_pos": True, "xpos_scale_base": 16, "attention_heads": 3},
    "xpos, subln, scaled": {"xpos_rel_pos": True, "subln": True, "no_scale_embedding": False},
    "normed embeddings": {"layernorm_embedding": True, "no_scale_embedding": False},
    "no output layer": {"no_output_layer": True},
    "no vocabulary": {"vocab_size": -1, "normalize_output": False},
}
DECODERS_ONLY: dict[str, Options] = {
    "subln after": {"subln": True, "normalize_before": False},
    "deepnorm before": {"deepnorm": True},
}


@pytest.mark.parametrize("positions", [True, False], ids=["learned positions", "no positions"])
@pytest.mark.parametrize("variant", (VARIANTS | DECODERS_ONLY).values(), ids=VARIANTS | DECODERS_ONLY)
def test_other_decoders(tmp_path: Path, variant: Options, positions: bool) -> None:
    torch.manual_seed(0)
    c, tokens = BASE | variant, torch.randint(17, (2, 9))
    weights = weights_of(c, "decoder", positions=positions)
    wanted = reference(c, weights, "decoder", tokens, torch.ones(2, 9).bool())
    inputs = {"prev_output_tokens": tokens}
    folder = write(tmp_path / "x", named(c, "decoder"), weights, inputs)
    agree(replay(folder), wanted, EXACT)
    model = torchscale.model(Folder.open(folder))
    tables = {id(code) for name, code in model.named_parameters(remove_duplicate=False) if "mixer.position" in name}
    assert len(tables) == bool(c["rel_pos_buckets"])  # one table, however many layers


@pytest.mark.parametrize("padding", PADDING.values(), ids=PADDING)
@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_other_encoders(tmp_path: Path, variant: Options, padding: Tensor | None) -> None:
    torch.manual_seed(0)
    c, tokens = BASE | variant, torch.randint(17, (2, 9))
    weights = weights_of(c, "encoder", positions=True)
    real = torch.ones(2, 9).bool() if padding is None else ~padding
    wanted = reference(c, weights, "encoder", tokens, real)
    inputs = {"src_tokens": tokens} | ({} if padding is None else {"encoder_padding_mask": padding})
    agree(replay(write(tmp_path / "x", named(c, "encoder"), weights, inputs)), wanted, EXACT, real)


@pytest.mark.parametrize("claim", [{"subln": True}, {"subln": True, "normalize_before": True}])
def test_deepnorm_wins_over_what_it_excludes(tmp_path: Path, claim: Options) -> None:
    """torchscale's config classes correct such a config before a model is built from it."""
    torch.manual_seed(0)
    c, tokens = BASE | {"deepnorm": True, "normalize_before": False}, torch.randint(17, (2, 9))
    weights = weights_of(c, "encoder", positions=True)
    wanted = reference(c, weights, "encoder", tokens, torch.ones(2, 9).bool())
    folder = write(tmp_path / "x", named(c | claim, "encoder"), weights, {"src_tokens": tokens})
    agree(replay(folder), wanted, EXACT)


@pytest.mark.parametrize("same", [True, False])
def test_a_shared_head_that_is_stored_too(tmp_path: Path, same: bool) -> None:
    c, tokens = BASE | {"share_input_output_embed": True}, torch.randint(17, (2, 9))
    weights = weights_of(c, "decoder", positions=False)
    weights["output_projection.weight"] = weights["embed_tokens.weight"] + (0.0 if same else 1.0)
    folder = write(tmp_path / "x", named(c, "decoder"), weights, {"prev_output_tokens": tokens})
    if same:
        wanted = reference(c, weights, "decoder", tokens, torch.ones(2, 9).bool())
        agree(replay(folder), wanted, EXACT)
    else:
        with pytest.raises(
            WeightsError, match="embed_tokens.weight and output_projection.weight are tied in this model"
        ):
            replay(folder)


WRONG: dict[str, tuple[Options, str]] = {
    "experts": ({"moe_freq": 2}, "moe_freq is 2"),
    "multiway": ({"multiway": True}, "multiway is True"),
    "dilated": ({"segment_length": "[4, 8]"}, "segment_length is"),
    "activation": ({"activation_fn": "tanh"}, "activation_fn is 'tanh'"),
    "two relations": ({"xpos_rel_pos": True, "rel_pos_buckets": 8, "max_rel_pos": 20}, "not both at once"),
    "both sides": ({"encoder_layers": 2}, "either decoder_layers or encoder_layers"),
    "width": ({"decoder_embed_dim": 10**15}, "claims 2 layers of width"),
    "depth": ({"decoder_layers": 10**9}, "claims 1000000000 layers"),
    "a head of xpos": ({"xpos_rel_pos": True, "decoder_attention_heads": 4}, "two by two"),
    "subln": ({"subln": True}, r"layers.0.self_attn.inner_attn_ln.weight \[12\] is missing"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_folder_is_explained(tmp_path: Path, change: Options, message: str) -> None:
    weights = weights_of(BASE, "decoder", positions=False)
    inputs = {"prev_output_tokens": torch.zeros(1, 3, dtype=torch.long)}
    with pytest.raises(WeightsError, match=message):
        replay(write(tmp_path / "x", named(BASE, "decoder") | change, weights, inputs))


def test_another_scale_of_xpos_is_not_passed_over(tmp_path: Path) -> None:
    golden = GOLDEN / DECODERS[0]
    weights, inputs = (load_file(golden / f"{name}.safetensors") for name in ("model", "inputs"))
    weights["layers.1.self_attn.xpos.scale"] *= 1.001
    config = json.loads((golden / "config.json").read_text())
    with pytest.raises(WeightsError, match=r"layers.1.self_attn.xpos.scale \[4\] is not the constant"):
        replay(write(tmp_path / "x", config, weights, inputs))
