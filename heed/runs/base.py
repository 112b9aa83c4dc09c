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
from ..weights import Folder, open_
from ..weights.edits import Edit, LoRA, edit, merge
from ..weights.formats import native as own
from ..weights.formats.checkpoint import Checkpoint
from . import resolve
from .folder import BASE, CONFIG, TOKENIZER, Run
from .recipe import Recipe


@dataclass(frozen=True)
class Base:
    """A model with its weights and its tokenizer. Adapters that it has learnt (LoRA) are worked into the weights."""

    shape: Shape
    edits: tuple[Edit, ...]
    weights: Mapping[str, Tensor]
    tokenizer: Tokenizer
    written: AnyTokenizer  # how a recipe names that tokenizer
    origin: Checkpoint | None = None  # the checkpoint that it was at first
    beside: Path = Path()  # where that one's other files lie

    @classmethod
    def open(cls, path: Path | str) -> Base:
        """From a run folder, a checkpoint folder, or a model of the hub by its id."""
        try:
            place = resolve(path)
            theirs = "model_type" in read_data(place / CONFIG)
            return cls._checkpoint(place) if theirs else cls._run(Run.open(place))
        except HeedError as error:
            raise RunError(f"base = {str(path)!r} cannot be begun from: {error}") from None

    @classmethod
    def _run(cls, run: Run) -> Base:
        model = run.model()
        merge(model)
        edits = tuple(change for change in run.recipe.edits if not isinstance(change, LoRA))
        weights, beside = own.tensors(model), run.path / BASE
        return cls(run.shape, edits, weights, run.tokenizer, run.recipe.tokenizer, run.base, beside)

    @classmethod
    def _checkpoint(cls, place: Path) -> Base:
        origin = Folder.open(place).checkpoint
        opened = open_(origin)
        named = File(path=str((place / TOKENIZER).resolve()))
        weights = own.tensors(opened.model)
        return cls(opened.shape, opened.edits, weights, pretrained.read(place), named, origin, place)

    def below(self, recipe: Recipe) -> Recipe:
        """The recipe with this model and this tokenizer in the place of those it names, its edits after the base's."""
        update = {"model": self.shape, "tokenizer": self.written, "edits": (*self.edits, *recipe.edits)}
        return recipe.model_copy(update=update)

    def keep(self, run: Run) -> None:
        """Let a run remember where it came from."""
        if self.origin is not None:
            run.begin_as(self.origin, self.beside)


def begun(run: Run) -> Mixer[Any]:
    """The model that a training begins with: fresh, or that of the base with fresh edits."""
    recipe = run.recipe
    if recipe.base is None:
        return run.build()
    base = Base.open(recipe.base)
    model = edit(run.shape.build(), *base.edits)
    own.fill(model, base.weights)
    return edit(model, *recipe.edits[len(base.edits) :])
