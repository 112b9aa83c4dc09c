"""Lite Transformer in its authors' layout: golden folders, and other sizes and options against the equations."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.core.laws import LAWS, Law
from heed.models import Embedded, familiar
from heed.weights import AUTHORS, Folder, replay
from heed.weights.rename import export
from heed.weights.replays.authors import lite
from tests.weights.support import EXACT, GOLDEN, TOLERANCES, Options, Tensors, agree, linear, normed, write

CASES = ("lite_transformer/lsra_dynamic", "lite_transformer/lsra_lightweight")
PAD = 1


def compared(made: Tensors, wanted: Tensors, tolerance: float, source: Tensor) -> None:
    """At tokens: what stands at padding means nothing."""
    real = (source != PAD).T[..., None]
    for name in ("encoder_out", "lsra0_input_TBC", "lsra0_output_TBC"):
        if name in made:
            made, wanted = made | {name: made[name] * real}, wanted | {name: wanted[name] * real}
    for name in [name for name in wanted if name.endswith("sequences")]:
        assert torch.equal(made.pop(name), wanted.pop(name))
    agree(made, wanted, tolerance)


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    made, wanted = replay(GOLDEN / case), load_file(GOLDEN / case / "outputs.safetensors")
    source = load_file(GOLDEN / case / "inputs.safetensors")["src_tokens"]
    compared(made, wanted, 10 * TOLERANCES[case]["absolute"], source)


@pytest.mark.parametrize("case", CASES)
def test_what_is_loaded_is_exported(case: str) -> None:
    folder = Folder.open(GOLDEN / case)
    written = export(AUTHORS["lite_transformer"](folder), lite.Lite.load(folder.config).names())
    unsaid = {f"{side}.embed_positions._float_tensor" for side in ("encoder", "decoder")}
    assert written.keys() == folder.weights.keys() - unsaid
    assert all(torch.equal(tensor, folder.weights[name]) for name, tensor in written.items())


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", CASES)
def test_laws_on_the_checkpoint(case: str, law: Law) -> None:
    model = lite.model(Folder.open(GOLDEN / case)).double()
    for part in (model, model.encoder):
        finding = law(Embedded(part), familiar(part))  # type: ignore[arg-type]  # it reads tokens
        assert finding.holds, finding


@torch.no_grad()
def test_a_row_by_itself_is_what_it_is_in_a_batch() -> None:
    """Where the reference's rows see the bias of padding, heed's do not: only a replay fills them up."""
    folder = Folder.open(GOLDEN / CASES[0])
    model, tokens = lite.model(folder).double(), folder.input("src_tokens")
    both = model.encode(tokens, Where.ragged([14, 9])).parts[0]
    alone = model.encode(tokens[1:, :9], Where.run(1, 9)).parts[0]
    assert torch.allclose(both[1, :9], alone[0], rtol=0, atol=1e-12)
    recorded = load_file(GOLDEN / CASES[0] / "outputs.safetensors")["encoder_out"].transpose(0, 1)
    assert (alone[0] - recorded[1, :9]).abs().max() > 1e-3


# --- the reference, written out ---


BRANCHES = ["attn:1:8:2", "dynamic:default:4:2", "lightweight:5:4:1"]
BASE: Options = {
    **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in {
        "embed_dim": 16, "ffn_embed_dim": 10, "layers": 2, "attention_heads": 4, "normalize_before": False,
        "learned_pos": False, "branch_type": BRANCHES, "kernel_size_list": [3, 7], "glu": True,
    }.items()},
    "activation_fn": "relu", "conv_linear": True, "weight_softmax": True, "padding_idx": PAD,
    "share_all_embeddings": False, "share_decoder_input_output_embed": True,
    "no_token_positional_embeddings": False, "max_source_positions": 20, "max_target_positions": 30,
}  # fmt: skip


def kernels(c: Options, side: str) -> list[int]:
    given = c[f"{side}_kernel_size_list"]
    return given * c[f"{side}_layers"] if len(given) == 1 else given


def shapes(c: Options) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}

    def dense(name: str, rows: int, columns: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = (rows, columns), (rows,)

    def attention(name: str, width: int) -> None:
        for part in ("q", "k", "v", "out"):
            dense(f"{name}.{part}_proj", width, width)

    for side, vocabulary, length in (("encoder", 13, 20), ("decoder", 13 if c["share_all_embeddings"] else 11, 30)):
        d = c[f"{side}_embed_dim"]
        found[f"{side}.embed_tokens.weight"] = (vocabulary, d)
        if c[f"{side}_learned_pos"] and not c["no_token_positional_embeddings"]:
            found[f"{side}.embed_positions.weight"] = (length + PAD + 1, d)
        if c[f"{side}_normalize_before"] and not (side == "decoder" and c.get("no_decoder_final_norm")):
            found[f"{side}.layer_norm.weight"], found[f"{side}.layer_norm.bias"] = (d,), (d,)
        for i in range(c[f"{side}_layers"]):
            layer = f"{side}.layers.{i}"
            for norm in ("self_attn", "final", *(("encoder_attn",) if side == "decoder" else ())):
                found[f"{layer}.{norm}_layer_norm.weight"] = found[f"{layer}.{norm}_layer_norm.bias"] = (d,)
            dense(f"{layer}.fc1", c[f"{side}_ffn_embed_dim"], d)
            dense(f"{layer}.fc2", d, c[f"{side}_ffn_embed_dim"])
            if side == "decoder":
                attention(f"{layer}.encoder_attn", d)
            if c[f"{side}_branch_type"] is None:
                attention(f"{layer}.self_attn", d)
            for b, branch in enumerate(c[f"{side}_branch_type"] or ()):
                what, size, width, heads = branch.split(":")
                kernel, name = (
                    kernels(c, side)[i] if size == "default" else int(size),
                    f"{layer}.self_attn.branches.{b}",
                )
                channels = int(width)
                if what == "attn":
                    attention(name, channels)
                    continue
                if c["conv_linear"]:
                    dense(f"{name}.linear1", channels * (2 if what == "dynamic" and c[f"{side}_glu"] else 1), channels)
                    dense(f"{name}.linear2", channels, channels)
                if what == "dynamic":
                    found[f"{name}.weight_linear.weight"] = (int(heads) * kernel, channels)
                else:
                    found[f"{name}.weight"] = (int(heads), 1, kernel)
    if not c["share_decoder_input_output_embed"] and not c["share_all_embeddings"]:
        found["decoder.embed_out"] = (11, c["decoder_embed_dim"])
    return found


def weights(c: Options) -> Tensors:
    draw = torch.Generator().manual_seed(0)
    made = {name: torch.randn(shape, generator=draw, dtype=torch.float64) / 2 for name, shape in shapes(c).items()}
    if c["share_all_embeddings"]:
        made["decoder.embed_tokens.weight"] = made["encoder.embed_tokens.weight"].clone()
    fixed = {f"{side}.version": torch.tensor([3.0], dtype=torch.float64) for side in ("encoder", "decoder")}
    return made | fixed | {"encoder.embed_positions._float_tensor": torch.zeros(1, dtype=torch.float64)}


def embedded(c: Options, w: Tensors, side: str, tokens: Tensor) -> Tensor:
    d = c[f"{side}_embed_dim"]
    x = w[f"{side}.embed_tokens.weight"][tokens] * math.sqrt(d)
    if c["no_token_positional_embeddings"]:
        return x
    real = tokens != PAD
    place = real.cumsum(1) * real + PAD
    if c[f"{side}_learned_pos"]:
        return x + w[f"{side}.embed_positions.weight"][place]
    speed = 10000 ** (-torch.arange(d // 2, dtype=torch.float64) / (d // 2 - 1))
    angle = place[..., None] * speed
    return x + torch.cat((angle.sin(), angle.cos()), -1) * real[..., None]


def attended(w: Tensors, name: str, x: Tensor, source: Tensor, heads: int, hidden: Tensor) -> tuple[Tensor, Tensor]:
    q, k, v = (
        linear(w, f"{name}.{part}_proj", y).unflatten(-1, (heads, -1)).transpose(1, 2)
        for part, y in (("q", x), ("k", source), ("v", source))
    )
    weight = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(hidden, -math.inf).softmax(-1)
    return linear(w, f"{name}.out_proj", (weight @ v).transpose(1, 2).flatten(2)), weight


def convolved(c: Options, w: Tensors, name: str, side: str, branch: str, kernel: int, x: Tensor) -> Tensor:
    what, _, _, heads = branch.split(":")
    if c["conv_linear"]:
        x = linear(w, f"{name}.linear1", x)
        x = F.glu(x) if what == "dynamic" and c[f"{side}_glu"] else x
    rows, length, _ = x.shape
    if what == "dynamic":
        taps = (x @ w[f"{name}.weight_linear.weight"].T).view(rows, length, int(heads), kernel)
    else:
        taps = w[f"{name}.weight"][:, 0].expand(rows, length, int(heads), kernel)
    taps = taps.softmax(-1) if c["weight_softmax"] else taps
    before = kernel - 1 if side == "decoder" else kernel // 2
    wide = F.pad(x, (0, 0, before, kernel))
    y = torch.zeros_like(x)
    for t in range(length):
        near = wide[:, t : t + kernel].unflatten(-1, (int(heads), -1))  # [B, K, H, R]
        y[:, t] = torch.einsum("bhk,bkhr->bhr", taps[:, t], near).flatten(1)
    return linear(w, f"{name}.linear2", y) if c["conv_linear"] else y


def mixed(c: Options, w: Tensors, side: str, layer: int, x: Tensor, hidden: Tensor, padding: Tensor) -> Tensor:
    name, begin, made = f"{side}.layers.{layer}.self_attn", 0, []
    if c[f"{side}_branch_type"] is None:
        return attended(w, name, x, x, c[f"{side}_attention_heads"], hidden)[0]
    for number, branch in enumerate(c[f"{side}_branch_type"]):
        what, size, width, heads = branch.split(":")
        piece, begin = x[..., begin : begin + int(width)], begin + int(width)
        place = f"{name}.branches.{number}"
        if what == "attn":
            made.append(attended(w, place, piece, piece, int(heads), hidden)[0])
        else:
            kernel = kernels(c, side)[layer] if size == "default" else int(size)
            blank = piece.masked_fill(padding[..., None], 0) if side == "encoder" else piece
            made.append(convolved(c, w, place, side, branch, kernel, blank))
    return torch.cat(made, -1)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "linear": lambda x: x,
    "gelu_accurate": lambda x: F.gelu(x, approximate="tanh"),
}


def block(c: Options, w: Tensors, side: str, layer: int, x: Tensor, *parts: tuple[str, object]) -> Tensor:
    before = c[f"{side}_normalize_before"]
    for norm, part in parts:
        name = f"{side}.layers.{layer}.{norm}_layer_norm"
        y = x + part(normed(w, name, x, 1e-5) if before else x)  # type: ignore[operator]
        x = y if before else normed(w, name, y, 1e-5)
    return x


def reference(c: Options, w: Tensors, source: Tensor, target: Tensor) -> Tensors:
    padding = source == PAD
    unseen, made, crossed = padding[:, None, None], dict[str, Tensor](), list[Tensor]()
    act = ACTIVATIONS[c["activation_fn"]]

    def fed(side: str, i: int, y: Tensor) -> Tensor:
        name = f"{side}.layers.{i}"
        return linear(w, f"{name}.fc2", act(linear(w, f"{name}.fc1", y)))

    x = embedded(c, w, "encoder", source)
    made["lsra0_input_TBC"] = x.transpose(0, 1).contiguous()
    made["lsra0_output_TBC"] = mixed(c, w, "encoder", 0, x, unseen, padding).transpose(0, 1)
    for i in range(c["encoder_layers"]):
        parts = (
            ("self_attn", lambda y, i=i: mixed(c, w, "encoder", i, y, unseen, padding)),
            ("final", lambda y, i=i: fed("encoder", i, y)),
        )
        x = block(c, w, "encoder", i, x, *parts)
    memory = normed(w, "encoder.layer_norm", x, 1e-5) if "encoder.layer_norm.weight" in w else x
    made["encoder_out"] = memory.transpose(0, 1)

    x, length = embedded(c, w, "decoder", target), target.shape[1]
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    made["decoder_inner_states.0"] = x.transpose(0, 1)

    def looked(i: int, y: Tensor) -> Tensor:
        found, weight = attended(w, f"decoder.layers.{i}.encoder_attn", y, memory, c["decoder_attention_heads"], unseen)
        crossed.append(weight)
        return found

    for i in range(c["decoder_layers"]):
        parts3 = (
            ("self_attn", lambda y, i=i: mixed(c, w, "decoder", i, y, later, padding)),
            ("encoder_attn", lambda y, i=i: looked(i, y)),
            ("final", lambda y, i=i: fed("decoder", i, y)),
        )
        x = block(c, w, "decoder", i, x, *parts3)
        made[f"decoder_inner_states.{i + 1}"] = x.transpose(0, 1)
    x = normed(w, "decoder.layer_norm", x, 1e-5) if "decoder.layer_norm.weight" in w else x
    made["avg_cross_attn"] = crossed[-1].mean(1)
    table = w.get("decoder.embed_out", w["decoder.embed_tokens.weight"])
    return made | dict.fromkeys(("logits", "logits_incremental"), x @ table.T)


SOURCES = {
    "no padding": torch.tensor([[5, 7, 3, 9, 12, 4, 4, 2], [3, 3, 8, 10, 6, 11, 5, 2]]),
    "right": torch.tensor([[5, 7, 3, 9, 12, 4, 4, 2], [3, 3, 8, 2, PAD, PAD, PAD, PAD]]),
    "right, by one": torch.tensor([[5, 7, 3, 9, 12, 4, 4, 2], [3, 3, 8, 10, 6, 11, 2, PAD]]),
    "left": torch.tensor([[5, 7, 3, 9, 12, 4, 4, 2], [PAD, PAD, PAD, 3, 3, 8, 10, 2]]),
    "in the middle": torch.tensor([[5, PAD, 3, 9, PAD, PAD, 4, 2], [3, 3, 8, 2, 4, PAD, 5, PAD]]),
}
TARGET = torch.tensor([[2, 5, 9, 3, 3, 10], [2, 8, 4, 6, 7, 5]])
OTHERS: dict[str, tuple[Options, str]] = {
    **{f"padding {name}": ({}, name) for name in SOURCES},
    "norms first": ({"encoder_normalize_before": True, "decoder_normalize_before": True}, "right"),
    "no last norm": ({"decoder_normalize_before": True, "no_decoder_final_norm": True}, "right"),
    "learned positions": ({"encoder_learned_pos": True, "decoder_learned_pos": True}, "left"),
    "no positions": ({"no_token_positional_embeddings": True}, "right"),
    "no branches": ({"encoder_branch_type": None, "decoder_branch_type": None}, "right"),
    "one branch": ({"encoder_branch_type": ["dynamic:9:16:4"], "decoder_branch_type": ["lightweight:12:16:8"]}, "left"),
    "order of branches": ({"encoder_branch_type": BRANCHES[::-1]}, "in the middle"),
    "no gate": ({"encoder_glu": False, "decoder_glu": False}, "right"),
    "no softmax": ({"weight_softmax": False}, "right"),
    "no projections": (
        {"conv_linear": False, "encoder_branch_type": ["attn:1:8:2", "lightweight:3:8:4"]}
        | {"decoder_branch_type": ["lightweight:default:10:5", "attn:1:6:1"]},
        "left",
    ),
    "one kernel for all, long ones": (
        {"encoder_kernel_size_list": [21], "decoder_kernel_size_list": [20], "encoder_layers": 1},
        "right",
    ),
    "own head": ({"share_decoder_input_output_embed": False}, "right"),
    "one table": ({"share_all_embeddings": True}, "right"),
    **{f"{name} in between": ({"activation_fn": name}, "no padding") for name in ACTIVATIONS},
    "other depths": ({"encoder_layers": 1, "decoder_layers": 3, "decoder_kernel_size_list": [1, 2, 4, 9]}, "right"),
    "other sizes": ({"encoder_ffn_embed_dim": 7, "decoder_ffn_embed_dim": 33, "decoder_attention_heads": 2}, "right"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_options(tmp_path: Path, case: str) -> None:
    options, padding = OTHERS[case]
    c, source = {**BASE, **options}, SOURCES[padding]
    w, inputs = weights(c), {"src_tokens": source, "prev_output_tokens": TARGET}
    folder = write(tmp_path, {"model_type": "lite_transformer", **c}, w, inputs, reference(c, w, source, TARGET))
    compared(replay(folder), load_file(folder / "outputs.safetensors"), 10 * EXACT, source)


def test_a_translation_is_greedy(tmp_path: Path) -> None:
    c, source = BASE, SOURCES["right"]
    w, sequence, steps = weights(c), torch.full((2, 1), 2), []
    for _ in range(6):
        steps.append(reference(c, w, source, sequence)["logits"][:, -1])
        sequence = torch.cat((sequence, steps[-1].argmax(-1, keepdim=True)), 1)
    outputs = {"generate.sequences": sequence, "generate.step_logits": torch.stack(steps, 1)}
    made = replay(write(tmp_path, {"model_type": "lite_transformer", **c}, w, {"src_tokens": source}, outputs))
    assert torch.equal(made["generate.sequences"], sequence)
    assert torch.allclose(made["generate.step_logits"], outputs["generate.step_logits"], rtol=0, atol=10 * EXACT)


@torch.no_grad()
def test_a_padded_target_is_what_its_tokens_are(tmp_path: Path) -> None:
    target = TARGET.clone()
    target[1, 4:] = PAD
    inputs = {"src_tokens": SOURCES["left"], "prev_output_tokens": target}
    w = weights(BASE)
    made = replay(write(tmp_path, {"model_type": "lite_transformer", **BASE}, w, inputs))["logits"]
    wanted = reference(BASE, w, SOURCES["left"], TARGET)["logits"]
    assert torch.allclose(made[0], wanted[0], rtol=0, atol=10 * EXACT)
    assert torch.allclose(made[1, :4], wanted[1, :4], rtol=0, atol=10 * EXACT)


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    def damaged(config: Options | None = None, /, **changes: Tensor | None) -> Path:
        folder = tmp_path / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(GOLDEN / CASES[1], folder)
        held = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**held, **(config or {})}))
        for file in ("model", "inputs"):
            tensors = load_file(folder / f"{file}.safetensors")
            for name, tensor in changes.items():
                if tensor is None:
                    tensors.pop(name, None)
                elif name in tensors:
                    tensors[name] = tensor
            save_file(tensors, folder / f"{file}.safetensors")
        return folder

    branches = ["attn:1:16:4", "lightweight:default:16:4"]
    for config, message in (
        ({"encoder_branch_type": ["attn:1:16"]}, "'attn:1:16' is no branch; one is type:kernel:channels:heads"),
        ({"encoder_branch_type": ["lstm:1:32:4"]}, "encoder_branch_type.0.what is 'lstm'"),
        ({"encoder_branch_type": ["attn:1:16:4"]}, "branches of 16 = 16 channels do not make up a stream of 32"),
        ({"encoder_kernel_size_list": [3, 8]}, "a kernel of 8 taps has no middle"),
        ({"decoder_kernel_size_list": [3, 8, 9], "decoder_layers": 4}, "names 3 kernels for 4 layers"),
        ({"decoder_branch_type": [branches[0], "dynamic:3:16:4"], "conv_linear": False}, "that their code cannot run"),
        ({"adaptive_softmax_cutoff": "100,200"}, "adaptive_softmax_cutoff is '100,200'"),
        ({"decoder_embed_dim": 16, "decoder_branch_type": None}, "encoder width 32 and decoder width 16 must be equal"),
        ({"activation_fn": "swish"}, "activation_fn is 'swish'"),
        ({"encoder_layers": 9000, "encoder_kernel_size_list": [3]}, "claims 9002 layers"),
    ):
        with pytest.raises(WeightsError, match=message):
            replay(damaged(config))
    name = "encoder.layers.0.self_attn.branches.1.weight"
    with pytest.raises(WeightsError, match=f"{name} has the shape .4, 2, 3., needed is .4, 1, 3."):
        replay(damaged(**{name: torch.zeros(4, 2, 3)}))
    with pytest.raises(WeightsError, match="encoder.version .1. is not the constant"):
        replay(damaged(**{"encoder.version": torch.ones(1)}))
    with pytest.raises(WeightsError, match="has padding before other tokens"):
        replay(damaged(prev_output_tokens=torch.tensor([[2, 1, 4]] * 2)))
    with pytest.raises(WeightsError, match="has no tensor decoder.embed_tokens.weight"):
        replay(damaged(**{"decoder.embed_tokens.weight": None}))
