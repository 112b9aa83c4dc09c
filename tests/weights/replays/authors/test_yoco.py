"""YOCO in its authors' layout: golden folders, and other sizes and options against loops."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from heed.core.errors import WeightsError
from heed.weights import AUTHORS, Folder, replay
from heed.weights.rename import export
from heed.weights.replays.authors import yoco
from tests.weights.support import (
    EXACT,
    GOLDEN,
    TOLERANCES,
    Options,
    Tensors,
    agree,
    damaged,
    whole_and_in_pieces,
    write,
)

CASES = ("yoco/gated_retention", "yoco/sliding_window")
ALONE = "yoco/gated_retention_op"


@pytest.mark.parametrize("case", [*CASES, ALONE])
def test_golden(case: str) -> None:
    made, wanted = replay(GOLDEN / case), load_file(GOLDEN / case / "outputs.safetensors")
    for name in [name for name in wanted if name.endswith("sequences")]:
        assert torch.equal(made.pop(name), wanted.pop(name))
    agree(made, wanted, 10 * TOLERANCES[case]["absolute"])


@pytest.mark.parametrize("case", CASES)
def test_what_is_loaded_is_exported(case: str) -> None:
    folder = Folder.open(GOLDEN / case)
    written = export(AUTHORS["yoco"](folder), yoco.YOCOArgs.load(folder.config).names())
    assert written.keys() == folder.weights.keys()
    assert all(torch.equal(written[name], tensor) for name, tensor in folder.weights.items())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(2))
def test_whole_and_in_pieces(case: str, seed: int) -> None:
    folder = Folder.open(GOLDEN / case)
    model, tokens = yoco.model(folder), folder.input("input_ids")
    whole_and_in_pieces(model, tokens, seed, 10 * TOLERANCES[case]["absolute"])


# --- the reference, written out ---


def weights(c: Options) -> Tensors:
    draw = torch.Generator().manual_seed(0)
    width, shared = c["dim"], c["dim"] // c["n_attn_heads"] * c["n_attn_kv_heads"]
    shapes: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (c["vocab_size"], width),
        "layer_norm.weight": (width,),
    }
    if not c["share_input_output_embed"]:
        shapes["output_projection.weight"] = (c["vocab_size"], width)
    shapes |= {"cross_decoder.k_proj.weight": (shared, width), "cross_decoder.v_proj.weight": (shared, width)}
    shapes["cross_decoder.kv_layer_norm.weight"] = (width,)
    own = ("q", "k", "v", "out") if c["sliding_window"] else ("q", "k", "v", "g", "out")
    for layer in range(c["n_layers"] // 2):
        for name, parts in ((f"self_decoder.layers.{layer}", own), (f"cross_decoder.layers.{layer}", ("q", "out"))):
            shapes |= {f"{name}.mixer.{part}_proj.weight": (width, width) for part in parts}
            shapes |= {f"{name}.ffn.{part}.weight": (c["hidden_dim"], width) for part in ("fc1", "gate")}
            shapes |= {f"{name}.{norm}_layer_norm.weight": (width,) for norm in ("mixer", "final")}
            shapes[f"{name}.ffn.fc2.weight"] = (width, c["hidden_dim"])
        if not c["sliding_window"]:
            shapes[f"self_decoder.layers.{layer}.mixer.gt_proj.weight"] = (c["n_self_heads"], width)
    return {name: torch.randn(shape, generator=draw, dtype=torch.float64) / 3 for name, shape in shapes.items()}


def rms(x: Tensor, eps: float, gain: Tensor | float = 1.0) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gain


def heads_of(c: Options, x: Tensor, heads: int, *, turn: bool) -> Tensor:
    """[B, T, width] -> [B, H, T, d], neighbouring channels turned by their place."""
    x = x.unflatten(-1, (heads, -1)).transpose(1, 2)
    if not turn:
        return x
    half = x.shape[-1] // 2
    speed = torch.tensor([c["rope_theta"] ** -(i / max(half - 1, 1)) for i in range(half)], dtype=torch.float64)
    angle = (torch.arange(x.shape[2])[:, None] * speed).repeat_interleave(2, -1)
    return x * angle.cos() + torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2) * angle.sin()


def softmaxed(q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
    """One token after the other. [B, H, T, d]"""
    rows = []
    for i in range(q.shape[2]):
        first = 0 if window is None else max(0, i - window + 1)
        score = (k[:, :, first : i + 1] @ q[:, :, i, :, None])[..., 0] / math.sqrt(q.shape[-1])
        rows.append((score.softmax(-1)[:, :, None] @ v[:, :, first : i + 1])[:, :, 0])
    return torch.stack(rows, 2)


def lower(c: Options, w: Tensors, name: str, x: Tensor) -> tuple[Tensor, Tensor | None]:
    parts = ("q", "k", "v") if c["sliding_window"] else ("q", "k", "v", "g", "gt")
    made = {part: x @ w[f"{name}.{part}_proj.weight"].T for part in parts}
    q, k, v = (heads_of(c, made[part], c["n_self_heads"], turn=part != "v") for part in "qkv")
    if c["sliding_window"]:
        y = softmaxed(q, k, v, c["sliding_window"]).transpose(1, 2).flatten(2)
        return y @ w[f"{name}.out_proj.weight"].T, None
    held, rows = torch.zeros(*q.shape[:2], q.shape[-1], v.shape[-1], dtype=x.dtype), []
    for t in range(x.shape[1]):
        gamma = torch.sigmoid(made["gt"][:, t]) ** (1 / c["gate_logit_normalizer"])  # [B, H]
        fresh = k[:, :, t, :, None] * v[:, :, t, None] / math.sqrt(q.shape[-1])
        held = gamma[..., None, None] * held + fresh
        rows.append((q[:, :, t, None] @ held)[:, :, 0])
    read = rms(torch.stack(rows, 1), c["norm_eps"]).flatten(2)
    return (F.silu(made["g"]) * read) @ w[f"{name}.out_proj.weight"].T, held


def fed(c: Options, w: Tensors, name: str, x: Tensor) -> Tensor:
    z = rms(x, c["norm_eps"], w[f"{name}.final_layer_norm.weight"])
    up, gate = (z @ w[f"{name}.ffn.{part}.weight"].T for part in ("fc1", "gate"))
    return x + (F.silu(up) * gate) @ w[f"{name}.ffn.fc2.weight"].T


def reference(c: Options, w: Tensors, tokens: Tensor) -> Tensors:
    made, x = dict[str, Tensor](), math.sqrt(c["dim"]) * w["embed_tokens.weight"][tokens]
    for layer in range(c["n_layers"] // 2):
        name = f"self_decoder.layers.{layer}"
        y, held = lower(c, w, f"{name}.mixer", rms(x, c["norm_eps"], w[f"{name}.mixer_layer_norm.weight"]))
        x = fed(c, w, name, x + y)
        made |= {} if held is None else {f"final_state.{layer}": held}
    made["self_decoder_out"] = x
    z = rms(x, c["norm_eps"], w["cross_decoder.kv_layer_norm.weight"])
    k, v = (
        heads_of(c, z @ w[f"cross_decoder.{part}_proj.weight"].T, c["n_attn_kv_heads"], turn=part == "k")
        for part in "kv"
    )
    made["cross_key_cache"], made["cross_value_cache"] = (part.transpose(1, 2) for part in (k, v))
    groups = c["n_attn_heads"] // c["n_attn_kv_heads"]
    k, v = (part.repeat_interleave(groups, 1) for part in (k, v))
    for layer in range(c["n_layers"] // 2):
        name = f"cross_decoder.layers.{layer}"
        z = rms(x, c["norm_eps"], w[f"{name}.mixer_layer_norm.weight"])
        q = heads_of(c, z @ w[f"{name}.mixer.q_proj.weight"].T, c["n_attn_heads"], turn=True)
        y = softmaxed(q, k, v, None).transpose(1, 2).flatten(2) @ w[f"{name}.mixer.out_proj.weight"].T
        x = fed(c, w, name, x + y)
    made["cross_decoder_out"] = x
    head = w["embed_tokens.weight" if c["share_input_output_embed"] else "output_projection.weight"]
    made["logits"] = rms(x, c["norm_eps"], w["layer_norm.weight"]) @ head.T
    return made | {"logits_incremental": made["logits"].clone()}


BASE: Options = {
    "dim": 24,
    "n_layers": 4,
    "hidden_dim": 10,
    "n_self_heads": 3,
    "n_attn_heads": 4,
    "n_attn_kv_heads": 4,
    "vocab_size": 11,
    "rope_theta": 10000.0,
    "norm_eps": 1e-4,
    "sliding_window": None,
    "gate_logit_normalizer": 16,
    "share_input_output_embed": False,
}
OTHERS: dict[str, Options] = {
    "plain": {},
    "one key head": {"n_attn_kv_heads": 1, "rope_theta": 500.0},
    "two key heads, one table": {"n_attn_kv_heads": 2, "share_input_output_embed": True},
    "a window of one": {"sliding_window": 1, "n_self_heads": 2},
    "a window of three": {"sliding_window": 3, "n_attn_kv_heads": 2},
    "a window beyond the text": {"sliding_window": 99, "share_input_output_embed": True},
    "five layers are four": {"n_layers": 5, "norm_eps": 1e-6},
    "two layers, fast decay": {"n_layers": 2, "gate_logit_normalizer": 1, "n_self_heads": 1},
    "heads of two channels": {"n_self_heads": 12, "n_attn_heads": 12, "n_attn_kv_heads": 3},
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_options(tmp_path: Path, case: str) -> None:
    c = {**BASE, **OTHERS[case]}
    w, tokens = weights(c), torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(1))
    wanted = reference(c, w, tokens)
    half = {name: state for name, state in reference(c, w, tokens[:, :4]).items() if "state" in name}
    wanted |= {name.replace("final", "prefill"): state for name, state in half.items()}
    made = replay(write(tmp_path, {"model_type": "yoco", **c}, w, {"input_ids": tokens}, wanted))
    agree(made, wanted, 100 * EXACT)  # a norm with a small eps makes small numbers large


def test_a_continuation(tmp_path: Path) -> None:
    """Greedy tokens after the first three, each found by reading everything again."""
    c = {**BASE, "n_attn_kv_heads": 2}
    w, tokens = weights(c), torch.randint(11, (2, 5), generator=torch.Generator().manual_seed(1))
    sequence, steps = tokens[:, :3], []
    for _ in range(6):
        steps.append(reference(c, w, sequence)["logits"][:, -1])
        sequence = torch.cat((sequence, steps[-1].argmax(-1, keepdim=True)), 1)
    outputs = {"generate.sequences": sequence, "generate.step_logits": torch.stack(steps, 1)}
    made = replay(write(tmp_path, {"model_type": "yoco", **c}, w, {"input_ids": tokens}, outputs))
    assert torch.equal(made["generate.sequences"], sequence)
    assert torch.allclose(made["generate.step_logits"], outputs["generate.step_logits"], rtol=0, atol=100 * EXACT)


@pytest.mark.parametrize("length", [1, 70])
def test_the_gated_retention_alone(tmp_path: Path, length: int) -> None:
    draw = torch.Generator().manual_seed(0)
    shapes = {"q": (2, 3, length, 4), "k": (2, 3, length, 4), "v": (2, 3, length, 5), "log_decay": (2, 3, length)}
    inputs = {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in shapes.items()}
    inputs["log_decay"] = -inputs["log_decay"].square()
    held, rows = torch.zeros(2, 3, 4, 5, dtype=torch.float64), []
    for t in range(length):
        fresh = inputs["k"][:, :, t, :, None] * inputs["v"][:, :, t, None] / 2
        held = inputs["log_decay"][:, :, t].exp()[..., None, None] * held + fresh
        rows.append((inputs["q"][:, :, t, None] @ held)[:, :, 0])
    wanted = {form: torch.stack(rows, 2) for form in ("parallel", "chunk", "recurrent")} | {"final_state": held}
    made = replay(write(tmp_path, {"model_type": "yoco", "chunk_size": 2}, {}, inputs, wanted))
    agree(made, wanted, 10 * EXACT)


def test_what_heed_does_not_hold_is_refused(tmp_path: Path) -> None:
    refused: tuple[tuple[Options, str], ...] = (
        ({"n_layers": 1}, "n_layers is 1; needed are at least 2"),
        ({"model_parallel_size": 2}, "model_parallel_size is 2"),
        ({"n_attn_kv_heads": 3}, "4 heads cannot share kv_heads = 3 evenly"),
        ({"n_self_heads": 5}, "width 32 does not divide into 5 heads"),
        ({"n_self_heads": 32}, "channels turn two by two"),
        ({"sliding_window": 0}, "sliding_window is 0"),
        ({"sliding_window": 4}, "gt_proj.weight .* is unknown"),
        ({"gate_logit_normalizer": 0}, "gate_logit_normalizer is 0"),
        ({"n_layers": 9000}, "claims 4500 layers"),
    )
    for config, message in refused:
        with pytest.raises(WeightsError, match=message):
            replay(damaged(GOLDEN / CASES[0], tmp_path / "copy", config))
    with pytest.raises(WeightsError, match="kv_layer_norm.weight .* is missing"):
        replay(damaged(GOLDEN / CASES[0], tmp_path / "copy", **{"cross_decoder.kv_layer_norm.weight": None}))
    with pytest.raises(WeightsError, match="must be ids of at least one token"):
        replay(damaged(GOLDEN / CASES[0], tmp_path / "copy", input_ids=torch.zeros(2, 0).long()))
    with pytest.raises(WeightsError, match="log_decay is above 0"):
        replay(damaged(GOLDEN / ALONE, tmp_path / "copy", log_decay=torch.ones(2, 2, 16)))
    with pytest.raises(WeightsError, match="log_decay \\[rows, heads, tokens\\]; given are"):
        replay(damaged(GOLDEN / ALONE, tmp_path / "copy", log_decay=torch.zeros(2, 16)))
