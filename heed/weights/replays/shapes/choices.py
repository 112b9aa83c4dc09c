"""Several answers to choose from: each is read as a row of its own, and their scores stand side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ....core.errors import WeightsError
from ...formats.folder import INPUTS, Folder
from ..inputs import Outputs
from .shared import mean_loss


def chosen(folder: Folder, answered: Callable[[Folder], Outputs]) -> Outputs:
    """What `answered` makes of a folder. If ids are [rows, answers, tokens], `logits` are [rows, answers]."""
    ids = folder.inputs.get("input_ids")
    if ids is None or ids.dim() != 3:
        return answered(folder)
    rows, answers = ids.shape[:2]
    labels, flat = folder.inputs.get("labels"), replace(folder)
    given = {name: tensor for name, tensor in folder.inputs.items() if name != "labels"}
    vars(flat)["inputs"] = {
        name: tensor.flatten(0, 1) if tensor.shape[:2] == (rows, answers) else tensor for name, tensor in given.items()
    }
    made = answered(flat)
    if "logits" not in made or made["logits"].shape != (rows * answers, 1):
        raise WeightsError(
            f"{folder.path / INPUTS}: input_ids has the shape {list(ids.shape)}, answers to choose from; this model "
            "has no head that gives one score to each"
        )
    made["logits"] = made["logits"].reshape(rows, answers)
    if labels is None:
        return made
    if labels.numel() != rows or labels.is_floating_point():
        raise WeightsError(
            f"{folder.path / INPUTS}: labels are {labels.dtype} of the shape {list(labels.shape)}; needed is the "
            f"number of an answer for each of {rows} rows"
        )
    return made | {"loss": mean_loss(made["logits"], labels.flatten().long())}
