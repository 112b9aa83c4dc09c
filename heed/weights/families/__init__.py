"""One file per family of checkpoints. `FAMILIES` is the table: loading, export, replay, the catalogue work from it."""

from __future__ import annotations

from difflib import get_close_matches

from ...core.errors import WeightsError
from ..checkpoint import Checkpoint
from ..family import Family, Opened, read
from .gpt2 import GPT2

FAMILIES: tuple[type[Family], ...] = (GPT2,)


def open_(checkpoint: Checkpoint) -> Opened:
    """The model of a checkpoint, by the model_type of its config."""
    known = {name: family for family in FAMILIES for name in family.types}
    name = checkpoint.config.get("model_type")
    if not isinstance(name, str):
        raise WeightsError(f"{checkpoint.place}: its config must name its model_type as a text, it has {name!r}")
    if name not in known:
        near = ", ".join(get_close_matches(name, known, 3))
        raise WeightsError(
            f"{checkpoint.place} holds a {name!r} model, which heed cannot load; "
            + (f"near names: {near}; " if near else "")
            + f"it loads {', '.join(sorted(known))}"
        )
    return read(known[name], checkpoint)
