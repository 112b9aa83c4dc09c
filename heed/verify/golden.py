"""Proofs against recorded runs: heed computes again what a reference computed, output by output.

How far the two may differ is stated by a tolerances.json two folders up or, without one, measured: ten times what
float32 costs heed itself here, the largest difference between its own float32 and float64 replays. A statement finer
than the numbers themselves is none: a loss of 122 lies on a grid of 8e-6 in float32, in any library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from ..core.errors import InputError, WeightsError
from ..core.laws import Finding
from ..weights import replay
from ..weights.formats.folder import CONFIG, INPUTS, OUTPUTS
from .base import Check, compared

TIMES = 10  # the share of the rounding error that another order of sums may cost
STATED = "tolerances.json"
STATEMENT = "gives what the reference gave"
TINY = 1e-6  # relative: below it, float32 says nothing


def recorded(folders: Sequence[Path]) -> list[Check]:
    """One proof per golden folder, of its worst output; a folder of folders stands for all of them."""
    return [_check(case) for folder in folders for case in _cases(folder)]


def _cases(folder: Path) -> list[Path]:
    if (folder / OUTPUTS).is_file():
        return [folder]
    cases = sorted(path.parent for path in folder.rglob(OUTPUTS)) if folder.is_dir() else []
    if not cases:
        raise InputError(f"{folder} is no golden folder and holds none; one has {CONFIG}, {INPUTS} and {OUTPUTS}")
    return cases


def _check(case: Path) -> Check:
    return compared(f"{case.parent.name}/{case.name}", STATEMENT, lambda: findings(case))


def findings(case: Path) -> list[Finding]:
    """For each output: how far heed is off, and how far it may be."""
    wanted, inputs = load_file(case / OUTPUTS), load_file(case / INPUTS)
    made, masks = replay(case), shown(inputs, _padding(case))
    if not all(bool(mask.any()) for mask in masks):
        raise WeightsError(f"{case}: a mask among the inputs hides every token, so that nothing is left to compare")
    bound = stated(case)
    exact = None if bound else replay(case, torch.float64)
    found = []
    for name, tensor in wanted.items():
        if made[name].shape != tensor.shape:
            raise WeightsError(f"{case}: heed gives {name} as {list(made[name].shape)}, not {list(tensor.shape)}")
        error = _largest(real(name, made[name].double() - tensor.double(), masks))
        if not tensor.is_floating_point():
            limit = 0.0
        elif exact is None:
            limit = TIMES * max(bound or 0.0, grid(tensor))
        else:
            rounding = _largest(real(name, made[name].double() - exact[name].double(), masks))
            limit = TIMES * max(rounding, TINY * float(tensor.abs().max()))
        found.append(Finding(STATEMENT, error, limit, name))
    return found


def stated(case: Path) -> float | None:
    """The reference's own rounding error, if it is recorded beside the folders."""
    path = case.parent.parent / STATED
    if not path.is_file():
        return None
    known = json.loads(path.read_text(encoding="utf-8"))
    alike = {name: found for name, found in known.items() if name.partition("/")[0] == case.parent.name}
    own = alike.get(f"{case.parent.name}/{case.name}", {}).get("absolute")
    return own or max((found["absolute"] for found in alike.values() if "absolute" in found), default=None)


def grid(tensor: Tensor) -> float:
    """What rounding alone may cost the largest number of an output: half a unit in its last place."""
    return torch.finfo(tensor.dtype).eps / 2 * _largest(tensor[tensor.isfinite()])


def shown(inputs: Mapping[str, Tensor], padding: int | None = None) -> list[Tensor]:
    """Where there are tokens, by every mask among the inputs, whatever its authors call it, or by the id of padding.

    [B, T] each
    """
    found = [mask.bool() for name, mask in inputs.items() if name.endswith("attention_mask")]
    found += [~mask.bool() for name, mask in inputs.items() if name.endswith("padding_mask")]
    if "src_mask" in inputs:  # [B, 1, T], True = visible
        found.append(inputs["src_mask"].bool()[:, 0])
    if padding is not None and "src_tokens" in inputs:  # fairseq's models read their mask off the tokens
        found.append(inputs["src_tokens"] != padding)
    return [mask for mask in found if mask.dim() == 2]


def _padding(case: Path) -> int | None:
    found = json.loads((case / CONFIG).read_text(encoding="utf-8")).get("padding_idx")
    return found if isinstance(found, int) else None


def real(name: str, gap: Tensor, masks: Sequence[Tensor]) -> Tensor:
    """The part of an output that is about tokens: what a reference gives at padding means nothing."""
    if "attentions" in name:
        gap = gap.transpose(1, 2)
    if gap.dim() < 2:
        return gap
    for mask in masks:
        for seen in (mask, mask.T):  # some put time first
            if gap.shape[:2] == seen.shape:
                gap = gap.masked_fill(~seen.reshape(*seen.shape, *(1,) * (gap.dim() - 2)), 0)
                break
        else:
            if gap.shape[0] == mask.numel() and gap.dim() == 2:  # tokens of all rows, one after the other
                gap = gap.masked_fill(~mask.flatten()[:, None], 0)
    return gap


def _largest(gap: Tensor) -> float:
    return float(gap.abs().max()) if gap.numel() else 0.0
