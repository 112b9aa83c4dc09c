"""Checkpoints: reading and writing other people's, and replaying what a reference computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..core.contract import Mixer
from . import crate, infini, linformer, lite, longnet, retnet, torchscale, transformer, yoco
from .checkpoint import Checkpoint
from .export import write
from .families import FAMILIES, open_
from .family import Family, Opened
from .folder import Folder
from .replay import replay

__all__ = ["AUTHORS", "FAMILIES", "Checkpoint", "Family", "Folder", "Opened", "load", "open_", "replay", "write"]

# Whole models in their authors' own layouts, which no library but theirs reads.
AUTHORS: dict[str, Callable[[Folder], Mixer[Any]]] = {
    "annotated_transformer": transformer.annotated_model,
    "crate": crate.model,
    "deepnorm": torchscale.model,
    "infini": infini.model,
    "linformer": linformer.model,
    "lite_transformer": lite.model,
    "longnet": longnet.model,
    "retnet": retnet.model,
    "transformer": transformer.torch_model,
    "xpos": torchscale.model,
    "yoco": yoco.model,
}


def load(path: Path | str) -> Opened:
    """The model of a checkpoint folder, with what is needed to write it back."""
    return open_(Folder.open(path).checkpoint)
