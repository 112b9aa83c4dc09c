"""A checkpoint, whatever file it comes from: the config.json of its family, and tensors under that family's names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...core.config import Data
from .safetensors import Tensors

OWN = "heed"  # the model_type of checkpoints in heed's own layout: quantised ones


@dataclass(frozen=True)
class Checkpoint:
    """What the reader of a folder or file gives."""

    place: Path  # what messages name
    config: Data  # as a config.json holds it
    tensors: Tensors
