"""Involution in its authors' layout: the golden folder, and other sizes and options against the equation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from heed.core.errors import WeightsError
from heed.weights import Folder, replay
from heed.weights.rename import export
from heed.weights.replays.authors import involution
from tests.weights.support import EXACT, GOLDEN, TOLERANCES, Options, Tensors, agree, damaged, write

CASE = "involution/layer"


def test_golden() -> None:
    wanted = load_file(GOLDEN / CASE / "outputs.safetensors")
    agree(replay(GOLDEN / CASE), wanted, 10 * TOLERANCES[CASE]["absolute"])


def test_what_is_loaded_is_exported() -> None:
    folder = Folder.open(GOLDEN / CASE)
    written = export(involution.layer(folder), involution.NAMES)
    assert written.keys() == folder.weights.keys()
    assert all(torch.equal(tensor, folder.weights[name]) for name, tensor in written.items())


def weights(c: Options) -> Tensors:
    draw = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw, dtype=torch.float64)

    narrow, groups = c["channels"] // c.get("reduction_ratio", 4), c["channels"] // c.get("group_channels", 16)
    taps = c["kernel_size"] ** 2 * groups
    return {
        "conv1.conv.weight": random(narrow, c["channels"], 1, 1) / c["channels"] ** 0.5,
        **{f"conv1.bn.{name}": random(narrow) for name in ("weight", "bias", "running_mean")},
        "conv1.bn.running_var": random(narrow).abs() + 0.1,
        "conv1.bn.num_batches_tracked": torch.tensor(7),
        "conv2.conv.weight": random(taps, narrow, 1, 1) / narrow**0.5,
        "conv2.conv.bias": random(taps),
    }


def reference(c: Options, w: Tensors, x: Tensor) -> Tensor:
    """Pixel by pixel: a kernel is made of the pixels that become one, and weighs what lies around the first of them."""
    kernel, stride, group = c["kernel_size"], c.get("stride", 1), c.get("group_channels", 16)
    rows, channels, height, width = x.shape
    far, made = kernel // 2, torch.zeros(rows, channels, height // stride, width // stride, dtype=x.dtype)
    wide = F.pad(x, (far,) * 4)
    for a in range(height // stride):
        for b in range(width // stride):
            top, left = a * stride, b * stride
            z = x[:, :, top : top + stride, left : left + stride].mean((2, 3)) @ w["conv1.conv.weight"][..., 0, 0].T
            z = (z - w["conv1.bn.running_mean"]) / (w["conv1.bn.running_var"] + 1e-5).sqrt()
            z = (z * w["conv1.bn.weight"] + w["conv1.bn.bias"]).clamp(min=0)
            taps = z @ w["conv2.conv.weight"][..., 0, 0].T + w["conv2.conv.bias"]
            taps = taps.view(rows, -1, kernel, kernel).repeat_interleave(group, 1)  # [B, C, K, K]
            made[:, :, a, b] = (taps * wide[:, :, top : top + kernel, left : left + kernel]).sum((2, 3))
    return made


OTHERS: dict[str, tuple[Options, tuple[int, int]]] = {
    "their defaults": ({"channels": 32, "kernel_size": 7}, (5, 4)),
    "one pixel": ({"channels": 16, "kernel_size": 1}, (3, 3)),
    "an oblong image": ({"channels": 16, "kernel_size": 5}, (2, 9)),
    "a stride": ({"channels": 16, "kernel_size": 3, "stride": 2}, (6, 4)),
    "a stride beyond the kernel": ({"channels": 16, "kernel_size": 1, "stride": 3}, (6, 3)),
    "a kernel per channel": ({"channels": 6, "kernel_size": 3, "group_channels": 1, "reduction_ratio": 2}, (4, 4)),
    "a kernel for all": ({"channels": 10, "kernel_size": 3, "group_channels": 10, "reduction_ratio": 3}, (4, 4)),
    "nothing reduced": ({"channels": 8, "kernel_size": 3, "group_channels": 4, "reduction_ratio": 1}, (4, 4)),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_options(tmp_path: Path, case: str) -> None:
    c, size = OTHERS[case]
    w = weights(c)
    x = torch.randn(2, c["channels"], *size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    wanted = {"y": reference(c, w, x)}
    agree(replay(write(tmp_path, {"model_type": "involution", **c}, w, {"x": x}, wanted)), wanted, 10 * EXACT)


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    refused: tuple[tuple[Options, str], ...] = (
        ({"kernel_size": 4}, "a kernel of 4 pixels has no middle"),
        ({"kernel_size": 0}, "kernel_size is 0"),
        ({"group_channels": 5}, "32 channels do not divide into groups of 5"),
        ({"reduction_ratio": 64}, "a reduction of 64 leaves nothing of 32 channels"),
        ({"stride": 3}, "inputs.safetensors: x: an involution of stride 3 takes"),
        ({"channels": 4096}, "claims 1 layers of width 4096"),
        ({"kernel_size": 5}, "conv2.conv.weight has the shape"),
    )
    for config, message in refused:
        with pytest.raises(WeightsError, match=message):
            replay(damaged(GOLDEN / CASE, tmp_path / "copy", config))
    with pytest.raises(WeightsError, match="conv1.bn.running_var"):
        replay(damaged(GOLDEN / CASE, tmp_path / "copy", **{"conv1.bn.running_var": None}))
    with pytest.raises(WeightsError, match=r"takes \[rows, 32, height, width\]"):
        replay(damaged(GOLDEN / CASE, tmp_path / "copy", x=torch.zeros(2, 16, 8, 8)))
    with pytest.raises(WeightsError, match="inputs.safetensors has no x"):
        replay(damaged(GOLDEN / CASE, tmp_path / "copy", x=None))
