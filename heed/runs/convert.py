"""Checkpoints of any kind to a folder of safetensors that heed and others load, or of heed's quantised weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from ..core.config import Config, Text, nearest, override, read_data
from ..core.contract import Mixer
from ..core.errors import ConfigError, InputError, WeightsError
from ..models import Decoder
from ..pipelines import TextGeneration
from ..pipelines.save import at_rest, save, told
from ..text import pretrained
from ..text.gguf import to_gguf
from ..weights import AUTHORS, Folder, Opened, open_, write
from ..weights.adapters.config import WEIGHTS as ADAPTER_WEIGHTS
from ..weights.adapters.read import PeftAdapter
from ..weights.edits import Edit, LoRA, Quantised, SomeEdits, edit, merge
from ..weights.edits.quantised import BITS, Bits, bits_of
from ..weights.formats import gguf, gguf_write, llama2c
from ..weights.formats import gguf_quantised as ggufkept
from ..weights.formats import quantised as quantised_format
from ..weights.formats.checkpoint import OWN
from ..weights.formats.export import SHARD, new_folder
from ..weights.formats.folder import CONFIG
from ..weights.formats.gguf_write import Stored as GgufType
from ..weights.formats.gguf_write import stored_as
from ..weights.formats.pickles import is_pickled, read_to
from ..weights.formats.safetensors import INDEX, WEIGHTS, Stored
from ..weights.formats.sidecars import bring
from . import load
from .adapters import load_adapted, write_run
from .card import laws, write_card, write_home_card
from .folder import Run
from .quantisation import Cost, cost, language_model, read_text

KEEP: Literal["keep"] = "keep"
GGUF = ".gguf"


Layout: TypeAlias = Literal["huggingface", "heed", "peft"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)


@dataclass(frozen=True)
class Converted:
    """What was made."""

    family: str
    tensors: int
    bytes: int
    layout: Literal["huggingface", "heed", "gguf", "peft"] = "huggingface"


class Changes(Config):
    """What is to become of a run."""

    edits: SomeEdits = ()
    base: Text | None = None  # the checkpoint below an adapter; None: the one that it names


def convert(
    source: Path,
    target: Path,
    *,
    tokenizer: Path | None = None,
    shard: int = SHARD,
    settings: Sequence[str] = (),
    quantise: str | None = None,
    layout: str = "huggingface",
    kind: str | None = None,
) -> Converted:
    """The checkpoint or run at `source` as a new folder in the Hugging Face layout, or as a GGUF file.

    A run goes home: its adapters are worked in, and its weights, tokenizer, chat template and generation config are
    written in the layout of the family that it came from or fits. It stays a run of heed's with the `layout` "heed",
    with edits that `settings` name, and with `quantise`: quantised weights are for heed alone; "keep" takes those of a
    GGUF file as they are. A target that ends in .gguf is such a file, with weights of that `kind` (f16).
    """
    bits = None if quantise is None else _precision(quantise)
    wanted = _layout(layout)
    kept = wanted == "heed"
    _must_be_new(target)
    if not source.exists():
        raise WeightsError(f"there is nothing at {source}")
    if target.suffix == GGUF:
        if bits is not None or settings or kept:
            raise WeightsError("a GGUF file holds no edits and no codes of heed's; its own type is --type q8_0")
        return _gguf(source, target, tokenizer, stored_as(kind or "f16"))
    if kind is not None:
        raise WeightsError(f"--type {kind} is for GGUF; let {target} end in .gguf")
    if _is_run(source):
        changes = Changes.load(override({}, settings))
        if wanted == "peft":
            return _adapter(source, target, changes, bits)
        _run(source, target, changes.edits, bits, shard, kept=kept)
    elif wanted == "peft":
        raise WeightsError(f"{source} is not a run of heed's; only those have adapters to write (--layout peft)")
    elif PeftAdapter.is_there(source):
        _merged_adapter(source, target, Changes.load(override({}, settings)), shard)
    elif settings:
        raise WeightsError(f"{source} is not a run of heed's; only those are edited (--set)")
    elif _is_pickled(source):
        _pickled(source, target, bits)
    else:
        opened, beside = _opened(source, tokenizer, bits)
        write(_quantised(opened, bits), target, shard, beside)
    return _told(target)


def _adapter(source: Path, target: Path, changes: Changes, bits: Bits | Literal["keep"] | None) -> Converted:
    """The adapters of a run alone."""
    if changes.edits or bits is not None:
        raise WeightsError("an adapter is written as it learnt: leave --quantise and edits out, or convert the model")
    write_run(source, target, changes.base)
    stored = Stored([target / ADAPTER_WEIGHTS])
    total = sum(stored.like(name).nbytes for name in stored)
    return Converted(str(Folder(target).config["model_type"]), len(stored), total, "peft")


def _merged_adapter(source: Path, target: Path, changes: Changes, shard: int) -> None:
    """A checkpoint with the adapters of a folder worked in."""
    if changes.edits:
        raise WeightsError(f"{source} is an adapter, not a run of heed's; only runs are edited (--set edits)")
    save(load_adapted(source, changes.base), target, shard)


def _told(target: Path) -> Converted:
    stored = Stored.of(target)
    config = Folder(target).config if (target / CONFIG).is_file() else {}
    total = sum(stored.like(name).nbytes for name in stored)
    own = _is_run(target) or config.get("model_type") == OWN
    family = str(config.get("model_type", "heed" if own else "unknown"))
    return Converted(family, len(stored), total, "heed" if own else "huggingface")


def _layout(name: str) -> Layout:
    found = next((layout for layout in LAYOUTS if layout == name), None)
    if found is None:
        raise ConfigError(f"{name!r} is not a layout that heed writes{nearest(name, LAYOUTS)}")
    return found


def _must_be_new(target: Path) -> None:
    if target.suffix == GGUF and target.exists():
        raise WeightsError(f"{target} is already there; name a file that is not")
    new_folder(target)


def _gguf(source: Path, target: Path, tokenizer: Path | None, kind: GgufType) -> Converted:
    """A run or a checkpoint as a GGUF file."""
    pipeline = load(source)
    if not isinstance(pipeline, TextGeneration):
        raise WeightsError(f"heed writes GGUF of language models with a tokenizer; {source} is {pipeline.what}")
    opened = at_rest(pipeline)
    assert isinstance(opened.shape, Decoder.Config)
    target.parent.mkdir(parents=True, exist_ok=True)
    count = gguf_write.write(opened, target, to_gguf(told(pipeline), opened.shape.tokens), kind)
    return Converted(str(opened.config["model_type"]), count, target.stat().st_size, "gguf")


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


def measured(source: Path, text: Path) -> Callable[[Path], Cost]:
    """What measures the cost of quantisation; whether it can be measured is found out before anything is written."""
    words, exact = read_text(text), load(source)
    language_model(exact)
    return lambda target: cost(exact, load(target), words)


def _precision(name: str) -> Bits | Literal["keep"]:
    if name == KEEP:
        return KEEP
    try:
        return bits_of(name)
    except ConfigError:
        raise ConfigError(f"{name!r} is not a precision to quantise to{nearest(name, (*BITS, KEEP))}") from None


def _is_run(path: Path) -> bool:
    """A run's config.json has a task and a training."""
    if not (path / CONFIG).is_file():
        return False
    try:
        return {"task", "training"} <= read_data(path / CONFIG).keys()
    except ConfigError:
        return False


