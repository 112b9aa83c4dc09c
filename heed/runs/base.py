"""Fine-tuning: a training may begin from a run or a pretrained checkpoint instead of random weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from ..core.config import read_data
from ..core.contract import Mixer
from ..core.errors import HeedError, RunError
from ..core.interfaces import Detects
from ..models import MULTIMODAL, AudioEncoder, Electra, Encoder, Seq2seq, Shape
from ..parts.outputs.heads import several
from ..pipelines.media.letters import of_folder
from ..tasks import Task
from ..text import AnyTokenizer, File, NoTokenizer, Tokenizer, holds, pretrained
from ..weights import Folder, open_
from ..weights.adapters.read import PeftAdapter
from ..weights.edits import Edit, LoRA, edit, merge
from ..weights.formats import native as own
from ..weights.formats.checkpoint import Checkpoint
from ..weights.formats.safetensors import Held
from ..weights.home.heads import understood_with
from ..weights.outline import unfilled
from ..weights.rename import export
from . import resolve
from .adapters import opened_with
from .folder import BASE, CONFIG, TOKENIZER, Run
from .recipe import Recipe

ENCODER, TABLE = "encoder.", "embeddings.table.weight"


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
            if PeftAdapter.is_there(place):
                return cls._adapter(place)
            theirs = "model_type" in read_data(place / CONFIG)
            return cls._checkpoint(place) if theirs else cls._run(Run.open(place))
        except HeedError as error:
            raise RunError(f"base = {str(path)!r} cannot be begun from: {error}") from None

    @classmethod
    def _run(cls, run: Run) -> Base:
        model = run.model()
        merge(model)
        shape = run.shape
        if isinstance(model, Detects) and isinstance(shape, Electra):
            model, shape = model.discriminator, shape.discriminating()
        edits = tuple(change for change in run.recipe.edits if not isinstance(change, LoRA))
        weights, beside = own.tensors(model), run.path / BASE
        return cls(shape, edits, weights, run.tokenizer, run.recipe.tokenizer, run.base, beside)

    @classmethod
    def _checkpoint(cls, place: Path) -> Base:
        origin = Folder.open(place).checkpoint
        opened = open_(origin)
        weights = own.tensors(opened.model)
        return cls(opened.shape, opened.edits, weights, *_tokenizer(place, opened.shape), origin, place)

    @classmethod
    def _adapter(cls, place: Path) -> Base:
        """A checkpoint with the adapters of another library worked in."""
        opened, beside = opened_with(place)
        merge(opened.model)
        weights = own.tensors(opened.model)
        origin = Checkpoint(beside, opened.config, Held(export(opened.model, opened.table)))
        return cls(opened.shape, opened.edits, weights, *_tokenizer(beside, opened.shape), origin, beside)

    def asked(self, task: Task) -> Base:
        """The same for a task that asks by a head: under a head as its family has it, so that it can go home.

        Of an encoder-decoder the encoder alone is asked.
        """
        head = task.head()
        if head is None:
            return self
        if isinstance(self.shape, Seq2seq.Config):
            kept = {name.removeprefix(ENCODER): one for name, one in self.weights.items() if name.startswith(ENCODER)}
            shared = self.weights.get(f"decoder.{TABLE}") if isinstance(self.shape.encoder, Encoder.Config) else None
            kept |= {} if TABLE in kept or shared is None else {TABLE: shared}
            return replace(self, shape=self.shape.encoder, weights=kept)
        heads = several(head)
        told = None if self.origin is None or len(heads) > 1 else understood_with(self.origin, heads[0], task.classes)
        return self if told is None else replace(self, shape=told.shape)

    def reading(self, tokenizer: Tokenizer, written: AnyTokenizer) -> Base:
        """The same, which has no tokenizer of its own, with this one: what it hears is labelled with its tokens."""
        return replace(self, shape=self.shape.sized(tokenizer.size), tokenizer=tokenizer, written=written)

    def below(self, recipe: Recipe) -> Recipe:
        """The recipe with this model and this tokenizer in the place of those it names, its edits after the base's."""
        fresh = self._fresh(recipe.task)
        edits = tuple(
            change.model_copy(update={"full": (*change.full, *fresh)}) if isinstance(change, LoRA) else change
            for change in recipe.edits
        )
        update = {"model": self.shape, "tokenizer": self.written, "edits": (*self.edits, *edits)}
        return recipe.model_copy(update=update)

    def _fresh(self, task: Task) -> tuple[str, ...]:
        """Weights of the head that this base lacks: they begin at random, and so must learn whatever else is frozen."""
        head = task.head()
        if head is None:
            return ()
        model = unfilled(self.shape.headed(head).build)
        return tuple(sorted(_with_fresh_heads(model, self.weights).keys() - _kept(model, self.weights).keys()))

    def keep(self, run: Run) -> None:
        """Let a run remember where it came from."""
        if self.origin is not None:
            run.begin_as(self.origin, self.beside)


def _tokenizer(place: Path, shape: Shape) -> tuple[Tokenizer, AnyTokenizer]:
    """A checkpoint's own, and how a recipe names it; of a model that looks or listens there may be none."""
    named = File(path=str((place / TOKENIZER).resolve()))
    if holds(place) or not isinstance(shape, tuple(MULTIMODAL)):
        return pretrained.read(place), named
    letters = of_folder(place) if isinstance(shape, AudioEncoder.Config) else None
    if letters is not None:
        return letters, named
    none = NoTokenizer()
    return none.train(), none


def begun(run: Run) -> Mixer[Any]:
    """The model that a training begins with: fresh, or that of the base with fresh edits."""
    recipe = run.recipe
    if recipe.base is None:
        return run.build()
    base = Base.open(recipe.base).asked(recipe.task)
    model = edit(run.shape.build(), *base.edits)
    own.fill(model, _with_fresh_heads(model, base.weights))
    return edit(model, *recipe.edits[len(base.edits) :])


def _with_fresh_heads(model: Mixer[Any], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a base for a model that may be asked by another head: what the base lacks of it stays fresh."""
    kept = _kept(model, weights)
    fresh = {name: one for name, one in own.tensors(model).items() if _is_of_head(name) and name not in kept}
    return {**kept, **fresh}


def _kept(model: Mixer[Any], weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a base that such a model has: of its heads, those that fit."""
    wanted = own.tensors(model)
    return {
        name: tensor
        for name, tensor in weights.items()
        if not _is_of_head(name) or (name in wanted and wanted[name].shape == tensor.shape)
    }


def _is_of_head(name: str) -> bool:
    return not {"heads", "head"}.isdisjoint(name.split("."))
