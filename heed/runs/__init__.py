"""Run folders: written by training, taken by `heed.load`."""

from __future__ import annotations

from pathlib import Path

import torch

from ..tasks import Ready
from .folder import Run as Run
from .recipe import Recipe as Recipe
from .recipe import find as find
from .training import Training as Training


def load(path: Path | str, device: torch.device | str | None = None) -> Ready:
    """The trained model of a run folder, ready for use: text in, text out."""
    run = Run.open(path)
    return run.recipe.task.ready(run.model().to(device), run.tokenizer)
