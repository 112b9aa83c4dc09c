"""Does heed give what the reference gave? Feed a golden folder's inputs to its checkpoint and see.

A family of `families/` is replayed by the shape of its model (`shapes/`). Families that are less or other than a whole
model have a function from a folder to named outputs, and a line in `REPLAYS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import torch
from torch import Tensor

from ...core.errors import WeightsError
from ..families import FAMILIES, open_
from ..families.rope import at_length
from ..formats.checkpoint import Checkpoint
from ..formats.folder import OUTPUTS, Folder
from .authors import (
    bitnet,
    classics,
    crate,
    infini,
    involution,
    linformer,
    lite,
    longnet,
    performer,
    residual,
    retnet,
    retro,
    torchscale,
    transfo_xl,
    transformer,
    yoco,
)
from .inputs import Outputs
from .shapes import outputs

REPLAYS: dict[str, Callable[[Folder], Outputs]] = {
    "annotated_transformer": transformer.annotated_outputs,
    "bahdanau": classics.bahdanau,
    "crate": crate.outputs,
    "deepnorm": torchscale.outputs,
    "dot_product": classics.dot_product,
    "infini": infini.outputs,
    "involution": involution.outputs,
    "linformer": linformer.outputs,
    "lite_transformer": lite.outputs,
    "longnet": longnet.outputs,
    "nadaraya_watson": classics.nadaraya_watson,
    "performer": performer.outputs,
    "residual": residual.outputs,
    "retnet": retnet.outputs,
    "retro": retro.outputs,
    "sparse": classics.sparse,
    "transfo-xl": transfo_xl.outputs,
    "transformer": transformer.torch_outputs,
    "xpos": torchscale.outputs,
    "yoco": yoco.outputs,
}


@torch.no_grad()
def replay(folder: Path | str, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """What heed computes from the inputs in a golden folder, under the names of its outputs.safetensors.

    Without that file: everything the family can make. Computed in the precision of the weights, or in `dtype`.
    """
    golden = replace(Folder.open(folder), precision=dtype)
    made = {name: tensor.detach() for name, tensor in _made(golden).items()}  # it may be a weight, as it is
    if golden.wanted is None:
        return made
    lacking = [name for name in golden.wanted if name not in made]
    if lacking:
        raise WeightsError(
            f"{golden.path / OUTPUTS} holds {', '.join(lacking)}, which heed does not make for {golden.family}; "
            f"it makes {', '.join(sorted(made))}"
        )
    return {name: made[name] for name in golden.wanted}


def _made(golden: Folder) -> Outputs:
    if golden.family in REPLAYS:
        return REPLAYS[golden.family](golden)
    if golden.family == "bitnet" and bitnet.is_layer(golden):
        return bitnet.outputs(golden)
    known = {*REPLAYS, *(name for family in FAMILIES for name in family.types)}
    if golden.family not in known:
        near = "".join(f"did you mean {name}? " for name in get_close_matches(golden.family, known, 1))
        raise WeightsError(
            f"{golden.path} holds a {golden.family!r} model, which heed cannot replay; {near}"
            f"it replays {', '.join(sorted(known))}"
        )
    return outputs(open_(_at_length(golden)), golden)


def _at_length(golden: Folder) -> Checkpoint:
    """The checkpoint as this call uses it: some rotations depend on the farthest position that a call holds."""
    checkpoint, places = golden.checkpoint, golden.inputs.get("position_ids", golden.inputs.get("input_ids"))
    if places is None or places.dim() != 2 or places.numel() == 0 or places.dtype not in (torch.int32, torch.int64):
        return checkpoint  # which is refused where it is read
    farthest = int(places.max()) if "position_ids" in golden.inputs else places.shape[-1] - 1
    return replace(checkpoint, config=at_length(checkpoint.config, max(farthest, 0) + 1))
