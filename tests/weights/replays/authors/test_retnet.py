"""RetNet in torchscale's layout: the golden folder in each of its forms, and other options against loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.core.spec import price
from heed.core.state import nbytes
from heed.parts.recurrence.divisors import Chunkwise, DivisorConfig, Rooted, Summed
from heed.weights import AUTHORS, Folder, replay
from heed.weights.rename import export
from heed.weights.replays.authors import retnet
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

CASE = "retnet/lm_three_forms"
FORMS: tuple[DivisorConfig, ...] = (Rooted(), Summed(), Chunkwise(chunk=4))


def test_golden() -> None:
    made, wanted = replay(GOLDEN / CASE), load_file(GOLDEN / CASE / "outputs.safetensors")
    assert torch.equal(made.pop("generate.sequences"), wanted.pop("generate.sequences"))
    agree(made, wanted, 10 * TOLERANCES[CASE]["absolute"])


def test_the_forms_are_told_apart() -> None:
    """Each is nearer to its own recorded logits than the others are."""
    folder, wanted = Folder.open(GOLDEN / CASE), load_file(GOLDEN / CASE / "outputs.safetensors")
    tokens = folder.input("prev_output_tokens")
    names = ("logits_recurrent", "logits_parallel", "logits_chunkwise")
    with torch.no_grad():
        made = [retnet.model(folder, form)(tokens, Where.run(*tokens.shape))[0] for form in FORMS]
    for own, name in enumerate(names):
        gaps = [float((scores - wanted[name]).abs().max()) for scores in made]
        assert min(range(3), key=gaps.__getitem__) == own


def test_what_is_loaded_is_exported() -> None:
    folder = Folder.open(GOLDEN / CASE)
    written = export(AUTHORS["retnet"](folder), retnet.RetNetConfig.load(folder.config).names())
    assert written.keys() == folder.weights.keys()
    for name, tensor in folder.weights.items():
        assert torch.allclose(written[name], tensor, rtol=1e-6 if "rel_pos" in name else 0, atol=0), name


def test_a_loaded_model_writes_with_a_memory_that_does_not_grow() -> None:
    model = retnet.model(Folder.open(GOLDEN / CASE))
    assert price(model.spec(), 1) == price(model.spec(), 10**6) == 2 * 4 * (4 * 8 * 16 + 4)
    _, state = model(torch.zeros(2, 30, dtype=torch.long), Where.run(2, 30), model.start(2))
    assert nbytes(state) == 2 * price(model.spec(), 30)


@pytest.mark.parametrize("form", FORMS, ids=repr)
@pytest.mark.parametrize("seed", range(2))
def test_whole_and_in_pieces(form: DivisorConfig, seed: int) -> None:
    folder = Folder.open(GOLDEN / CASE)
    model, tokens = retnet.model(folder, form), folder.input("prev_output_tokens")
    whole_and_in_pieces(model, tokens, seed, 10 * TOLERANCES[CASE]["absolute"])


# --- the reference, written out ---


def weights(c: Options) -> Tensors:
    draw = torch.Generator().manual_seed(0)
    width, values, hidden = (c[f"decoder_{name}embed_dim"] for name in ("", "value_", "ffn_"))
    shapes: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (c["vocab_size"], width)}
    if not c["share_decoder_input_output_embed"]:
        shapes["output_projection.weight"] = (c["vocab_size"], width)
    shapes |= {"layernorm_embedding.weight": (width,)} if c["layernorm_embedding"] else {}
    shapes |= {"layer_norm.weight": (width,)} if c["decoder_normalize_before"] else {}
    for layer in range(c["decoder_layers"]):
        sizes = {
            "q_proj": (width, width),
            "k_proj": (width, width),
            "v_proj": (values, width),
            "g_proj": (values, width),
        }
        sizes |= {"out_proj": (width, values)}
        shapes |= {f"layers.{layer}.retention.{name}.weight": size for name, size in sizes.items()}
        sizes = {"fc1": (hidden, width), "gate": (hidden, width), "fc2": (width, hidden)}
        shapes |= {f"layers.{layer}.ffn.{name}.weight": size for name, size in sizes.items()}
        shapes |= {f"layers.{layer}.{name}_layer_norm.weight": (width,) for name in ("retention", "final")}
    made = {name: torch.randn(shape, generator=draw, dtype=torch.float64) / 3 for name, shape in shapes.items()}
    half, heads = width // c["decoder_retention_heads"] // 2, c["decoder_retention_heads"]
    speed = [10000 ** -(i / max(half - 1, 1)) for i in range(half) for _ in range(2)]
    made["retnet_rel_pos.angle"] = torch.tensor(speed, dtype=torch.float64)
    made["retnet_rel_pos.decay"] = torch.tensor(
        [math.log(1 - 2 ** (-5 - h)) for h in range(heads)], dtype=torch.float64
    )
    return made


def rms(x: Tensor, eps: float, gain: Tensor | float = 1.0) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gain


def turned(x: Tensor, speed: Tensor) -> Tensor:
    """[T, d]"""
    angle = torch.arange(len(x))[:, None] * speed
    swapped = torch.stack((-x[:, 1::2], x[:, ::2]), -1).flatten(1)
    return x * angle.cos() + swapped * angle.sin()


def parallel(q: Tensor, k: Tensor, v: Tensor, gamma: float, chunk: int) -> Tensor:
    """One row and head. [T, *]"""
    rows = []
    for i in range(len(q)):
        decay = torch.tensor([gamma ** (i - j) for j in range(i + 1)], dtype=q.dtype)
        score = (k[: i + 1] @ q[i]) * decay / decay.sum().sqrt()
        rows.append((score / score.abs().sum().clamp(1, 5e4)) @ v[: i + 1])
    return torch.stack(rows)


def recurrent(q: Tensor, k: Tensor, v: Tensor, gamma: float, chunk: int) -> Tensor:
    rows, (held, scale) = [], (torch.outer(v[0], k[0]), 1.0)
    for i in range(len(q)):
        if i:
            before, scale = scale, gamma * scale + 1
            held = held * gamma * math.sqrt(before / scale) + torch.outer(v[i], k[i]) / math.sqrt(scale)
        rows.append(held @ q[i])
    return torch.stack(rows)


def chunkwise(q: Tensor, k: Tensor, v: Tensor, gamma: float, chunk: int) -> Tensor:
    length = len(q)
    q, k, v = (F.pad(x, (0, 0, 0, -length % chunk)) for x in (q, k, v))
    whole = sum(gamma**j for j in range(chunk))
    held, rows = torch.zeros(k.shape[1], v.shape[1], dtype=q.dtype), []
    for begin in range(0, len(q), chunk):
        outer = held.abs().sum(0).max().clamp(min=1) if begin else torch.ones(()).double()
        for i in range(chunk):
            root = math.sqrt(sum(gamma**j for j in range(i + 1)))
            decay = torch.tensor([gamma ** (i - j) for j in range(i + 1)], dtype=q.dtype)
            score = (k[begin : begin + i + 1] @ q[begin + i]) * decay / root
            cross = (q[begin + i] * gamma ** (i + 1) * whole / root) @ held
            divisor = torch.maximum(score.abs().sum().clamp(min=1), outer)
            rows.append((score @ v[begin : begin + i + 1] + cross) / divisor)
        fresh = (torch.outer(k[begin + j], v[begin + j]) * gamma ** (chunk - 1 - j) / whole for j in range(chunk))
        held = gamma**chunk * held + sum(fresh, torch.zeros_like(held))
    return torch.stack(rows)[:length]


def retention(c: Options, w: Tensors, name: str, x: Tensor, form: str) -> Tensor:
    """[B, T, width]"""
    heads, eps = c["decoder_retention_heads"], c["layernorm_eps"]
    q, k, v, g = (x @ w[f"{name}.{part}_proj.weight"].T for part in "qkvg")
    rows, forms = [], {"parallel": parallel, "recurrent": recurrent, "chunkwise": chunkwise}
    for row in range(len(x)):
        parts = zip(*(part[row].chunk(heads, -1) for part in (q, k, v)), strict=True)
        read = []
        for h, (a, b, values) in enumerate(parts):
            asked, key = (turned(part, w["retnet_rel_pos.angle"]) for part in (a, b * b.shape[-1] ** -0.5))
            read.append(rms(forms[form](asked, key, values, 1 - 2.0 ** (-5 - h), c["recurrent_chunk_size"]), eps))
        rows.append(torch.cat(read, -1))
    return (F.silu(g) * torch.stack(rows)) @ w[f"{name}.out_proj.weight"].T


def reference(c: Options, w: Tensors, tokens: Tensor, form: str) -> Tensor:
    eps, alpha = c["layernorm_eps"], (2 * c["decoder_layers"]) ** 0.25 if c["deepnorm"] else 1.0
    acts: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "swish": F.silu, "relu": F.relu}
    act = acts[c["activation_fn"]]
    x = w["embed_tokens.weight"][tokens] * (1.0 if c["no_scale_embedding"] else math.sqrt(c["decoder_embed_dim"]))
    x = rms(x, eps, w["layernorm_embedding.weight"]) if c["layernorm_embedding"] else x
    for layer in range(c["decoder_layers"]):
        name = f"layers.{layer}"

        def fed(x: Tensor, name: str = name) -> Tensor:
            up, gate = (x @ w[f"{name}.ffn.{part}.weight"].T for part in ("fc1", "gate"))
            return (act(up) * gate) @ w[f"{name}.ffn.fc2.weight"].T

        def mixed(x: Tensor, name: str = name) -> Tensor:
            return retention(c, w, f"{name}.retention", x, form)

        parts: tuple[tuple[Callable[[Tensor], Tensor], str], ...] = ((mixed, "retention"), (fed, "final"))
        for part, norm in parts:
            gain = w[f"{name}.{norm}_layer_norm.weight"]
            before = c["decoder_normalize_before"]
            x = alpha * x + part(rms(x, eps, gain) if before else x)
            x = x if before else rms(x, eps, gain)
    x = rms(x, eps, w["layer_norm.weight"]) if c["decoder_normalize_before"] else x
    return x @ w["embed_tokens.weight" if c["share_decoder_input_output_embed"] else "output_projection.weight"].T


BASE: Options = {
    "decoder_embed_dim": 12,
    "decoder_value_embed_dim": 15,
    "decoder_retention_heads": 3,
    "decoder_ffn_embed_dim": 10,
    "decoder_layers": 2,
    "decoder_normalize_before": True,
    "activation_fn": "gelu",
    "no_scale_embedding": True,
    "layernorm_embedding": False,
    "layernorm_eps": 1e-4,
    "deepnorm": False,
    "share_decoder_input_output_embed": False,
    "recurrent_chunk_size": 4,
    "vocab_size": 11,
}
OTHERS: dict[str, Options] = {
    "plain": {},
    "deepnorm": {"deepnorm": True, "decoder_normalize_before": False, "subln": False},
    "deepnorm beside a norm before": {"deepnorm": True},
    "norms after": {"decoder_normalize_before": False, "activation_fn": "swish"},
    "scaled, normed embeddings": {"no_scale_embedding": False, "layernorm_embedding": True, "activation_fn": "relu"},
    "one table": {"share_decoder_input_output_embed": True},
    "one head, chunks of one": {"decoder_retention_heads": 1, "recurrent_chunk_size": 1},
    "heads of two channels": {"decoder_retention_heads": 6, "decoder_value_embed_dim": 6, "recurrent_chunk_size": 3},
    "one chunk, one layer": {"recurrent_chunk_size": 20, "decoder_layers": 1, "layernorm_eps": 1e-6},
    "options that do nothing": {"xpos_rel_pos": True, "rel_pos_buckets": 32, "max_rel_pos": 128, "subln": True},
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_options(tmp_path: Path, case: str) -> None:
    c = {**BASE, **OTHERS[case]}
    w, tokens = weights(c), torch.randint(11, (2, 10), generator=torch.Generator().manual_seed(1))
    wanted = {f"logits_{form}": reference(c, w, tokens, form) for form in ("parallel", "recurrent", "chunkwise")}
    made = replay(write(tmp_path, {"model_type": "retnet", **c}, w, {"prev_output_tokens": tokens}, wanted))
    agree(made, wanted, 100 * EXACT)  # a norm with a small eps makes small numbers large


@pytest.mark.parametrize("chunkwise_recurrent", [False, True])
def test_a_call_and_a_continuation_have_the_form_of_the_config(tmp_path: Path, chunkwise_recurrent: bool) -> None:
    c = {**BASE, "chunkwise_recurrent": chunkwise_recurrent}
    w, tokens = weights(c), torch.randint(11, (2, 6), generator=torch.Generator().manual_seed(1))
    form, sequence, steps = "chunkwise" if chunkwise_recurrent else "parallel", tokens[:, :3], []
    for _ in range(4):
        steps.append(reference(c, w, sequence, form)[:, -1])
        sequence = torch.cat((sequence, steps[-1].argmax(-1, keepdim=True)), 1)
    wanted = {"logits": reference(c, w, tokens, form), "generate.step_logits": torch.stack(steps, 1)}
    wanted["generate.sequences"] = sequence
    made = replay(write(tmp_path, {"model_type": "retnet", **c}, w, {"prev_output_tokens": tokens}, wanted))
    assert torch.equal(made.pop("generate.sequences"), wanted.pop("generate.sequences"))
    agree(made, wanted, 100 * EXACT)


def test_without_outputs_everything_is_made(tmp_path: Path) -> None:
    tokens = torch.zeros(1, 6, dtype=torch.long)
    made = replay(write(tmp_path, {"model_type": "retnet", **BASE}, weights(BASE), {"prev_output_tokens": tokens}))
    states = {
        f"state_{at}.{layer}.{kind}"
        for at in ("mid", "end")
        for layer in (0, 1)
        for kind in ("prev_key_value", "scale")
    }
    scores = {f"logits{form}" for form in ("", "_parallel", "_recurrent", "_chunkwise")}
    assert made.keys() == states | scores | {
        "sin",
        "cos",
        "decay_mask",
        *(f"inner_states.{depth}" for depth in range(3)),
    }


def test_what_heed_does_not_hold_is_refused(tmp_path: Path) -> None:
    refused: tuple[tuple[Options, str], ...] = (
        ({"moe_freq": 2}, "moe_freq is 2"),
        ({"multiway": True}, "multiway is True"),
        ({"no_output_layer": True}, "no_output_layer is True"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"activation_fn": "tanh"}, "activation_fn is 'tanh'"),
        ({"decoder_retention_heads": 5}, "decoder_value_embed_dim 64 does not divide into 5"),
        ({"decoder_retention_heads": 32, "decoder_value_embed_dim": 64}, "channels turn two by two"),
        ({"decoder_layers": 9000}, "claims 9000 layers"),
        ({"recurrent_chunk_size": 0}, "recurrent_chunk_size is 0"),
    )
    for config, message in refused:
        with pytest.raises(WeightsError, match=message):
            replay(damaged(GOLDEN / CASE, tmp_path / "copy", config))
    with pytest.raises(WeightsError, match="angle .* is not the constant"):
        replay(damaged(GOLDEN / CASE, tmp_path / "copy", None, **{"retnet_rel_pos.angle": torch.ones(8)}))
    with pytest.raises(WeightsError, match="g_proj.weight .* is missing"):
        replay(damaged(GOLDEN / CASE, tmp_path / "copy", **{"layers.1.retention.g_proj.weight": None}))
    with pytest.raises(WeightsError, match="must be ids of at least one token"):
        replay(damaged(GOLDEN / CASE, tmp_path / "copy", prev_output_tokens=torch.zeros(2, 0).long()))
    with pytest.raises(WeightsError, match="has a prompt of 5; needed is one of 1 to 3 tokens"):
        replay(damaged(GOLDEN / CASE, tmp_path / "copy", prev_output_tokens=torch.zeros(2, 3).long()))
