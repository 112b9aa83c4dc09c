"""What the tests of checkpoint families share: golden folders, folders made up on the spot, and how to compare."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from heed.core.contract import Mixer, Where

GOLDEN = Path(__file__).parents[1] / "golden"
TOLERANCES = json.loads((GOLDEN / "tolerances.json").read_text())
EXACT = 1e-12  # float64 rounds at 1e-16; a few layers of sums of about a hundred terms lose less than four digits

Tensors = dict[str, Tensor]
Options = dict[str, Any]

T, O = True, False  # noqa: E741  # a mask is easier to read in letters of one width
PADDING = {
    "none": None,
    "right": torch.tensor([[O] * 9, [O] * 5 + [T] * 4]),
    "left": torch.tensor([[T] * 3 + [O] * 6, [O] * 9]),
    "in the middle": torch.tensor([[O, T, T, O, O, T, O, O, T], [T, O, O, O, T, O, O, O, O]]),
}


def write(path: Path, config: Options, weights: Tensors, inputs: Tensors, outputs: Tensors | None = None) -> Path:
    """A folder like a golden one; a mechanism without weights has a placeholder."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    held = weights or {"_empty": torch.zeros(1)}
    for name, tensors in {"model": held, "inputs": inputs, "outputs": outputs}.items():
        if tensors is not None:
            save_file(
                {key: tensor.contiguous().clone() for key, tensor in tensors.items()}, path / f"{name}.safetensors"
            )
    return path


def damaged(golden: Path, copy: Path, config: Options | None = None, /, **changes: Tensor | None) -> Path:
    """A copy of a golden folder with other entries in its config and other tensors; None: without."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(golden, copy)
    held = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**held, **(config or {})}))
    for file in ("model", "inputs"):
        tensors = load_file(copy / f"{file}.safetensors")
        tensors |= {name: tensor for name, tensor in changes.items() if name in tensors and tensor is not None}
        kept = {name: tensor for name, tensor in tensors.items() if changes.get(name, tensor) is not None}
        save_file(kept, copy / f"{file}.safetensors")
    return copy


def agree(made: Tensors, wanted: Tensors, tolerance: float, real: Tensor | None = None) -> None:
    """Equal where there are tokens (`real` [B, T] is about the encoder), and equal in shape everywhere."""
    assert made.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert (made[name].shape, made[name].dtype) == (tensor.shape, tensor.dtype), name
        gap = (made[name].double() - tensor.double()).abs()
        if real is not None and name.startswith("enc"):
            gap = gap[real if gap.shape[:2] == real.shape else real.T]
        assert gap.numel(), name
        assert gap.max().item() <= tolerance, f"{name} differs by {gap.max().item():.2g}"


def pieces(length: int, seed: int) -> list[tuple[int, int]]:
    cuts = torch.randperm(length - 1, generator=torch.Generator().manual_seed(seed))[:4].sort().values + 1
    return list(zip([0, *cuts.tolist()], [*cuts.tolist(), length], strict=True))


@torch.no_grad()
def whole_and_in_pieces(model: Mixer[Any], tokens: Tensor, seed: int, tolerance: float) -> None:
    """One call gives what several calls give that hand on a state; sums in another order, as between two references."""
    where, made = Where.run(*tokens.shape), []
    whole, _ = model(tokens, where)
    state = model.start(len(tokens))
    for begin, end in pieces(tokens.shape[1], seed):
        piece, state = model(tokens[:, begin:end], where.cut(begin, end), state)
        assert state is not None
        made.append(piece)
    assert (torch.cat(made, 1) - whole).abs().max().item() <= tolerance


def linear(w: Tensors, name: str, x: Tensor) -> Tensor:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def normed(w: Tensors, name: str, x: Tensor, eps: float) -> Tensor:
    spread = (x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / (spread + eps).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]
