"""Checkpoints of any kind to a folder of safetensors that heed and others load."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..core.errors import WeightsError
from ..text import foreign
from ..weights import Folder, Opened, gguf, llama2c, open_, write
from ..weights.beside import bring
from ..weights.folder import CONFIG
from ..weights.pickled import is_pickled, read_to
from ..weights.stored import INDEX, WEIGHTS, Stored


@dataclass(frozen=True)
class Converted:
    """What was made."""

    family: str
    tensors: int
    bytes: int


def convert(source: Path, target: Path, *, tokenizer: Path | None = None, shard: int) -> Converted:
    """The checkpoint at `source` as a new folder: its weights as safetensors, its config, its tokenizer."""
    if target.exists():
        raise WeightsError(f"{target} is already there; name a folder that is not")
    if not source.exists():
        raise WeightsError(f"there is nothing at {source}")
    if source.is_dir():
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
    return Converted(str(config.get("model_type", "unknown")), len(stored), total)


def _folder(source: Path, target: Path, shard: int) -> None:
    if (source / WEIGHTS).is_file() or (source / INDEX).is_file():
        opened: Opened = open_(Folder.open(source).checkpoint)
        write(opened, target, shard)
    else:
        read_to(source, target)
    bring(source, target)
