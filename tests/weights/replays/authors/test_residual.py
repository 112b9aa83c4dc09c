"""ResiDual: the golden folder, and other options against the equations."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from heed.core.contract import Given, Where
from heed.core.errors import WeightsError
from heed.core.state import Seen
from heed.weights import Folder, replay
from heed.weights.rename import export
from heed.weights.replays.authors import residual
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
    pieces,
    write,
)

RESIDUAL = "residual/encdec"


def test_golden() -> None:
    wanted, inputs = (load_file(GOLDEN / RESIDUAL / f"{name}.safetensors") for name in ("outputs", "inputs"))
    agree(replay(GOLDEN / RESIDUAL), wanted, 10 * TOLERANCES[RESIDUAL]["absolute"], ~inputs["encoder_padding_mask"])


def test_what_is_loaded_is_exported() -> None:
    folder = Folder.open(GOLDEN / RESIDUAL)
    written = export(residual.model(folder), residual.NAMES)
    assert written.keys() == folder.weights.keys()
    assert all(torch.equal(written[name], tensor) for name, tensor in folder.weights.items())


@pytest.mark.parametrize("seed", range(3))
def test_whole_and_in_pieces(seed: int) -> None:
    folder = Folder.open(GOLDEN / RESIDUAL)
    pair, source, target = residual.model(folder), folder.input("src_embeds"), folder.input("tgt_embeds")
    here, where, made = Where.ragged([12, 8]), Where.run(*target.shape[:2]), []
    with torch.no_grad():
        memory = Seen.of(here, pair.encoder(source, here)[0])
        whole, _ = pair.decoder(target, where.give(encoder_output=memory))
        state = pair.decoder.start(len(target), Given(encoder_output=memory))
        for begin, end in pieces(target.shape[1], seed):
            piece, after = pair.decoder(target[:, begin:end], where.cut(begin, end), state)
            assert after is not None
            state = after
            made.append(piece)
    # sums in another order, as between two implementations
    assert (torch.cat(made, 1) - whole).abs().max().item() <= 10 * TOLERANCES[RESIDUAL]["absolute"]


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
