"""What a command is about: a run, a checkpoint, a recipe or a model's configuration; a shape without weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.config import Config, read_data
from ..core.contract import Mixer, Where
from ..core.errors import InputError
from ..core.interfaces import Encodes, LanguageModel, Sees
from ..core.state import Seen
from ..models import AnyPlan, Shape
from ..models.backbone import TokenBackbone
from ..models.plan import Plan
from ..models.seq2seq import Seq2seq
from ..pipelines.attentions import Inspected
from ..runs.recipe import Recipe, find, shipped
from ..weights.edits import SomeEdits, edit
from ..weights.outline import unfilled

VOCABULARY = 32_000  # of a recipe whose tokenizer is not learnt yet, unless one is named
BOXES = 4  # fields of a token on a page


@dataclass(frozen=True)
class Subject:
    """A model that can be asked about without being there."""

    name: str
    shape: Shape
    edits: SomeEdits = ()

    def model(self) -> Mixer[Any]:
        """It without memory: every tensor has a shape, and no numbers."""
        return unfilled(lambda: edit(self.shape.build(), *self.edits)).eval()


class Alone(Config):
    """A file that holds a model and nothing else, its kind at the top."""

    model: AnyPlan


def fields_of(shape: Config) -> int:
    """How many numbers a token of it brings: its id, its segment, its box."""
    if not isinstance(shape, TokenBackbone.Config):
        return 1
    return 1 + (shape.segments is not None) + BOXES * (shape.boxes is not None)


def subject(given: Subject | Shape | Mixer[Any] | Path | str, *, vocabulary: int = VOCABULARY) -> Subject:
    """Of a configuration in Python, the name of a recipe, a .toml or .json file of a recipe or of a model, a run, a
    checkpoint folder, a GGUF file, or the id of a model on a hub.
    """
    if isinstance(given, Subject):
        return given
    if isinstance(given, Plan):
        return Subject(type(given).__qualname__, _sized(given, vocabulary))
    if not isinstance(given, str | Path):
        raise InputError(f"a configuration, a path or a name is needed, not {type(given).__name__}")
    name = str(given)
    path = Path(name).expanduser()
    if name in shipped() or path.suffix in (".toml", ".json"):
        return replace(_configured(name, vocabulary), name=name)
    from ..runs.info import source

    parts = source(given).parts()
    return Subject(name, parts.shape, tuple(parts.edits))  # type: ignore[arg-type]  # they are edits, typed as configs


def _configured(name: str, vocabulary: int) -> Subject:
    """A recipe, or a model alone, which is what has a kind at its top."""
    path = find(name)
    data = read_data(path)
    if "kind" not in data:
        recipe = Recipe.read(path)
        return Subject(name, recipe.shape(_named(recipe.model) or vocabulary), recipe.edits)
    return Subject(name, _sized(Alone.load({"model": data}).model, vocabulary))


def _sized(plan: Plan, vocabulary: int) -> Shape:
    """For so many tokens, unless it says itself how many it has, or has none."""
    return plan if isinstance(plan, Shape) and (_named(plan) or not _reads(plan)) else plan.sized(vocabulary)


def _reads(plan: Plan) -> bool:
    return isinstance(plan, TokenBackbone.Config | Seq2seq.Config)


def _named(plan: Plan) -> int | None:
    """The vocabulary that it names."""
    inner = plan.decoder if isinstance(plan, Seq2seq.Config) else plan
    return inner.vocabulary if isinstance(inner, TokenBackbone.Config) else None


def given(shape: Shape, tokens: int, rows: int = 1, device: str = "meta") -> Inspected:
    """What such a model reads: so many tokens; of an encoder-decoder, of source and target each."""
    if isinstance(shape, Seq2seq.Config) and isinstance(shape.encoder, TokenBackbone.Config):
        source = _ids(rows, tokens, fields_of(shape.encoder), device)
        return Inspected(_ids(rows, tokens, 1, device), source=source)
    if isinstance(shape, TokenBackbone.Config):
        return Inspected(_ids(rows, tokens, fields_of(shape), device))
    raise InputError(
        f"{type(shape).__qualname__} reads no tokens alone; the cost of language models, encoders of texts and "
        "encoder-decoders of texts is told"
    )


def _ids(rows: int, tokens: int, fields: int, device: str) -> Tensor:
    size = (rows, tokens) if fields == 1 else (rows, tokens, fields)
    return torch.zeros(size, dtype=torch.long, device=device)


def outputs(model: Mixer[Any], reading: Inspected) -> Tensor:
    """What is trained on: logits, or the stream of an encoder."""
    assert reading.ids is not None
    where = Where.run(*reading.ids.shape[:2], device=reading.ids.device)
    if reading.source is not None:
        assert isinstance(model, Encodes)
        before = Where.run(*reading.source.shape[:2], device=reading.source.device)
        where = where.give(encoder_output=model.encode(reading.source, before))
    if isinstance(model, Encodes) and not isinstance(model, LanguageModel):
        seen: Seen = model.encode(reading.ids, where)
        return seen.parts[0]
    if isinstance(model, Sees):
        raise InputError("a model of images has no cost per token of a text")
    y, _ = model(reading.ids, where)
    found: Tensor = y
    return found
