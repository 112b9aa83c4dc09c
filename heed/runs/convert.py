"""Checkpoints of any kind to a folder of safetensors that heed and others load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.config import Config, override, read_data
from ..core.errors import ConfigError, WeightsError
from ..text import foreign
from ..weights import Folder, Opened, gguf, llama2c, open_, write
from ..weights.beside import bring
from ..weights.edits import Edit, SomeEdits
from ..weights.folder import CONFIG
from ..weights.pickled import is_pickled, read_to
from ..weights.stored import INDEX, WEIGHTS, Stored
from .edited import edited, merged


@dataclass(frozen=True)
class Converted:
    """What was made."""

    family: str
    tensors: int
    bytes: int


class Changes(Config):
    """What is to become of a run."""

    edits: SomeEdits = ()


def convert(
    source: Path, target: Path, *, tokenizer: Path | None = None, shard: int, settings: Sequence[str] = ()
) -> Converted:
    """The checkpoint at `source` as a new folder: its weights as safetensors, its config, its tokenizer.

    A run of heed's becomes a run: with the edits that `settings` name, or else with its adapters worked in.
    """
    if target.exists():
        raise WeightsError(f"{target} is already there; name a folder that is not")
    if not source.exists():
        raise WeightsError(f"there is nothing at {source}")
    if _is_run(source):
        _run(source, target, Changes.load(override({}, settings)).edits)
    elif settings:
        raise WeightsError(f"{source} is not a run of heed's; only those are edited (--set)")
    elif source.is_dir():
        _folder(source, target, shard)
    elif source.suffix == ".gguf":
        metadata = gguf.metadata(source)
        write(open_(gguf.read(source)), target, shard)
        foreign.from_gguf(metadata).save_all(target)
    elif is_pickled(source):
        read_to(source, target)
    else:
        opened = open_(llama2c.read(source))
        write(opened, target, shard)
        if tokenizer is not None:
            foreign.from_llama2c(tokenizer, int(opened.config["vocab_size"])).save_all(target)
    stored = Stored.of(target)
    config = Folder(target).config if (target / CONFIG).is_file() else {}
    total = sum(stored.like(name).nbytes for name in stored)
    return Converted(str(config.get("model_type", "heed" if _is_run(target) else "unknown")), len(stored), total)


def _is_run(path: Path) -> bool:
    """A run's config.json has a task and a training."""
    if not (path / CONFIG).is_file():
        return False
    try:
        return {"task", "training"} <= read_data(path / CONFIG).keys()
    except ConfigError:
        return False


def _run(source: Path, target: Path, edits: tuple[Edit, ...]) -> None:
    if edits:
        edited(source, target, *edits)
    else:
        merged(source, target)


def _folder(source: Path, target: Path, shard: int) -> None:
    if (source / WEIGHTS).is_file() or (source / INDEX).is_file():
        opened: Opened = open_(Folder.open(source).checkpoint)
        write(opened, target, shard)
    else:
        read_to(source, target)
    bring(source, target)
