"""lucidrains' LinformerLM: the golden folder, and its options against the equations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from heed.core.errors import WeightsError
from heed.weights import AUTHORS, Folder, replay
from heed.weights.rename import export
from heed.weights.replays.authors import linformer
from tests.weights.support import EXACT, GOLDEN, TOLERANCES, Options, Tensors, agree, linear, normed, write

CASE = "linformer/lm"
PLAIN: Options = {"model_type": "linformer", "num_tokens": 13, "dim": 12, "seq_len": 9, "depth": 2, "k": 4, "heads": 3}


def test_golden() -> None:
    wanted = load_file(GOLDEN / CASE / "outputs.safetensors")
    agree(replay(GOLDEN / CASE), wanted, 10 * TOLERANCES[CASE]["absolute"])


def test_the_way_back() -> None:
    folder = Folder.open(GOLDEN / CASE)
    model = AUTHORS["linformer"](folder)
    written = export(model, linformer.LinformerLM.load(folder.config).names)
    assert written.keys() == folder.weights.keys()
    assert all(torch.equal(written[name], folder.weights[name]) for name in written)
    assert not model.streams


def names(config: Options, layer: int) -> tuple[str, str]:
    if config.get("reversible"):
        return f"linformer.net.blocks.{layer}.f.net", f"linformer.net.blocks.{layer}.g.net"
    return f"linformer.net.layers.{layer}.0", f"linformer.net.layers.{layer}.1"


def weights(config: Options) -> Tensors:
    draw = torch.Generator().manual_seed(0)

    def some(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64) * shape[-1] ** -0.5

    width, heads = config["dim"], config["heads"]
    size = config.get("dim_head") or width // heads
    inner = size if config.get("one_kv_head") else heads * size
    made = {"token_emb.weight": some(config["num_tokens"], width), "pos_emb.weight": some(config["seq_len"], width)}
    made |= {"to_logits.weight": some(config["num_tokens"], width), "to_logits.bias": some(config["num_tokens"])}
    for layer in range(config["depth"]):
        first, second = names(config, layer)
        for kind in ("k",) if config.get("share_kv") else ("k", "v"):
            made[f"{first}.fn.to_{kind}.weight"] = some(inner, width)
            made[f"{first}.fn.proj_{kind}"] = some(config["seq_len"], config["k"])
        made |= {f"{first}.fn.to_q.weight": some(heads * size, width), f"{first}.fn.to_out.bias": some(width)}
        made[f"{first}.fn.to_out.weight"] = some(width, heads * size)
        for name, out, into in ((f"{second}.fn.w1", 4 * width, width), (f"{second}.fn.w2", width, 4 * width)):
            made |= {f"{name}.weight": some(out, into), f"{name}.bias": some(out)}
        for name in (first, second):
            made |= {f"{name}.norm.weight": 1 + some(width), f"{name}.norm.bias": some(width)}
    return made


def mixed(config: Options, w: Tensors, name: str, x: Tensor) -> Tensor:
    heads, tokens = config["heads"], x.shape[1]
    k = x @ w[f"{name}.to_k.weight"].T
    v = k if config.get("share_kv") else x @ w[f"{name}.to_v.weight"].T
    one, other = w[f"{name}.proj_k"], w[f"{name}.proj_k" if config.get("share_kv") else f"{name}.proj_v"]
    k, v = one[:tokens].T @ k, other[:tokens].T @ v  # [B, k, inner]
    parts = []
    for h, q in enumerate((x @ w[f"{name}.to_q.weight"].T).chunk(heads, -1)):
        size = q.shape[-1]
        here = slice(0, size) if config.get("one_kv_head") else slice(size * h, size * h + size)
        parts.append((q @ k[..., here].mT / size**0.5).softmax(-1) @ v[..., here])
    return linear(w, f"{name}.to_out", torch.cat(parts, -1))


def by_hand(config: Options, w: Tensors, tokens: Tensor) -> Tensor:
    x = w["token_emb.weight"][tokens] + w["pos_emb.weight"][: tokens.shape[1]]
    one, other = x, x
    for layer in range(config["depth"]):
        first, second = names(config, layer)

        def attended(x: Tensor, name: str = first) -> Tensor:
            return mixed(config, w, f"{name}.fn", normed(w, f"{name}.norm", x, 1e-5))

        def fed(x: Tensor, name: str = second) -> Tensor:
            inner = torch.nn.functional.gelu(linear(w, f"{name}.fn.w1", normed(w, f"{name}.norm", x, 1e-5)))
            return linear(w, f"{name}.fn.w2", inner)

        if config.get("reversible"):
            one = one + attended(other)
            other = other + fed(one)
        else:
            x = x + attended(x)
            x = x + fed(x)
    return linear(w, "to_logits", one + other if config.get("reversible") else x)


@pytest.mark.parametrize("length", [9, 5, 1])
@pytest.mark.parametrize(
    "options",
    [
        *({}, {"dim_head": 5}, {"one_kv_head": True}, {"share_kv": True}, {"reversible": True}),
        {"one_kv_head": True, "share_kv": True, "dim_head": 2, "reversible": True},
    ],
    ids=str,
)
def test_options(tmp_path: Path, options: Options, length: int) -> None:
    config = PLAIN | options
    held, tokens = weights(config), torch.randint(13, (2, length), generator=torch.Generator().manual_seed(1))
    wanted = {"logits": by_hand(config, held, tokens)}
    agree(replay(write(tmp_path, config, held, {"input_ids": tokens}, wanted)), wanted, EXACT)


@pytest.mark.parametrize(
    ("options", "inputs", "message"),
    [
        ({}, {"input_ids": torch.zeros(1, 10, dtype=torch.long)}, "10 tokens do not fit into a Linformer of seq_len 9"),
        ({"heads": 5, "dim_head": 4}, {}, "dim is 12, which must be a multiple of 5 heads"),
        ({"k": 0}, {}, "k"),
        ({"k": 5}, {}, r"proj_k has the shape \[9, 4\], needed is \[9, 5\]"),
        ({}, {"mask": torch.tensor([[True, False]])}, "mask hides tokens, which a LinformerLM cannot"),
        ({"depth": 10**6}, {}, "claims 1000000 layers"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, options: Options, inputs: Any, message: str) -> None:
    given = {"input_ids": torch.zeros(1, 2, dtype=torch.long)} | inputs
    folder = write(tmp_path, PLAIN | options, weights(PLAIN), given)
    with pytest.raises(WeightsError, match=message):
        replay(folder)


def test_a_mask_that_shows_everything_changes_nothing(tmp_path: Path) -> None:
    tokens = torch.zeros(1, 2, dtype=torch.long)
    held = weights(PLAIN)
    plain = replay(write(tmp_path / "plain", PLAIN, held, {"input_ids": tokens}))
    shown = {"input_ids": tokens, "attention_mask": torch.ones(1, 2, dtype=torch.long)}
    assert torch.equal(replay(write(tmp_path / "shown", PLAIN, held, shown))["logits"], plain["logits"])
    assert json.loads((tmp_path / "shown" / "config.json").read_text()) == PLAIN
