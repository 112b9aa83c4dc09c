"""What a run, a checkpoint or a GGUF file is, without reading its weights: sizes, state per token, what it can do.

The model is built without memory, from its config and the headers of its files, and priced by its `spec`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.config import Config, kind_of
from ..core.contract import Mixer
from ..core.errors import WeightsError, counted
from ..core.interfaces import LanguageModel
from ..core.spec import Spec, price, words
from ..models.stack import Stack
from ..pipelines import Pipeline
from ..pipelines.checkpoint import pipeline_for
from ..show.settings import sections
from ..tasks import Causal
from ..text import NoTokenizer, Tokenizer, holds, pretrained
from ..text.tokenizer_config import TokenizerSettings
from ..weights import AUTHORS, Folder, Opened
from ..weights.edits import Edit, edit
from ..weights.families import kind_of as family_of
from ..weights.families.base import understood
from ..weights.formats import gguf
from ..weights.formats.checkpoint import OWN, Checkpoint
from ..weights.formats.folder import CONFIG
from ..weights.formats.quantised import SOURCE, Told, theirs
from ..weights.formats.safetensors import Stored, Tensors
from ..weights.outline import EACH, FUSED, outlined, unfilled
from . import resolve
from .folder import METRICS, WEIGHTS, Run
from .records import history

if TYPE_CHECKING:
    from ..models import Shape

CONTEXTS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")  # of a config.json
FAR = 1 << 16  # tokens, beyond every window: what a token costs from then on


@dataclass(frozen=True)
class Layers:
    """A stack of blocks: how many, how wide, and what they are made of."""

    place: str
    depth: int
    width: int
    mixers: tuple[str, ...]
    heads: int | None
    kv_heads: int | None


@dataclass(frozen=True)
class Memory:
    """What is kept of a text (the KV cache and the like), per row."""

    law: str
    per_token: int  # bytes, at first
    later: int  # bytes per token far behind, where windows are full
    per_source: int  # bytes per token of a source
    fixed: int  # bytes, whatever the length

    @classmethod
    def of(cls, spec: Spec) -> Memory:
        fixed = price(spec, 0)
        slots = Counter(words(spec).split("; "))
        law = "; ".join(f"{count} × ({slot})" if count > 1 else slot for slot, count in slots.items())
        late = (price(spec, 2 * FAR) - price(spec, FAR)) // FAR
        return cls(law, price(spec, 1) - fixed, late, price(spec, 0, 1) - fixed, fixed)


@dataclass(frozen=True)
class Parts:
    """What a place says of its model."""

    family: str
    shape: Shape
    model: Mixer[Any]  # without memory
    parameters: int  # of it before its edits
    pipeline: Pipeline
    stored: Mapping[str, int]
    files: tuple[Path, ...]  # that hold the weights
    edits: tuple[Config, ...] = ()
    training: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Info:
    """All there is to say."""

    path: str
    what: str
    family: str
    model: str  # which of heed's models
    pipeline: str
    parameters: int
    bytes: int  # of the weights on disk
    stored: Mapping[str, int]  # parameters by how they are stored
    layers: tuple[Layers, ...]
    vocabulary: int | None
    context: int | None
    memory: Memory | None  # None: it does not stream
    tokenizer: str
    chat_template: bool
    can: tuple[str, ...]
    edits: tuple[str, ...] = ()
    training: Mapping[str, Any] | None = None

    def plain(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


class Source(ABC):
    """A place that holds a model; each kind of place says what it is in its own way."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    @abstractmethod
    def what(self) -> str:
        """What lies there, in words."""

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        """Of the folder, if it has one."""
        return pretrained.read(self.path) if holds(self.path) else None

    def algorithm(self, tokenizer: Tokenizer) -> str:
        """How it cuts texts."""
        return tokenizer.algorithm

    @property
    @abstractmethod
    def chats(self) -> bool:
        """Whether there is a chat template; told without the tokenizer, in no time."""

    @property
    @abstractmethod
    def context(self) -> int | None:
        """How many tokens it was trained on at once, as far as its config says."""

    @abstractmethod
    def parts(self) -> Parts:
        """Its model and what belongs to it."""

    def info(self) -> Info:
        parts, tokenizer = self.parts(), self.tokenizer
        model, vocabulary, longest = parts.model, None if tokenizer is None else tokenizer.size, None
        if isinstance(model, LanguageModel):
            vocabulary, longest = model.vocabulary, model.longest
        return Info(
            path=str(self.path),
            what=self.what,
            family=parts.family,
            model=kind_of(type(parts.shape)),
            pipeline=type(parts.pipeline).__name__,
            parameters=parts.parameters,
            bytes=sum(file.stat().st_size for file in parts.files),
            stored=parts.stored,
            layers=tuple(_layers(parts.shape)),
            vocabulary=vocabulary,
            context=longest or self.context,
            memory=Memory.of(model.spec()) if model.streams else None,
            tokenizer="" if tokenizer is None else f"{self.algorithm(tokenizer)}, {counted(tokenizer.size, 'token')}",
            chat_template=self.chats,
            can=parts.pipeline.can,
            edits=tuple(map(repr, parts.edits)),
            training=parts.training,
        )


