"""Checkpoints: reading and writing other people's, and replaying what a reference computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.collector import at_rest
from ..core.contract import Mixer
from ..core.tables import Named, later
from .checkpoint import Checkpoint
from .families import FAMILIES, open_
from .family import Family, Opened
from .folder import Folder

if TYPE_CHECKING:
    from .export import write
    from .replays import replay
else:
    __getattr__, __dir__ = later(__name__, {"replay": "replays", "write": "export"})

__all__ = ["AUTHORS", "FAMILIES", "Checkpoint", "Family", "Folder", "Opened", "load", "open_", "replay", "write"]

# Whole models in their authors' own layouts, which no library but theirs reads.
AUTHORS: Named[Callable[[Folder], Mixer[Any]]] = Named(
    __name__,
    {
        "annotated_transformer": "transformer.annotated_model",
        "crate": "crate.model",
        "deepnorm": "torchscale.model",
        "infini": "infini.model",
        "linformer": "linformer.model",
        "lite_transformer": "lite.model",
        "longnet": "longnet.model",
        "retnet": "retnet.model",
        "transformer": "transformer.torch_model",
        "xpos": "torchscale.model",
        "yoco": "yoco.model",
    },
)


@at_rest()
def load(path: Path | str) -> Opened:
    """The model of a checkpoint folder, with what is needed to write it back."""
    return open_(Folder.open(path).checkpoint)
