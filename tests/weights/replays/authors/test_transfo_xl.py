"""Transformer-XL checkpoints: recorded calls, other options against the equations, loaded models, and the way back."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from heed import weights
from heed.core.contract import Where
from heed.core.errors import WeightsError
from heed.weights import replay
from tests.weights.support import EXACT, GOLDEN, TOLERANCES, Options, Tensors, agree, linear, normed, write

HERE = GOLDEN / "transfo-xl"
CASES = sorted(path.name for path in HERE.iterdir())


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    wanted = load_file(HERE / case / "outputs.safetensors")
    agree(replay(HERE / case), wanted, 10 * TOLERANCES[f"transfo-xl/{case}"]["absolute"])


@pytest.mark.parametrize("case", CASES)
def test_what_is_loaded_is_exported(case: str, tmp_path: Path) -> None:
    weights.write(weights.load(HERE / case), tmp_path / "out")
    before, after = (load_file(folder / "model.safetensors") for folder in (HERE / case, tmp_path / "out"))
    assert after.keys() <= before.keys()
    assert all(name.startswith(("crit.out_layers", "crit.out_projs")) for name in before.keys() - after.keys())  # tied
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())


# --- options, against the equations ---


def options(seed: int, *, authors: bool) -> Options:
    draw = random.Random(seed)
    cutoffs = draw.choice([[], [8], [8, 15]])
    memory = draw.choice([0, 2, 5, 9])
    words: Options = {"n_token": 23} if authors else {"vocab_size": 23, "tie_word_embeddings": draw.random() < 0.7}
    return words | {
        "model_type": "transfo-xl",
        "cutoffs": cutoffs,
        "d_model": 12,
        "d_embed": draw.choice([12, 8]),
        "div_val": draw.choice([1, 2]),
        "n_head": draw.choice([1, 3]),
        "d_head": draw.choice([4, 5]),
        "d_inner": 14,
        "n_layer": 2,
        "mem_len": memory,
        "clamp_len": draw.choice([-1, 3]),
        "same_length": memory > 0 and draw.random() < 0.5,
        "pre_lnorm": draw.random() < 0.5,
        "untie_r": not authors and draw.random() < 0.5,
        "tie_projs": [draw.random() < 0.5 for _ in range(len(cutoffs) + 1)],
        "layer_norm_epsilon": 1e-5,
    }


def drawn(o: Options, seed: int) -> Tensors:
    """Weights under the reference's names, tied ones stored twice."""
    draw = torch.Generator().manual_seed(seed)

    def new(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64) * shape[-1] ** -0.5

    width, inner, many = o["d_model"], o["n_head"] * o["d_head"], len(o["cutoffs"]) + 1
    ends = [0, *o["cutoffs"], 23]
    stem = "" if "n_token" in o else "transformer."
    sizes = [o["d_embed"] // o["div_val"] ** number for number in range(many)]
    tables = [(23, sizes[0])] if o["div_val"] == 1 else [(ends[n + 1] - ends[n], sizes[n]) for n in range(many)]
    projected, w = o["div_val"] > 1 or o["d_embed"] != width, dict[str, Tensor]()
    for n, shape in enumerate(tables):
        w[f"{stem}word_emb.emb_layers.{n}.weight"] = new(*shape)
        tied = o.get("tie_word_embeddings", True)
        w[f"crit.out_layers.{n}.weight"] = w[f"{stem}word_emb.emb_layers.{n}.weight"].clone() if tied else new(*shape)
        w[f"crit.out_layers.{n}.bias"] = new(shape[0])
        if projected:
            w[f"{stem}word_emb.emb_projs.{n}"] = new(width, shape[1])
    for n in range(many if projected else 0):
        source = f"{stem}word_emb.emb_projs.{n if o['div_val'] > 1 else 0}"
        w[f"crit.out_projs.{n}"] = w[source].clone() if o["tie_projs"][n] else new(width, sizes[n])
    if many > 1:
        w |= {"crit.cluster_weight": new(many - 1, sizes[0]), "crit.cluster_bias": new(many - 1)}
    if not o["untie_r"]:
        w |= {f"{stem}{name}": new(o["n_head"], o["d_head"]) for name in ("r_w_bias", "r_r_bias")}
    for layer in range(o["n_layer"]):
        at = f"{stem}layers.{layer}"
        shapes = {"qkv_net": (3 * inner, width), "o_net": (width, inner), "r_net": (inner, width)}
        w |= {f"{at}.dec_attn.{name}.weight": new(*shape) for name, shape in shapes.items()}
        for name in ("r_w_bias", "r_r_bias") if o["untie_r"] else ():
            w[f"{at}.dec_attn.{name}"] = new(o["n_head"], o["d_head"])
        for name, shape in {"0": (o["d_inner"], width), "3": (width, o["d_inner"])}.items():
            w |= {f"{at}.pos_ff.CoreNet.{name}.weight": new(*shape), f"{at}.pos_ff.CoreNet.{name}.bias": new(shape[0])}
        for part in ("dec_attn", "pos_ff"):
            w |= {f"{at}.{part}.layer_norm.weight": 1 + new(width), f"{at}.{part}.layer_norm.bias": new(width)}
    return w


def attended(o: Options, w: Tensors, layer: int, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """What a layer's attention adds, and its weights, of one row: tokens [T, D] beside a memory [M, D]."""
    stem = "" if "n_token" in o else "transformer."
    at, own = f"{stem}layers.{layer}.dec_attn", o["untie_r"]
    both = torch.cat((memory, x))
    both = normed(w, f"{at}.layer_norm", both, o["layer_norm_epsilon"]) if o["pre_lnorm"] else both
    q, k, v = (part.unflatten(-1, (o["n_head"], -1)) for part in (both @ w[f"{at}.qkv_net.weight"].T).chunk(3, -1))
    u, place = (w[f"{at if own else stem.rstrip('.')}.{name}".lstrip(".")] for name in ("r_w_bias", "r_r_bias"))
    before, size, width = len(memory), o["d_head"], o["d_model"]
    made, shown = torch.zeros(len(x), o["n_head"], size, dtype=x.dtype), torch.zeros(o["n_head"], len(x), len(both))
    shown = shown.to(x.dtype)
    for i in range(before, len(both)):
        seen = [j for j in range(i + 1) if not (o["same_length"] and i - j >= o["mem_len"])]
        gaps = [min(i - j, o["clamp_len"]) if o["clamp_len"] > 0 else i - j for j in seen]
        turns = [[gap * 10000 ** (-2 * c / width) for c in range(width // 2)] for gap in gaps]
        waves = torch.tensor([[*map(math.sin, t), *map(math.cos, t)] for t in turns], dtype=x.dtype)
        far = (waves @ w[f"{at}.r_net.weight"].T).unflatten(-1, (o["n_head"], -1))
        for h in range(o["n_head"]):
            score = (k[seen, h] @ (q[i, h] + u[h]) + far[:, h] @ (q[i, h] + place[h])) / math.sqrt(size)
            shown[h, i - before, seen] = score.softmax(0)
            made[i - before, h] = score.softmax(0) @ v[seen, h]
    return made.flatten(1) @ w[f"{at}.o_net.weight"].T, shown


def log_probs(o: Options, w: Tensors, x: Tensor) -> Tensor:
    """[T, D] -> [T, vocabulary]"""
    ends, many = [0, *o["cutoffs"], 23], len(o["cutoffs"]) + 1

    def scores(n: int) -> Tensor:
        narrow = x @ w[f"crit.out_projs.{n}"] if f"crit.out_projs.{n}" in w else x
        number, rows = (0, slice(ends[n], ends[n + 1])) if o["div_val"] == 1 else (n, slice(None))
        made = narrow @ w[f"crit.out_layers.{number}.weight"][rows].T + w[f"crit.out_layers.{number}.bias"][rows]
        if n == 0 and many > 1:
            made = torch.cat((made, narrow @ w["crit.cluster_weight"].T + w["crit.cluster_bias"]), -1)
        return made.log_softmax(-1)

    head = scores(0)
    columns = [-n if "n_token" in o else ends[1] + n - 1 for n in range(many)]
    return torch.cat([head[:, : ends[1]], *(head[:, columns[n], None] + scores(n) for n in range(1, many))], -1)


def called(o: Options, w: Tensors, tokens: Tensor, memory: list[Tensor]) -> dict[str, Any]:
    """One call of the reference over one row, from its equations."""
    stem, many = "" if "n_token" in o else "transformer.", len(o["cutoffs"]) + 1
    ends, vectors = [0, *o["cutoffs"], 23], []
    for word in tokens.tolist():
        n = 0 if o["div_val"] == 1 else max(n for n in range(many) if word >= ends[n])
        vector = w[f"{stem}word_emb.emb_layers.{n}.weight"][word - (ends[n] if o["div_val"] > 1 else 0)]
        wide = f"{stem}word_emb.emb_projs.{n}"
        vectors.append((w[wide] @ vector if wide in w else vector) * math.sqrt(o["d_model"]))
    streams, shown = [torch.stack(vectors)], []
    for layer in range(o["n_layer"]):
        x, at, eps = streams[-1], f"{stem}layers.{layer}", o["layer_norm_epsilon"]
        added, weight = attended(o, w, layer, x, memory[layer])
        x = x + added if o["pre_lnorm"] else normed(w, f"{at}.dec_attn.layer_norm", x + added, eps)
        inner = normed(w, f"{at}.pos_ff.layer_norm", x, eps) if o["pre_lnorm"] else x
        y = x + linear(w, f"{at}.pos_ff.CoreNet.3", linear(w, f"{at}.pos_ff.CoreNet.0", inner).relu())
        streams.append(y if o["pre_lnorm"] else normed(w, f"{at}.pos_ff.layer_norm", y, eps))
        shown.append(weight)
    kept = [torch.cat((m, x)) for m, x in zip(memory, streams, strict=False)]
    kept = [m[max(0, len(m) - o["mem_len"]) :] for m in kept]
    return {"streams": streams, "weights": shown, "log_probs": log_probs(o, w, streams[-1]), "memory": kept}


@pytest.mark.parametrize("authors", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_other_options_and_lengths(seed: int, authors: bool, tmp_path: Path) -> None:
    o = options(seed, authors=authors)
    w, name = drawn(o, seed), "tokens" if authors else "input_ids"
    draw = torch.Generator().manual_seed(seed)
    inputs = {f"{name}.{i}": torch.randint(23, (2, length), generator=draw) for i, length in enumerate((5, 3, 7))}
    empty = authors or seed % 3 == 0
    shape = (0 if empty else o["mem_len"], o["d_model"])
    memory = [[torch.zeros(shape, dtype=torch.float64)] * (o["n_layer"] + authors) for _ in range(2)]
    wanted = dict[str, Tensor]()
    for i in range(3):
        tokens = inputs[f"{name}.{i}"]
        rows = [called(o, w, tokens[row, : -1 if authors else None], memory[row]) for row in range(2)]
        memory = [row["memory"] for row in rows]
        if o["mem_len"]:
            both = [torch.stack(pair, 1) for pair in zip(*memory, strict=True)]
            wanted |= {f"mems.{i}.{layer}": x for layer, x in enumerate(both)}
        found = torch.stack([row["log_probs"] for row in rows])
        if authors:
            wanted[f"nll.{i}"] = -found.gather(-1, tokens[:, 1:, None])[..., 0]
            continue
        wanted[f"log_probs.{i}"] = found
        for what, named in (("streams", "hidden_states"), ("weights", "attentions")):
            for depth in range(len(rows[0][what])):
                wanted[f"{named}.{i}.{depth}"] = torch.stack([row[what][depth] for row in rows])
    agree(replay(write(tmp_path, o, w, inputs, wanted)), wanted, 10 * EXACT)


# --- a loaded model ---


@pytest.mark.parametrize("case", [{}, {"pre_lnorm": True}, {"same_length": True}, {"cutoffs": [8, 15]}], ids=repr)
def test_a_loaded_model_is_the_reference_called_segment_by_segment(case: Options, tmp_path: Path) -> None:
    """With segments of the calls' length, zeros at first; in one call, and cut anyhow."""
    o = options(4, authors=False) | {"mem_len": 5, "same_length": False, "pre_lnorm": False, "cutoffs": []} | case
    o |= {"tgt_len": 4, "tie_projs": [False] * (len(o["cutoffs"]) + 1)}
    w, tokens = drawn(o, 4), torch.randint(23, (1, 12), generator=torch.Generator().manual_seed(1))
    model = weights.load(write(tmp_path, o, w, {})).model
    memory, wanted = [torch.zeros(5, 12, dtype=torch.float64)] * 2, []
    for segment in tokens[0].split(4):
        made = called(o, w, segment, memory)
        memory = made["memory"]
        wanted.append(made["log_probs"])
    with torch.no_grad():
        whole = model(tokens, Where.run(1, 12))[0].log_softmax(-1)
        assert torch.allclose(whole[0], torch.cat(wanted), rtol=0, atol=10 * EXACT)
        state, cut, begin = model.start(1), [], 0
        for end in (1, 6, 7, 12):
            y, state = model(tokens[:, begin:end], Where.run(1, end - begin, start=begin), state)
            cut.append(y.log_softmax(-1))
            begin = end
        assert torch.allclose(torch.cat(cut, 1), whole, rtol=0, atol=10 * EXACT)


def test_nothing_follows_a_single_token(tmp_path: Path) -> None:
    o = options(4, authors=False)
    made = replay(write(tmp_path, o, drawn(o, 4), {"input_ids": torch.tensor([[3], [7]])}))
    assert made["log_probs"].shape == (2, 1, 23)
    assert not [name for name in made if name.startswith("loss")]


def test_losses_come_cluster_by_cluster(tmp_path: Path) -> None:
    """As transformers lists them, with missing labels as zeros at the end."""
    o = options(4, authors=False) | {"cutoffs": [8, 15], "mem_len": 0, "tie_projs": [False] * 3, "same_length": False}
    w, tokens = drawn(o, 4), torch.tensor([[3, 20, 9, 1, 16, 2], [10, 0, 22, 5, 11, 7]])
    labels = tokens.clone()
    labels[0, 3], labels[1, 4] = -100, -100
    made = replay(write(tmp_path, o, w, {"input_ids": tokens, "labels": labels}))
    found = torch.stack(
        [called(o, w, row, [torch.zeros(0, 12, dtype=torch.float64)] * 2)["log_probs"] for row in tokens]
    )
    nll = {(r, t): -found[r, t - 1, int(labels[r, t])] for r in range(2) for t in range(1, 6) if labels[r, t] >= 0}
    groups = [
        [v for (r, t), v in nll.items() if low <= labels[r, t] < high] for low, high in ((0, 8), (8, 15), (15, 23))
    ]
    flat = [value for group in groups for value in group]
    assert torch.allclose(made["losses"].flatten()[:8], torch.stack(flat), rtol=0, atol=EXACT)
    assert made["losses"].flatten()[8:].tolist() == [0.0, 0.0]
    assert torch.allclose(made["loss"], torch.stack(flat).mean())
    assert not torch.allclose(made["losses_first_segment"], made["losses"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"attn_type": 2}, "attn_type"),
        ({"sample_softmax": 10}, "sample_softmax"),
        ({"ext_len": 3}, "ext_len"),
        ({"mem_len": 0, "same_length": True}, "with memory = 0 it sees nothing"),
        ({"cutoffs": [9, 4]}, "cutoffs must ascend"),
        ({"cutoffs": [40]}, "leaves nothing of a vocabulary of 23"),
        ({"d_model": 13}, "the waves of a distance come in pairs"),
        ({"n_layer": 10**6}, "it claims 1000000 layers"),
    ],
)
def test_what_heed_cannot_do_is_refused(change: Options, message: str, tmp_path: Path) -> None:
    o = options(4, authors=False)
    folder = write(tmp_path, o | change, drawn(o, 4), {"input_ids": torch.zeros(1, 4, dtype=torch.long)})
    with pytest.raises(WeightsError, match=message):
        weights.load(folder)
    with pytest.raises(WeightsError, match=message):
        replay(folder)


def test_other_models_and_inputs_are_refused(tmp_path: Path) -> None:
    o = options(4, authors=False)
    w, tokens = drawn(o, 4), torch.zeros(1, 4, dtype=torch.long)
    body = {name: tensor for name, tensor in w.items() if not name.startswith("crit")}
    with pytest.raises(WeightsError, match="save the language model, not its backbone alone"):
        weights.load(write(tmp_path / "body", o, body, {}))
    with pytest.raises(WeightsError, match="it classifies texts"):
        weights.load(write(tmp_path / "classes", o, w | {"score.weight": torch.zeros(2, 12)}, {}))
    with pytest.raises(WeightsError, match="holds head_mask, which heed does not feed"):
        replay(write(tmp_path / "mask", o, w, {"input_ids": tokens, "head_mask": torch.ones(1)}))
    with pytest.raises(WeightsError, match=r"has no input_ids\.0"):
        replay(write(tmp_path / "none", o, w, {"labels": tokens}))
    with pytest.raises(WeightsError, match=r"mems must be \[tokens, rows, 12\]"):
        replay(
            write(
                tmp_path / "mems",
                o,
                w,
                {"input_ids": tokens, "mems.0": torch.ones(3, 2, 12), "mems.1": torch.ones(3, 2, 12)},
            )
        )


def test_defaults_are_those_of_each_layout(tmp_path: Path) -> None:
    """A config may leave out what its authors' code does by default."""
    o = options(4, authors=True) | {"cutoffs": [], "div_val": 1, "same_length": False, "clamp_len": -1, "d_embed": 12}
    o |= {"tie_projs": [False], "untie_r": False, "pre_lnorm": False}
    w = drawn(o, 4)
    few = {
        name: o[name]
        for name in ("model_type", "n_token", "d_model", "n_head", "d_head", "d_inner", "n_layer", "mem_len")
    }
    tokens = {"tokens": torch.randint(23, (2, 6), generator=torch.Generator().manual_seed(2))}
    said, unsaid = (replay(write(tmp_path / name, c, w, tokens)) for name, c in {"said": o, "unsaid": few}.items())
    assert said.keys() == unsaid.keys()
    assert all(torch.equal(said[name], unsaid[name]) for name in said)
    assert json.loads((HERE / "authors_original" / "config.json").read_text())["n_token"] == 99
