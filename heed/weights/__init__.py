"""Checkpoints: reading and writing those of other libraries, and replaying what a reference computed.

Names are imported when they are first asked for: `later` and the tables of `core/tables.py` (`AUTHORS` here, `FAMILIES`
in families/) do that, and nothing else happens at import.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.contract import Mixer
from ..core.tables import Named, gc_paused, later
from .families import FAMILIES, open_
from .families.base import Family, Opened
from .formats.checkpoint import Checkpoint
from .formats.folder import Folder

if TYPE_CHECKING:
    from .formats.export import write
    from .replays.replay import replay
else:
    __getattr__, __dir__ = later(__name__, {"replay": "replays.replay", "write": "formats.export"})

__all__ = ["AUTHORS", "FAMILIES", "Checkpoint", "Family", "Folder", "Opened", "load", "open_", "replay", "write"]

# Whole models in their authors' own layouts, which no library but theirs reads.
AUTHORS: Named[Callable[[Folder], Mixer[Any]]] = Named(
    __name__,
    {
        "annotated_transformer": "replays.authors.transformer:annotated_model",
        "crate": "replays.authors.crate:model",
        "deepnorm": "replays.authors.torchscale:model",
        "infini": "replays.authors.infini:model",
        "linformer": "replays.authors.linformer:model",
        "lite_transformer": "replays.authors.lite:model",
        "longnet": "replays.authors.longnet:model",
        "retnet": "replays.authors.retnet:model",
        "transformer": "replays.authors.transformer:torch_model",
        "xpos": "replays.authors.torchscale:model",
        "yoco": "replays.authors.yoco:model",
    },
)


@gc_paused()
def load(path: Path | str) -> Opened:
    """The model of a checkpoint folder, with what is needed to write it back."""
    return open_(Folder.open(path).checkpoint)
