"""torchscale's Decoder and Encoder, and ResiDual: golden folders, and other options against the equations."""

from __future__ import annotations

import cmath
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from heed.core.contract import Given, Where
from heed.core.errors import WeightsError
from heed.core.state import Seen
from heed.weights import Folder, replay, residual, torchscale
from heed.weights.rename import export

GOLDEN = Path(__file__).parents[1] / "golden"
TOLERANCES = json.loads((GOLDEN / "tolerances.json").read_text())
DECODERS, ENCODER, RESIDUAL = ("xpos/decoder_subln", "deepnorm/decoder"), "deepnorm/encoder_padded", "residual/encdec"
CASES = (*DECODERS, ENCODER, RESIDUAL)
EXACT = 1e-12  # float64 rounds at 1e-16; a few layers of sums of about a hundred terms lose less than four digits

Tensors = dict[str, Tensor]
Options = dict[str, Any]


def write(path: Path, config: Options, weights: Tensors, inputs: Tensors, outputs: Tensors | None = None) -> Path:
    """A folder like a golden one."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    for name, tensors in {"model": weights, "inputs": inputs, "outputs": outputs}.items():
        if tensors is not None:
            save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, path / f"{name}.safetensors")
    return path


def agree(made: Tensors, wanted: Tensors, tolerance: float, real: Tensor | None = None) -> None:
    """Equal where there are tokens (`real` [B, T] is about the encoder), and equal in shape everywhere."""
    assert made.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert (made[name].shape, made[name].dtype) == (tensor.shape, tensor.dtype), name
        gap = (made[name].double() - tensor.double()).abs()
        if real is not None and name.startswith("enc"):
            gap = gap[real if gap.shape[:2] == real.shape else real.T]
        assert gap.numel(), name
        assert gap.max().item() <= tolerance, f"{name} differs by {gap.max().item():.2g}"


def pieces(length: int, seed: int) -> list[tuple[int, int]]:
    cuts = torch.randperm(length - 1, generator=torch.Generator().manual_seed(seed))[:4].sort().values + 1
    return list(zip([0, *cuts.tolist()], [*cuts.tolist(), length], strict=True))


# --- golden folders ---


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    wanted, inputs = (load_file(GOLDEN / case / f"{name}.safetensors") for name in ("outputs", "inputs"))
    real = ~inputs["encoder_padding_mask"] if "encoder_padding_mask" in inputs else None
    agree(replay(GOLDEN / case), wanted, 10 * TOLERANCES[case]["absolute"], real)


@pytest.mark.parametrize("case", CASES)
def test_what_is_loaded_is_exported(case: str) -> None:
    folder = Folder.open(GOLDEN / case)
    if case == RESIDUAL:
        written = export(residual.model(folder), residual.NAMES)
    else:
        names = torchscale.options(folder).names(torchscale.side_of(folder))
        written = export(torchscale.model(folder), names)
    assert written.keys() == folder.weights.keys()
    assert all(torch.equal(written[name], tensor) for name, tensor in folder.weights.items())


@pytest.mark.parametrize("case", DECODERS)
@pytest.mark.parametrize("seed", range(3))
def test_whole_and_in_pieces(case: str, seed: int) -> None:
    folder = Folder.open(GOLDEN / case)
    model, tokens = torchscale.model(folder), folder.input("prev_output_tokens")
    where, made = Where.run(*tokens.shape), []
    with torch.no_grad():
        whole, _ = model(tokens, where)
        state = model.start(len(tokens))
        for begin, end in pieces(tokens.shape[1], seed):
            piece, after = model(tokens[:, begin:end], where.cut(begin, end), state)
            assert after is not None
            state = after
            made.append(piece)
    # sums in another order, as between two implementations
    assert (torch.cat(made, 1) - whole).abs().max().item() <= 10 * TOLERANCES[case]["absolute"]


@pytest.mark.parametrize("seed", range(3))
def test_residual_whole_and_in_pieces(seed: int) -> None:
    folder = Folder.open(GOLDEN / RESIDUAL)
    pair, source, target = residual.model(folder), folder.input("src_embeds"), folder.input("tgt_embeds")
    here, where, made = Where.ragged([12, 8]), Where.run(*target.shape[:2]), []
    with torch.no_grad():
        memory = Seen.of(here, pair.encoder(source, here)[0])
        whole, _ = pair.decoder(target, where.give(memory=memory))
        state = pair.decoder.start(len(target), Given(memory=memory))
        for begin, end in pieces(target.shape[1], seed):
            piece, after = pair.decoder(target[:, begin:end], where.cut(begin, end), state)
            assert after is not None
            state = after
            made.append(piece)
    # sums in another order, as between two implementations
    assert (torch.cat(made, 1) - whole).abs().max().item() <= 10 * TOLERANCES[RESIDUAL]["absolute"]


# --- torchscale, written out ---


def linear(w: Tensors, name: str, x: Tensor) -> Tensor:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def normed(w: Tensors, name: str, x: Tensor, eps: float) -> Tensor:
    spread = (x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / (spread + eps).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]


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
T, O = True, False  # noqa: E741  # a mask is easier to read in letters of one width
PADDING = {
    "none": None,
    "right": torch.tensor([[O] * 9, [O] * 5 + [T] * 4]),
    "left": torch.tensor([[T] * 3 + [O] * 6, [O] * 9]),
    "in the middle": torch.tensor([[O, T, T, O, O, T, O, O, T], [T, O, O, O, T, O, O, O, O]]),
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


# --- ResiDual, written out ---


def attended(w: Tensors, name: str, x: Tensor, y: Tensor, visible: Tensor, heads: int) -> Tensor:
    """x looks at y."""
    query, key, value = (
        linear(w, f"{name}.{part}_proj", z).unflatten(-1, (heads, -1)) for part, z in (("q", x), ("k", y), ("v", y))
    )
    score = torch.einsum("bihd,bjhd->bhij", query, key) / query.shape[-1] ** 0.5
    weight = score.masked_fill(~visible[:, None], -math.inf).softmax(-1)
    return linear(w, f"{name}.out_proj", torch.einsum("bhij,bjhd->bihd", weight, value).flatten(2))


def two_streams(
    c: Options, w: Tensors, side: str, x: Tensor, sight: dict[str, tuple[Tensor | None, Tensor]]
) -> Tensors:
    """`sight` says for each attention what it looks at (None = the stream itself) and what of it is visible."""
    short = side[:3]
    scale = c[f"{short}_res_input_norm_scale"]
    made: Tensors = {}
    res = scale * x
    for k in range(c[f"{short}_layers"]):
        name = f"{side}_layers.{k}"
        for part in (*sight, "final"):
            if part == "final":
                change = linear(w, f"{name}.fc2", linear(w, f"{name}.fc1", x).clamp(min=0))
            else:
                memory, visible = sight[part]
                change = attended(w, f"{name}.{part}", x, x if memory is None else memory, visible, c["heads"])
            res = res + scale * change
            x = normed(w, f"{name}.{part}_layer_norm", x + change, 1e-5)
        made |= {f"{short}_x.{k}": x, f"{short}_res.{k}": res}
    last = c[f"{short}_alpha"] * x + normed(w, f"{side}_layer_norm", res, c["final_norm_eps"])
    return made | {f"{side}_out": last}


def residual_weights(c: Options) -> Tensors:
    width, hidden = c["d"], c["ffn"]
    made: Tensors = {}
    for side, parts in {"encoder": ("self_attn",), "decoder": ("self_attn", "encoder_attn")}.items():
        layers = [f"{side}_layers.{k}" for k in range(c[f"{side[:3]}_layers"])]
        norms = [f"{name}.{part}_layer_norm" for name in layers for part in (*parts, "final")]
        shapes = {f"{n}.{a}.{p}_proj": (width, width) for n in layers for a in parts for p in ("q", "k", "v", "out")}
        shapes |= {f"{n}.fc1": (hidden, width) for n in layers} | {f"{n}.fc2": (width, hidden) for n in layers}
        made |= {f"{name}.weight": 0.4 * torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}
        biases = {name: shape[0] for name, shape in shapes.items()} | dict.fromkeys(
            [*norms, f"{side}_layer_norm"], width
        )
        made |= {f"{name}.bias": torch.randn(size, dtype=torch.float64) for name, size in biases.items()}
        gains = [*norms, f"{side}_layer_norm"]
        made |= {f"{name}.weight": torch.randn(width, dtype=torch.float64) for name in gains}
    return made


def test_embeddings_of_another_width_are_refused(tmp_path: Path) -> None:
    golden = GOLDEN / RESIDUAL
    weights, inputs = (load_file(golden / f"{name}.safetensors") for name in ("model", "inputs"))
    config = json.loads((golden / "config.json").read_text())
    folder = write(tmp_path / "x", config, weights, inputs | {"tgt_embeds": torch.zeros(2, 9, 31)})
    with pytest.raises(WeightsError, match=r"tgt_embeds has the shape \[2, 9, 31\]; needed is \[rows, tokens, 32\]"):
        replay(folder)


@pytest.mark.parametrize("padding", PADDING.values(), ids=PADDING)
def test_another_residual(tmp_path: Path, padding: Tensor | None) -> None:
    torch.manual_seed(0)
    c: Options = {"d": 12, "heads": 3, "ffn": 20, "enc_layers": 3, "dec_layers": 1, "model_type": "residual"}
    c |= {"enc_alpha": 0.5, "dec_alpha": 2.0, "final_norm_eps": 1e-3}
    c |= {"enc_res_input_norm_scale": 0.1, "dec_res_input_norm_scale": 0.7}
    weights = residual_weights(c)
    source, target = (torch.randn(2, length, 12, dtype=torch.float64) for length in (9, 6))
    real = torch.ones(2, 9).bool() if padding is None else ~padding
    wanted = two_streams(c, weights, "encoder", source, {"self_attn": (None, real[:, None])})
    sight = {
        "self_attn": (None, torch.ones(1, 6, 6).tril().bool()),
        "encoder_attn": (wanted["encoder_out"], real[:, None]),
    }
    wanted |= two_streams(c, weights, "decoder", target, sight)
    inputs = {"src_embeds": source, "tgt_embeds": target} | (
        {} if padding is None else {"encoder_padding_mask": padding}
    )
    made = replay(write(tmp_path / "x", c, weights, inputs))
    agree(made, {name: tensor.transpose(0, 1) for name, tensor in wanted.items()}, EXACT, real)
