"""Every family of checkpoints against the numbers that its reference library computed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from heed.verify.golden import grid
from heed.weights import FAMILIES, replay
from tests.weights.support import GOLDEN, TOLERANCES

TYPES = {name for family in FAMILIES for name in family.types}
CASES = sorted(
    case for case in TOLERANCES if json.loads((GOLDEN / case / "config.json").read_text())["model_type"] in TYPES
)


def absolute(case: str) -> float:
    """The stated error of a case; a greedy one has that of its family's other cases."""
    family = case.partition("/")[0]
    alike = [found for name, found in TOLERANCES.items() if name.startswith(f"{family}/")]
    return float(TOLERANCES[case].get("absolute") or max(found.get("absolute", 0.0) for found in alike))


def real(name: str, gap: Tensor, mask: Tensor | None) -> Tensor:
    """The part of an output that is about tokens; what a reference gives at padding means nothing."""
    if mask is None:
        return gap
    mask = mask.bool()
    if "attentions" in name:
        gap = gap.transpose(1, 2)
    if gap.shape[:2] == mask.shape:
        return gap[mask]
    return gap[mask.flatten()] if name.startswith("router") else gap


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    wanted, inputs = (load_file(GOLDEN / case / f"{name}.safetensors") for name in ("outputs", "inputs"))
    made = replay(GOLDEN / case)
    assert made.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert (made[name].shape, made[name].dtype) == (tensor.shape, tensor.dtype), name
        if not tensor.is_floating_point():
            assert torch.equal(made[name], tensor), name
            continue
        gap = real(name, (made[name].double() - tensor.double()).abs(), inputs.get("attention_mask"))
        assert gap.numel(), name
        stated = max(absolute(case), grid(tensor))  # a loss of 122 cannot be told to 1.4e-06 in float32
        assert gap.max().item() <= 10 * stated, f"{name} differs by {gap.max().item():.2g}"


def test_no_golden_folder_is_left_out() -> None:
    """A new folder comes with its tolerance, a new family with its folders."""
    folders = {path.parent.relative_to(GOLDEN).as_posix() for path in Path(GOLDEN).rglob("config.json")}
    assert folders == set(TOLERANCES)
