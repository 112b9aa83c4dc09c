"""Which files are a tokenizer: asked before anything is read."""

from __future__ import annotations

from pathlib import Path

MODELS = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model")
FILES: tuple[tuple[str, ...], ...] = (  # all of a row, the first row that is there
    ("tokenizer.json",),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
    *((name,) for name in MODELS),
    ("source.spm", "vocab.json"),
)


def holds(folder: Path | str) -> bool:
    """Whether a folder has files of a tokenizer."""
    return found(Path(folder)) is not None


def found(folder: Path) -> tuple[str, ...] | None:
    """The files of a folder's tokenizer."""
    return next((files for files in FILES if all((folder / file).is_file() for file in files)), None)
