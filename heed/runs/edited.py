"""A run with another model in it: packed into few bits, or with its adapters worked in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.contract import Mixer
from ..core.errors import InputError
from ..weights.edits import Edit, LoRA, edit, merge
from .card import laws, write_card
from .folder import Run


def edited(source: Path | str, target: Path | str, *edits: Edit) -> Run:
    """A new run folder: the same model, edited. Its recipe tells so, and it rebuilds itself."""
    run = Run.open(source)
    return _written(run, target, edit(run.model(), *edits), (*run.recipe.edits, *edits))


def merged(source: Path | str, target: Path | str) -> Run:
    """A new run folder without adapters (LoRA): what they learnt is in the weights."""
    run = Run.open(source)
    model = run.model()
    if not merge(model):
        raise InputError(f"{source} has no adapters to work in; its edits are {list(run.recipe.edits)}")
    return _written(run, target, model, tuple(change for change in run.recipe.edits if not isinstance(change, LoRA)))


def _written(run: Run, target: Path | str, model: Mixer[Any], edits: tuple[Edit, ...]) -> Run:
    made = Run.create(target, run.recipe.model_copy(update={"edits": edits}), run.tokenizer)
    made.keep(model)
    write_card(made, laws(made.model()))
    return made