def source(path: Path | str) -> Source:
    """What lies there: a run, a checkpoint folder, or a GGUF file."""
    place = resolve(path)
    inside = sorted(place.glob("*.gguf")) if place.is_dir() and not (place / CONFIG).is_file() else []
    if place.is_file() or len(inside) == 1:
        return _File(inside[0] if inside else place)
    return _Folder(place) if "model_type" in Run.open(place).data else _Run(place)


def info(path: Path | str) -> Info:
    """What a run, a checkpoint or a GGUF file is."""
    return source(path).info()


class _Run(Source):
    what = "a run of heed's"

    @cached_property
    def run(self) -> Run:
        return Run.open(self.path)

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        return None if isinstance(self.run.recipe.tokenizer, NoTokenizer) else self.run.tokenizer

    def algorithm(self, tokenizer: Tokenizer) -> str:
        return kind_of(type(self.run.recipe.tokenizer))

    @property
    def chats(self) -> bool:
        return False  # a recipe trains on bare texts

    @property
    def context(self) -> int | None:
        task = self.run.recipe.task
        return task.context if isinstance(task, Causal) else None

    def parts(self) -> Parts:
        recipe, shape, tokenizer = self.run.recipe, self.run.shape, self.run.tokenizer
        files = (self.path / WEIGHTS,) if (self.path / WEIGHTS).is_file() else ()
        stored = Stored.of(self.path) if files else None
        model, parameters = _outline(shape, recipe.edits, self.path, stored, EACH)
        return Parts(
            kind_of(type(recipe.task)),
            shape,
            model,
            parameters,
            recipe.task.pipeline(model, tokenizer),
            {} if stored is None else _dtypes(stored),
            files,
            recipe.edits,
            self._training(),
        )

    def _training(self) -> Mapping[str, Any]:
        recipe, told = self.run.recipe, history(self.path / METRICS)
        return {
            "data": recipe.data.dump(),
            **({} if recipe.base is None else {"base": recipe.base}),
            "steps": recipe.training.steps,
            "last": told[-1] if told else {},
            "metrics": self.run.evaluated,
        }