def _is_pickled(path: Path) -> bool:
    """Whether only another process may open it."""
    if path.is_dir():
        return not (path / WEIGHTS).is_file() and not (path / INDEX).is_file()
    return path.suffix != ".gguf" and is_pickled(path)


def _run(
    source: Path,
    target: Path,
    edits: tuple[Edit, ...],
    bits: Bits | Literal["keep"] | None,
    shard: int,
    *,
    kept: bool,
) -> None:
    if bits is None:
        if edits:
            edited(source, target, *edits)
        elif kept:
            merged(source, target)
        else:
            homeward(source, target, shard)
        return
    if bits == KEEP:
        raise WeightsError(f"{source} is a run, which has nothing to keep; only GGUF files have (q8_0, q4_0)")
    before = (*Run.open(source).recipe.edits, *edits)
    if any(isinstance(change, Quantised) for change in before):
        raise WeightsError(f"{source} is quantised already; quantise the run that it was made of")
    if any(isinstance(change, LoRA) for change in before):
        raise WeightsError(
            f"{source} has adapters (LoRA), which stay as they are; work them in first: heed convert --layout heed"
        )
    edited(source, target, *edits, Quantised(bits=bits))


def homeward(source: Path | str, target: Path | str, shard: int = SHARD) -> None:
    """A run as a folder in the Hugging Face layout, with its card."""
    run = Run.open(source)
    save(run.pipeline(), target, shard, lambda fresh: write_home_card(run, fresh))


def _pickled(source: Path, target: Path, bits: Bits | Literal["keep"] | None) -> None:
    if bits is not None:
        raise WeightsError(f"{source} holds pickled weights; make safetensors of them first: heed convert {source} OUT")
    read_to(source, target)
    if source.is_dir():
        bring(source, target)


def _opened(
    source: Path, tokenizer: Path | None, bits: Bits | Literal["keep"] | None
) -> tuple[Opened, Callable[[Path], None]]:
    """A checkpoint, and what writes its tokenizer and settings into the new folder."""
    if bits == KEEP and source.suffix != ".gguf":
        raise WeightsError(f"{source} has nothing to keep; only GGUF files have (q8_0, q4_0). Quantise it: int8, int4")
    if source.is_dir():
        folder = Folder.open(source)
        if folder.family == OWN:
            raise WeightsError(f"{source} is quantised already, and only heed reads it; convert what it was made of")
        if bits is not None and folder.family in AUTHORS:
            raise WeightsError(f"{source} is in its authors' own layout; load it with quantise={bits!r} instead")
        return open_(folder.checkpoint), lambda fresh: bring(source, fresh)
    if source.suffix == ".gguf":
        metadata = gguf.metadata(source)
        opened = ggufkept.read(source) if bits == KEEP else open_(gguf.read(source))
        return opened, pretrained.from_gguf(metadata).save_all
    opened = open_(llama2c.read(source))
    if tokenizer is None:
        return opened, lambda fresh: None
    return opened, pretrained.from_llama2c(tokenizer, int(opened.config["vocab_size"])).save_all


def _quantised(opened: Opened, bits: Bits | Literal["keep"] | None) -> Opened:
    """As it is to be written."""
    if bits is None:
        return opened
    return (
        quantised_format.laid_out(opened) if bits == KEEP else quantised_format.quantised(opened, Quantised(bits=bits))
    )
