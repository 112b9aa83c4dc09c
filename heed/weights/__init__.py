"""Checkpoints: reading and writing other people's, and replaying what a reference computed."""

from __future__ import annotations

from pathlib import Path

from .checkpoint import Checkpoint
from .export import write
from .families import FAMILIES, open_
from .family import Family, Opened
from .folder import Folder
from .replay import replay

__all__ = ["FAMILIES", "Checkpoint", "Family", "Folder", "Opened", "load", "replay", "write"]


def load(path: Path | str) -> Opened:
    """The model of a checkpoint folder, with what is needed to write it back."""
    return open_(Folder.open(path).checkpoint)
