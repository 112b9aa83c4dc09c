"""CRATE in its authors' layout: the golden folder, and other sizes and options against the equations."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from heed.core.errors import WeightsError
from heed.models.architectures.crate import layerwise
from heed.weights import AUTHORS, Folder, replay
from heed.weights.rename import export
from heed.weights.replays.authors import crate
from tests.weights.support import (
    EXACT,
    GOLDEN,
    TOLERANCES,
    Options,
    Tensors,
    agree,
    damaged,
    linear,
    normed,
    write,
)

CASE = "crate/cls"


def test_golden() -> None:
    wanted = load_file(GOLDEN / CASE / "outputs.safetensors")
    agree(replay(GOLDEN / CASE), wanted, 10 * TOLERANCES[CASE]["absolute"])


def test_what_is_loaded_is_exported() -> None:
    folder = Folder.open(GOLDEN / CASE)
    written = export(AUTHORS["crate"](folder), crate.Crate.load(folder.config).names())
    assert written.keys() == folder.weights.keys()
    assert all(torch.equal(tensor, folder.weights[name]) for name, tensor in written.items())


@torch.no_grad()
def test_a_checkpoint_shows_its_layers() -> None:
    folder = Folder.open(GOLDEN / CASE)
    shown = layerwise(crate.model(folder), folder.input("img"))
    after = load_file(GOLDEN / CASE / "outputs.safetensors")
    assert len(shown) == 2
    for number, layer in enumerate(shown):
        assert layer.rate > 0
        wanted = float((after[f"after_ista.{number}"] > 0).float().mean())
        assert layer.sparsity == pytest.approx(wanted, abs=2e-3)  # a channel may lie at the threshold


# --- the reference, written out ---


def sides(value: object) -> tuple[int, int]:
    """One number is about both sides."""
    return (value, value) if isinstance(value, int) else tuple(value)  # type: ignore[arg-type, return-value]


def weights(c: Options) -> Tensors:
    (high, wide), (p, q) = sides(c["image_size"]), sides(c["patch_size"])
    d, inner, pixels = c["dim"], c["heads"] * c.get("dim_head", 64), p * q * c.get("channels", 3)
    shapes: dict[str, tuple[int, ...]] = {
        "cls_token": (1, 1, d),
        "pos_embedding": (1, 1 + high // p * (wide // q), d),
        "to_patch_embedding.1.weight": (pixels,),
        "to_patch_embedding.1.bias": (pixels,),
        "to_patch_embedding.2.weight": (d, pixels),
        "to_patch_embedding.2.bias": (d,),
        "to_patch_embedding.3.weight": (d,),
        "to_patch_embedding.3.bias": (d,),
        "mlp_head.0.weight": (d,),
        "mlp_head.0.bias": (d,),
        "mlp_head.1.weight": (c["num_classes"], d),
        "mlp_head.1.bias": (c["num_classes"],),
    }
    for i in range(c["depth"]):
        layer = f"transformer.layers.{i}"
        for part in (0, 1):
            shapes[f"{layer}.{part}.norm.weight"] = shapes[f"{layer}.{part}.norm.bias"] = (d,)
        shapes[f"{layer}.0.fn.qkv.weight"] = (inner, d)
        shapes[f"{layer}.1.fn.weight"] = (d, d)
        if not (c["heads"] == 1 and c.get("dim_head", 64) == d):
            shapes[f"{layer}.0.fn.to_out.0.weight"], shapes[f"{layer}.0.fn.to_out.0.bias"] = (d, inner), (d,)
    draw = torch.Generator().manual_seed(0)
    return {
        name: torch.randn(shape, generator=draw, dtype=torch.float64) / (shape[-1] ** 0.5 if len(shape) == 2 else 1)
        for name, shape in shapes.items()
    }


def subspaces(c: Options, w: Tensors, name: str, z: Tensor) -> Tensor:
    """Head by head: softmax(u uᵀ / √p) u, and back by a free matrix if there is one."""
    size, made = c.get("dim_head", 64), []
    for head in range(c["heads"]):
        u = z @ w[f"{name}.qkv.weight"][head * size : (head + 1) * size].T
        made.append((u @ u.mT / size**0.5).softmax(-1) @ u)
    y = torch.cat(made, -1)
    return linear(w, f"{name}.to_out.0", y) if f"{name}.to_out.0.weight" in w else y


def reference(c: Options, w: Tensors, images: Tensor) -> Tensors:
    (high, wide), (p, q) = sides(c["image_size"]), sides(c["patch_size"])
    patches = [  # row by row, all channels of each pixel
        images[:, :, a : a + p, b : b + q].permute(0, 2, 3, 1).flatten(1)
        for a in range(0, high, p)
        for b in range(0, wide, q)
    ]
    x = normed(w, "to_patch_embedding.1", torch.stack(patches, 1), 1e-5)
    x = normed(w, "to_patch_embedding.3", linear(w, "to_patch_embedding.2", x), 1e-5)
    x = torch.cat((w["cls_token"].expand(len(x), -1, -1), x), 1) + w["pos_embedding"]
    made, step = {"embedded": x}, c.get("ista", 0.1)
    for i in range(c["depth"]):
        layer = f"transformer.layers.{i}"
        x = x + subspaces(c, w, f"{layer}.0.fn", normed(w, f"{layer}.0.norm", x, 1e-5))
        made[f"after_mssa.{i}"] = x
        z, d = normed(w, f"{layer}.1.norm", x, 1e-5), w[f"{layer}.1.fn.weight"]
        x = (z + step * (z @ d - z @ d.T @ d) - step * c.get("lambd", 0.1)).clamp(min=0)
        made[f"after_ista.{i}"] = x
    pooled = x.mean(1) if c.get("pool") == "mean" else x[:, 0]
    return made | {"logits": linear(w, "mlp_head.1", normed(w, "mlp_head.0", pooled, 1e-5))}


BASE: Options = {
    "image_size": 8,
    "patch_size": 4,
    "num_classes": 5,
    "dim": 12,
    "depth": 2,
    "heads": 3,
    "dim_head": 4,
}
OTHERS: dict[str, Options] = {
    "plain": {},
    "mean of all tokens": {"pool": "mean"},
    "heads of other sizes": {"heads": 2, "dim_head": 5},
    "their size of a head": {"dim_head": 64, "heads": 2, "depth": 1},
    "no way back": {"heads": 1, "dim_head": 12},
    "one head, and a way back": {"heads": 1, "dim_head": 6},
    "one channel": {"channels": 1},
    "more channels": {"channels": 5, "pool": "mean"},
    "oblong images": {"image_size": [6, 8], "patch_size": [3, 2]},
    "another step": {"ista": 0.5, "lambd": 0.02},
    "a threshold below zero": {"lambd": -0.1},
    "one patch": {"patch_size": 8},
    "patches of a pixel": {"image_size": 3, "patch_size": 1, "depth": 4},
    "dropout, which means nothing in use": {"dropout": 0.3},
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_options(tmp_path: Path, case: str) -> None:
    c = {**BASE, **OTHERS[case]}
    w, shape = weights(c), (2, c.get("channels", 3), *sides(c["image_size"]))
    images = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    wanted = reference(c, w, images)
    made = replay(write(tmp_path, {"model_type": "crate", **c}, w, {"img": images}, wanted))
    agree(made, wanted, 10 * EXACT)


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    refused: tuple[tuple[Options, str], ...] = (
        ({"pool": "max"}, "pool is 'max'; it must be 'cls' or 'mean'"),
        ({"patch_size": 5}, "an image of 16 pixels is not cut evenly into 5"),
        ({"image_size": [16, 16, 16]}, "image_size"),
        ({"image_size": "16"}, "image_size"),
        ({"depth": 9000}, "claims 9000 layers"),
        ({"dim": 4096}, "layers of width 4096"),
        ({"depth": 3}, "transformer.layers.2"),
        ({"heads": 2}, "transformer.layers.0.0.fn.qkv.weight has the shape"),
        ({"ista": 0.0}, "ista is 0.0"),
        ({"channels": 1}, "to_patch_embedding.1.weight"),
    )
    for config, message in refused:
        with pytest.raises(WeightsError, match=message):
            replay(damaged(GOLDEN / CASE, tmp_path / "copy", config))
    with pytest.raises(WeightsError, match="transformer.layers.1.1.fn.weight"):
        replay(damaged(GOLDEN / CASE, tmp_path / "copy", **{"transformer.layers.1.1.fn.weight": None}))
    with pytest.raises(WeightsError, match="img has the shape .2, 3, 8, 8.; needed is .rows, 3, 16, 16."):
        replay(damaged(GOLDEN / CASE, tmp_path / "copy", img=torch.zeros(2, 3, 8, 8)))
