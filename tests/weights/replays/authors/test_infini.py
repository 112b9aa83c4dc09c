"""Infini-attention in lucidrains' layout: golden folders, and other sizes against its equations."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from heed.core.errors import WeightsError
from heed.weights import Folder, replay
from heed.weights.rename import export
from heed.weights.replays.authors import infini
from tests.weights.support import EXACT, GOLDEN, TOLERANCES, Options, Tensors, agree, whole_and_in_pieces, write

CASES = ("infini/lm_delta_rule", "infini/lm_linear_memory")


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    made, wanted = replay(GOLDEN / case), load_file(GOLDEN / case / "outputs.safetensors")
    ids = made.pop("generate.sequences")
    assert torch.equal(ids, wanted.pop("generate.sequences"))
    agree(made, wanted, 10 * TOLERANCES[case]["absolute"])


@pytest.mark.parametrize("case", CASES)
def test_what_is_loaded_is_exported(case: str) -> None:
    folder = Folder.open(GOLDEN / case)
    options = infini.InfiniTransformer.load(folder.config)
    written = export(infini.model(folder), options.names())
    assert written.keys() == folder.weights.keys()
    for name, tensor in folder.weights.items():
        exact = torch.allclose(written[name], tensor, rtol=1e-6, atol=0) if "freqs" in name else None
        assert exact or torch.equal(written[name], tensor), name


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_whole_and_in_pieces(case: str, seed: int) -> None:
    folder = Folder.open(GOLDEN / case)
    model, tokens = infini.model(folder), folder.input("input_ids")
    whole_and_in_pieces(model, tokens, seed, 10 * TOLERANCES[case]["absolute"])


# --- the reference, written out ---


def weights(c: Options) -> Tensors:
    draw = torch.Generator().manual_seed(0)
    inner, hidden = c["heads"] * c["dim_head"], int(c["ff_mult"] * c["dim"] * 2 / 3)
    shapes: dict[str, tuple[int, ...]] = {"token_emb.weight": (c["num_tokens"], c["dim"]), "norm.gamma": (c["dim"],)}
    shapes |= {"to_logits.weight": (c["num_tokens"], c["dim"]), "to_logits.bias": (c["num_tokens"],)}
    for layer in range(c["depth"]):
        shapes |= {f"layers.{layer}.{part}.norm.gamma": (c["dim"],) for part in (0, 1)}
        shapes[f"layers.{layer}.0.to_qkv.weight"] = (3 * inner, c["dim"])
        shapes[f"layers.{layer}.0.to_out.weight"] = (c["dim"], inner)
        shapes[f"layers.{layer}.0.fastweight_mem.head_gates"] = (c["heads"],)
        shapes[f"layers.{layer}.1.proj_in.weight"] = (2 * hidden, c["dim"])
        shapes[f"layers.{layer}.1.proj_in.bias"] = (2 * hidden,)
        shapes[f"layers.{layer}.1.proj_out.weight"] = (c["dim"], hidden)
        shapes[f"layers.{layer}.1.proj_out.bias"] = (c["dim"],)
    made = {name: torch.randn(shape, generator=draw, dtype=torch.float64) / 2 for name, shape in shapes.items()}
    speeds = 10000 ** (-torch.arange(0, c["dim_head"], 2, dtype=torch.float64) / c["dim_head"])
    return made | {f"layers.{layer}.0.rotary_emb.freqs": speeds.clone() for layer in range(c["depth"])}


def normed(w: Tensors, name: str, x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True) * math.sqrt(x.shape[-1]) * w[f"{name}.norm.gamma" if name else "norm.gamma"]


def turned(x: Tensor) -> Tensor:
    """Neighbouring channels, by their place in the segment. [..., T, d]"""
    length, size = x.shape[-2:]
    speed = 10000 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    phase = torch.polar(torch.ones(1, dtype=torch.float64), torch.arange(length)[:, None] * speed)
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * phase).flatten(-2)


Memory = tuple[Tensor, Tensor]


def attention(c: Options, w: Tensors, name: str, x: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
    rows, length, _ = x.shape
    qkv = (normed(w, name, x) @ w[f"{name}.to_qkv.weight"].T).chunk(3, -1)
    q, k, v = (part.view(rows, length, c["heads"], -1).transpose(1, 2) for part in qkv)
    score = turned(q) @ turned(k).mT / math.sqrt(c["dim_head"])
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    y = score.masked_fill(hidden, -math.inf).softmax(-1) @ v

    def recalled(feature: Tensor, held: Memory) -> Tensor:
        return feature @ held[0] / (feature @ held[1][..., None]).clamp(min=1e-10)

    feature = F.elu(k) + 1
    if memory is None:
        memory = torch.zeros_like(feature.mT @ v), torch.zeros_like(feature.sum(2))
    else:
        gate = torch.sigmoid(w[f"{name}.fastweight_mem.head_gates"])[:, None, None]
        y = gate * y + (1 - gate) * recalled(F.elu(q) + 1, memory)
        v = v - recalled(feature, memory) if c["use_mem_delta_rule"] else v
    y = y.transpose(1, 2).flatten(2) @ w[f"{name}.to_out.weight"].T
    return y, (memory[0] + feature.mT @ v, memory[1] + feature.sum(2))


def reference(c: Options, w: Tensors, tokens: Tensor) -> Tensors:
    made, logits = {}, []
    held: list[Memory | None] = [None] * c["depth"]
    for number, piece in enumerate(tokens.split(c["segment_length"], 1)):
        x = w["token_emb.weight"][piece]
        for layer in range(c["depth"]):
            name = f"layers.{layer}"
            y, memory = attention(c, w, f"{name}.0", x, held[layer])
            held[layer] = memory
            made[f"kv_mem.{number}.{layer}"], made[f"k_norm.{number}.{layer}"] = memory
            x = x + y
            value, gate = F.linear(
                normed(w, f"{name}.1", x), w[f"{name}.1.proj_in.weight"], w[f"{name}.1.proj_in.bias"]
            ).chunk(2, -1)
            x = x + F.linear(F.gelu(gate) * value, w[f"{name}.1.proj_out.weight"], w[f"{name}.1.proj_out.bias"])
        logits.append(F.linear(normed(w, "", x), w["to_logits.weight"], w["to_logits.bias"]))
    made["logits"] = torch.cat(logits, 1)
    if tokens.shape[1] > 1:
        made["loss_mean_ce"] = F.cross_entropy(made["logits"][:, :-1].mT, tokens[:, 1:])
    return made


BASE: Options = {"num_tokens": 13, "dim": 12, "depth": 2, "dim_head": 4, "heads": 3, "ff_mult": 4}
OTHERS: dict[str, tuple[Options, int]] = {
    "a short last segment": ({"segment_length": 5}, 12),
    "delta rule": ({"segment_length": 5, "use_mem_delta_rule": True}, 13),
    "segments of one": ({"segment_length": 1, "use_mem_delta_rule": True}, 4),
    "one segment": ({"segment_length": 30}, 7),
    "one token": ({"segment_length": 3}, 1),
    "one head, wide": ({"segment_length": 4, "heads": 1, "dim_head": 16, "ff_mult": 1.5, "depth": 1}, 9),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_options(tmp_path: Path, case: str) -> None:
    options, length = OTHERS[case]
    c = {"use_mem_delta_rule": False, **BASE, **options}
    w, tokens = weights(c), torch.randint(13, (2, length), generator=torch.Generator().manual_seed(1))
    folder = write(tmp_path, {"model_type": "infini", **c}, w, {"input_ids": tokens}, reference(c, w, tokens))
    made, wanted = replay(folder), load_file(folder / "outputs.safetensors")
    for name in [name for name in wanted if name.startswith(("kv_mem", "k_norm"))]:
        assert torch.allclose(made.pop(name), wanted.pop(name), rtol=1e-12, atol=EXACT), name
    agree(made, wanted, 10 * EXACT)


def test_a_continuation_goes_on_from_segment_to_segment(tmp_path: Path) -> None:
    """Greedy tokens after the first three, each found by reading everything again."""
    c = {"use_mem_delta_rule": True, **BASE, "segment_length": 4}
    w, tokens = weights(c), torch.randint(13, (2, 9), generator=torch.Generator().manual_seed(1))
    sequence, steps = tokens[:, :3], []
    for _ in range(7):
        steps.append(reference(c, w, sequence)["logits"][:, -1])
        sequence = torch.cat((sequence, steps[-1].argmax(-1, keepdim=True)), 1)
    outputs = {"generate.sequences": sequence, "generate.step_logits": torch.stack(steps, 1)}
    made = replay(write(tmp_path, {"model_type": "infini", **c}, w, {"input_ids": tokens}, outputs))
    assert torch.equal(made["generate.sequences"], sequence)
    assert torch.allclose(made["generate.step_logits"], outputs["generate.step_logits"], rtol=0, atol=10 * EXACT)


def test_without_outputs_everything_is_made(tmp_path: Path) -> None:
    c = {**BASE, "segment_length": 4}
    made = replay(write(tmp_path, {"model_type": "infini", **c}, weights(c), {"input_ids": torch.zeros(1, 6).long()}))
    layers = {f"{kind}.{segment}.{layer}" for kind in ("kv_mem", "k_norm") for segment in (0, 1) for layer in (0, 1)}
    assert made.keys() == {"logits", "loss_mean_ce", *layers}


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    def damaged(config: Options | None = None, /, **changes: Tensor | None) -> Path:
        folder = tmp_path / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(GOLDEN / CASES[0], folder)
        held = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**held, **(config or {})}))
        for file in ("model", "inputs"):
            tensors = load_file(folder / f"{file}.safetensors")
            for name, tensor in changes.items():
                if name in tensors and tensor is not None:
                    tensors[name] = tensor
                elif tensor is None:
                    tensors.pop(name, None)
            save_file(tensors, folder / f"{file}.safetensors")
        return folder

    with pytest.raises(WeightsError, match="segment_length is 0"):
        replay(damaged({"segment_length": 0}))
    with pytest.raises(WeightsError, match="channels turn two by two"):
        replay(damaged({"dim_head": 7}))
    with pytest.raises(WeightsError, match="claims 9000 layers"):
        replay(damaged({"depth": 9000}))
    with pytest.raises(WeightsError, match="head_gates .* is missing"):
        replay(damaged(**{"layers.1.0.fastweight_mem.head_gates": None}))
    with pytest.raises(WeightsError, match="freqs .* is not the constant"):
        replay(damaged(**{"layers.0.0.rotary_emb.freqs": torch.ones(4)}))
    with pytest.raises(WeightsError, match="must be ids of at least one token"):
        replay(damaged(input_ids=torch.zeros(2, 0).long()))
    with pytest.raises(WeightsError, match="has a prompt of 11; needed is one of 1 to 5 tokens"):
        replay(damaged(input_ids=torch.zeros(2, 5).long()))
