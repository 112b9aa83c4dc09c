"""Fine-tuning: a training may begin from a run or a pretrained checkpoint instead of random weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from ..core.config import read_data
from ..core.contract import Mixer
from ..core.errors import HeedError, RunError
from ..models import Shape
from ..text import AnyTokenizer, File, Tokenizer, pretrained
from ..weights import load
from ..weights.edits import Edit, LoRA, edit, merge
from ..weights.formats import native as own
from .folder import CONFIG, TOKENIZER, Run
from .recipe import Recipe


@dataclass(frozen=True)
class Base:
    """A model with its weights and its tokenizer. Adapters that it has learnt (LoRA) are worked into the weights."""

    shape: Shape
    edits: tuple[Edit, ...]
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer
    written: AnyTokenizer  # how a recipe names that tokenizer

    @classmethod
    def open(cls, path: Path | str) -> Base:
        """From a run folder or a checkpoint folder."""
        place = Path(path).expanduser()
        try:
            theirs = "model_type" in read_data(place / CONFIG)
            return cls._checkpoint(place) if theirs else cls._run(Run.open(place))
        except HeedError as error:
            raise RunError(f"base = {str(path)!r} cannot be begun from: {error}") from None

    @classmethod
    def _run(cls, run: Run) -> Base:
        model = run.model()
        merge(model)
        edits = tuple(change for change in run.recipe.edits if not isinstance(change, LoRA))
        return cls(run.shape, edits, own.tensors(model), run.tokenizer, run.recipe.tokenizer)

    @classmethod
    def _checkpoint(cls, place: Path) -> Base:
        opened = load(place)
        named = File(path=str((place / TOKENIZER).resolve()))
        return cls(opened.shape, opened.edits, own.tensors(opened.model), pretrained.read(place), named)

    def below(self, recipe: Recipe) -> Recipe:
        """The recipe with this model and this tokenizer in the place of those it names, its edits after the base's."""
        update = {"model": self.shape, "tokenizer": self.written, "edits": (*self.edits, *recipe.edits)}
        return recipe.model_copy(update=update)


def begun(run: Run) -> Mixer[Any]:
    """The model that a training begins with: fresh, or that of the base with fresh edits."""
    recipe = run.recipe
    if recipe.base is None:
        return run.build()
    base = Base.open(recipe.base)
    model = edit(run.shape.build(), *base.edits)
    own.fill(model, base.weights)
    return edit(model, *recipe.edits[len(base.edits) :])