class _Folder(Source):
    @property
    def chats(self) -> bool:
        return holds(self.path) and bool(TokenizerSettings.read(self.path).templates)

    @property
    def context(self) -> int | None:
        config = self.folder.config
        held = config.get(SOURCE, {}) if self.folder.family == OWN else config
        return next((held[name] for name in CONTEXTS if isinstance(held.get(name), int)), None)

    @cached_property
    def folder(self) -> Folder:
        return Folder.open(self.path)

    @property
    def what(self) -> str:
        own = self.folder.family == OWN
        return "a checkpoint that heed quantised" if own else "a checkpoint in the Hugging Face layout"

    def parts(self) -> Parts:
        checkpoint = self.folder.checkpoint
        if checkpoint.config["model_type"] in AUTHORS:
            raise WeightsError(
                f"{self.path} is laid out by its authors ({checkpoint.config['model_type']}): nothing but its weights "
                f"tells what it is; heed.load reads them"
            )
        files = tuple(sorted(self.path.glob("model*.safetensors")))
        stored = _dtypes(checkpoint.tensors)
        if checkpoint.config["model_type"] != OWN:
            return _checkpoint_parts(self, checkpoint, stored, files)
        told = Told.load({name: value for name, value in checkpoint.config.items() if name in Told.model_fields})
        return _checkpoint_parts(self, theirs(checkpoint), stored, files, told)


class _File(Source):
    what = "a GGUF file"

    @cached_property
    def metadata(self) -> Mapping[str, object]:
        return gguf.metadata(self.path)

    @cached_property
    def tokenizer(self) -> Tokenizer | None:
        named = any(key.startswith("tokenizer.ggml.") for key in self.metadata)
        return pretrained.from_gguf(self.metadata) if named else None

    @property
    def chats(self) -> bool:
        return "tokenizer.chat_template" in self.metadata

    @property
    def context(self) -> int | None:
        told = self.metadata.get(f"{self.metadata.get('general.architecture')}.context_length")
        return told if isinstance(told, int) else None

    def parts(self) -> Parts:
        if self.path.suffix != ".gguf":
            raise WeightsError(f"{self.path} is not a .gguf file; heed convert {self.path} OUT makes a folder of it")
        return _checkpoint_parts(self, gguf.read(self.path), gguf.stored(self.path), (self.path,))


def _checkpoint_parts(
    place: Source, checkpoint: Checkpoint, stored: Mapping[str, int], files: tuple[Path, ...], told: Told | None = None
) -> Parts:
    """Of a checkpoint; one that heed quantised tells its shape and edits itself."""
    if told is None:
        found = understood(family_of(checkpoint), checkpoint)
        family, shape, edits = found.family, found.shape, found.edits
    else:
        family, shape, edits = family_of(checkpoint).load(checkpoint.config), told.model, told.edits
    model, parameters = _outline(shape, edits, checkpoint.place, checkpoint.tensors)
    opened = Opened(family, model, (), checkpoint.config, {}, shape, edits)
    config = checkpoint.config
    return Parts(
        str(config["model_type"]),
        shape,
        model,
        parameters,
        pipeline_for(opened, place.path, place.tokenizer),
        stored,
        files,
        edits,
    )


def _outline(
    shape: Shape, edits: Sequence[Edit], place: Path, tensors: Tensors | None, each: int = FUSED
) -> tuple[Mixer[Any], int]:
    """The model without memory, edited, and how many parameters it had before."""
    counted = 0

    def build() -> Mixer[Any]:
        nonlocal counted
        model = shape.build()
        counted = sum(parameter.numel() for parameter in model.parameters())
        return edit(model, *edits)

    model = unfilled(build) if tensors is None else outlined(build, Checkpoint(place, {}, tensors), each)
    return model.eval(), counted


def _layers(shape: Config) -> Iterator[Layers]:
    for section in sections(shape):
        stack = section.config
        if isinstance(stack, Stack.Config):
            mixers = stack.mixer if isinstance(stack.mixer, tuple) else (stack.mixer,)
            first = mixers[0].dump()
            kinds = tuple(dict.fromkeys(map(kind_of, map(type, mixers))))
            heads = first.get("heads")
            yield Layers(section.place, stack.depth, stack.width, kinds, heads, first.get("kv_heads", heads))


def _dtypes(tensors: Tensors) -> dict[str, int]:
    """How many numbers are stored in which way."""
    counted = Counter[str]()
    for name in tensors:
        like = tensors.like(name)
        counted[str(like.dtype).removeprefix("torch.")] += like.numel()
    return dict(counted)
