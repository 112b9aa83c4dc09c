"""Run folders: written by training, taken by `heed.load`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from ..core.config import read_data
from ..core.errors import ConfigError, RunError
from ..tasks import Ready
from ..weights.edits import Quantised, edit
from .folder import CONFIG
from .folder import Run as Run
from .recipe import Recipe as Recipe
from .recipe import find as find
from .training import Training as Training


def load(
    path: Path | str, device: torch.device | str | None = None, *, quantise: Literal["int8", "int4"] | None = None
) -> Ready:
    """A model, ready for use: of a run folder, of a checkpoint folder (Hugging Face's or authors'), of a GGUF file.

    What it can do depends on it: generate, chat, translate, embed, fill, classify, tag, transcribe. `quantise` rounds
    its matrices to 8 or 4 bits, which makes it smaller and quicker on a CPU, and a little less exact.
    """
    ready = _loaded(path, device)
    if quantise is not None:
        edit(ready.model, Quantised(bits=quantise))
    return ready


def _loaded(path: Path | str, device: torch.device | str | None) -> Ready:
    place = Path(path)
    if not place.exists():
        raise RunError(f"{path} is not a folder or a file; give a run folder, a checkpoint folder or a .gguf file")
    if place.is_file() or _is_checkpoint(place):
        from .checkpoint import load as load_checkpoint  # loading a run needs none of it

        ready = load_checkpoint(place)
        ready.model.to(device)
        return ready
    run = Run.open(place)
    return run.recipe.task.ready(run.model().to(device), run.tokenizer)


def _is_checkpoint(folder: Path) -> bool:
    """A run's config.json has a task; other people's have a model_type."""
    if not (folder / CONFIG).is_file():
        return any(folder.glob("*.gguf"))
    try:
        return "model_type" in read_data(folder / CONFIG)
    except ConfigError:
        return False
