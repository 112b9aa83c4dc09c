"""torchscale's LongNet: the golden folder, and other options against the reference's way of computing, written anew."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.models import Decoder
from heed.weights import AUTHORS, Folder, replay
from heed.weights.rename import export
from heed.weights.replays.authors import longnet, torchscale
from tests.weights.support import (
    EXACT,
    GOLDEN,
    TOLERANCES,
    Options,
    Tensors,
    agree,
    linear,
    normed,
    pieces,
    write,
)

CASE = "longnet/decoder"
WIDTH, HEADS, LAYERS, VOCABULARY = 10, 5, 2, 17
FADES = 0.4 / 1.4  # xPos's scale of the first pair


def test_golden() -> None:
    agree(replay(GOLDEN / CASE), load_file(GOLDEN / CASE / "outputs.safetensors"), 10 * TOLERANCES[CASE]["absolute"])


def test_what_is_loaded_is_exported() -> None:
    folder = Folder.open(GOLDEN / CASE)
    written = export(AUTHORS["longnet"](folder), torchscale.corrected(folder, longnet.LongNet).names("decoder"))
    assert written.keys() == folder.weights.keys()
    assert all(torch.equal(written[name], tensor) for name, tensor in folder.weights.items())


@pytest.mark.parametrize("seed", range(3))
@torch.no_grad()
def test_whole_and_in_pieces(seed: int) -> None:
    folder = Folder.open(GOLDEN / CASE)
    model, tokens = longnet.model(folder).double(), folder.input("prev_output_tokens")
    assert isinstance(model, Decoder)
    whole, _ = model(tokens, Where.run(*tokens.shape))
    state, made = model.start(len(tokens)), []
    for begin, end in pieces(tokens.shape[1], seed):
        y, after = model(tokens[:, begin:end], Where.run(len(tokens), end - begin, start=begin), state)
        assert after is not None
        state = after
        made.append(y)
    assert torch.allclose(torch.cat(made, 1), whole, rtol=0, atol=1e-12)


# --- other options ---


def options(side: str, **more: Any) -> Options:
    sized = {"embed_dim": WIDTH, "attention_heads": HEADS, "ffn_embed_dim": 12, "layers": LAYERS}
    return {"model_type": "longnet", "vocab_size": VOCABULARY} | {f"{side}_{k}": v for k, v in sized.items()} | more


def random_weights(side: str, config: Options) -> Tensors:
    draw = torch.Generator().manual_seed(3)

    def made(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64) * shape[-1] ** -0.5

    held = {"embed_tokens.weight": made(VOCABULARY, WIDTH), "output_projection.weight": made(VOCABULARY, WIDTH)}
    norms = ["self_attn_layer_norm", "final_layer_norm"] + (["self_attn.inner_attn_ln"] if config["subln"] else [])
    for layer in (f"layers.{i}" for i in range(LAYERS)):
        linears = {f"self_attn.{name}_proj": (WIDTH, WIDTH) for name in ("q", "k", "v", "out")}
        linears |= {"ffn.fc1": (12, WIDTH), "ffn.fc2": (WIDTH, 12)}
        for name, (rows, columns) in linears.items():
            held |= {f"{layer}.{name}.weight": made(rows, columns), f"{layer}.{name}.bias": made(rows)}
        widths = dict.fromkeys(norms, WIDTH) | ({"ffn.ffn_layernorm": 12} if config["subln"] else {})
        for name, width in widths.items():
            held |= {f"{layer}.{name}.weight": 1 + made(width), f"{layer}.{name}.bias": made(width)}
        if config["xpos_rel_pos"]:
            held[f"{layer}.self_attn.xpos.scale"] = torch.tensor([FADES], dtype=torch.float64)
    if config[f"{side}_normalize_before"]:
        held |= {"layer_norm.weight": 1 + made(WIDTH), "layer_norm.bias": made(WIDTH)}
    return held


def filled(x: Tensor, multiple: int, axis: int) -> Tensor:
    """With zeros up to a multiple."""
    return F.pad(x, (*(0, 0) * (x.dim() - 1 - axis), 0, -x.shape[axis] % multiple))


def turned(x: Tensor, base: float) -> Tensor:
    """xPos of heads of one pair, which turns by one radian a token. [B, T, H, 2]"""
    place = torch.arange(x.shape[1], dtype=x.dtype)[:, None]
    pair = torch.view_as_complex(x.contiguous()) * torch.polar(FADES ** (place / base), place)
    return torch.view_as_real(pair)


def dilated(w: Tensors, name: str, x: Tensor, config: Options, *, causal: bool) -> Tensor:
    """As the reference goes about it: zeros fill rows and segments up, heads are taken one by one. [B, T, D]"""
    q, k, v = (linear(w, f"{name}.{part}_proj", x).unflatten(-1, (HEADS, -1)) for part in "qkv")
    if config["xpos_rel_pos"]:
        q, k = turned(q, config["xpos_scale_base"]), turned(k, -config["xpos_scale_base"])
    made = torch.zeros_like(q)
    for row in range(len(x)):
        for head in range(HEADS):
            found, sums = [], []
            for segment, step in zip(config["segment_length"], config["dilated_ratio"], strict=True):
                size, offset = min(segment, x.shape[1]), head // math.ceil(HEADS / step)
                y, total = torch.zeros(x.shape[1], 2, dtype=x.dtype), torch.full((x.shape[1],), -1e8, dtype=x.dtype)
                three = [filled(t[row, :, head], size, 0).unflatten(0, (-1, size)) for t in (q, k, v)]
                for index, cut in enumerate(zip(*three, strict=True)):
                    a, b, c = (filled(t, step, 0)[offset::step] for t in cut)
                    score = a @ b.T / math.sqrt(2)
                    score = score.masked_fill(torch.ones_like(score).triu(1) > 0, -torch.inf) if causal else score
                    for place, (one, sum_) in enumerate(zip(score.softmax(-1) @ c, score.logsumexp(-1), strict=True)):
                        column, inside = index * size + offset + place * step, offset + place * step < size
                        if inside and column < x.shape[1]:
                            y[column], total[column] = one, sum_
                found.append(y)
                sums.append(total)
            share = torch.stack(sums).softmax(0)
            made[row, :, head] = (share[..., None] * torch.stack(found)).sum(0)
    y = made.flatten(2)
    return linear(w, f"{name}.out_proj", normed(w, f"{name}.inner_attn_ln", y, 1e-5) if config["subln"] else y)


def by_hand(w: Tensors, x: Tensor, config: Options, side: str) -> list[Tensor]:
    """The stream at every depth, and what comes out."""
    alpha = (2 * LAYERS) ** 0.25 if config["deepnorm"] else 1.0
    before, streams = config[f"{side}_normalize_before"], [x]
    for layer in (f"layers.{i}" for i in range(LAYERS)):
        for norm in ("self_attn_layer_norm", "final_layer_norm"):
            y = normed(w, f"{layer}.{norm}", x, 1e-5) if before else x
            if norm == "self_attn_layer_norm":
                y = dilated(w, f"{layer}.self_attn", y, config, causal=side == "decoder")
            else:
                y = F.gelu(linear(w, f"{layer}.ffn.fc1", y))
                y = normed(w, f"{layer}.ffn.ffn_layernorm", y, 1e-5) if config["subln"] else y
                y = linear(w, f"{layer}.ffn.fc2", y)
            x = alpha * x + y
            x = x if before else normed(w, f"{layer}.{norm}", x, 1e-5)
        streams.append(x)
    last = normed(w, "layer_norm", x, 1e-5) if before else x
    return [*streams, last @ w["output_projection.weight"].T]


@pytest.mark.parametrize("side", ["decoder", "encoder"])
@pytest.mark.parametrize("length", [3, 8, 13])
@pytest.mark.parametrize(("segments", "steps"), [((4, 8, 16), (1, 2, 4)), ((6, 14), (3, 5)), ((2,), (2,))])
@pytest.mark.parametrize("kind", ["subln", "deepnorm", "xpos"])
def test_it_is_what_the_reference_computes(
    side: str, length: int, segments: tuple[int, ...], steps: tuple[int, ...], kind: str, tmp_path: Path
) -> None:
    deep = kind == "deepnorm"
    config = options(side, segment_length=segments, dilated_ratio=steps, deepnorm=deep, subln=not deep)
    config |= {f"{side}_normalize_before": not deep, "xpos_rel_pos": kind == "xpos", "xpos_scale_base": 16}
    w = random_weights(side, config)
    tokens = torch.randint(VOCABULARY, (2, length), generator=torch.Generator().manual_seed(1))
    padding = torch.zeros(2, length, dtype=torch.bool)
    padding[1, -2:] = True
    names = {"decoder": ("prev_output_tokens", "self_attn_padding_mask", "inner_states", "logits")}
    names["encoder"] = ("src_tokens", "encoder_padding_mask", "encoder_states", "encoder_out")
    given, mask, stream, out = names[side]
    x = w["embed_tokens.weight"][tokens]
    x = x * ~padding[..., None] if side == "encoder" else x  # and nothing else is made of a mask
    *inner, last = by_hand(w, x, config, side)
    wanted = {f"{stream}.{depth}": x for depth, x in enumerate(inner)} | {out: last}
    alone = torch.randn(2, length, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    attended = dilated(w, "layers.0.self_attn", alone, config, causal=side == "decoder")
    wanted |= {"attn0_input": alone, "attn0_output": attended}
    write(tmp_path, config, w, {given: tokens, mask: padding}, wanted)
    agree(replay(tmp_path), wanted, 10 * EXACT)


def changed(path: Path, **more: Any) -> Path:
    """The golden folder with other options."""
    config = json.loads((GOLDEN / CASE / "config.json").read_text())
    tensors = (load_file(GOLDEN / CASE / f"{name}.safetensors") for name in ("model", "inputs", "outputs"))
    return write(path, config | more, *tensors)


def test_lists_may_be_texts(tmp_path: Path) -> None:
    texts = {"segment_length": "[8, 16, 32]", "dilated_ratio": "1, 2, 4"}
    agree(replay(changed(tmp_path, **texts)), replay(GOLDEN / CASE), 0.0)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"segment_length": [8, 18, 32]}, "segments of 18 tokens are no whole number of steps of 4"),
        ({"segment_length": [8, 16]}, "2 segments have 3 dilations"),
        ({"segment_length": "eight"}, "'eight' is not a list of numbers"),
        ({"segment_length": None}, "segment_length"),
        ({"dilated_ratio": [0, 1, 2]}, "dilated_ratio"),
        ({"rel_pos_buckets": 32, "max_rel_pos": 128}, "rel_pos_buckets"),
        ({"seq_parallel": True}, "seq_parallel"),
        ({"moe_freq": 2}, "moe_freq"),
    ],
    ids=str,
)
def test_what_heed_cannot_do_is_refused(more: Options, message: str, tmp_path: Path) -> None:
    more = {"dilated_ratio": [1, 4, 4]} | more if "18" in message else more
    with pytest.raises(WeightsError, match=message):
        replay(changed(tmp_path, **more))
