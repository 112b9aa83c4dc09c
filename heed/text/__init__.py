"""Tokenizers: text to ids and back, heed's own and others'. Imports the tokenizers library and core; no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..core.tables import later

if TYPE_CHECKING:
    from . import pretrained
    from .batch import BatchEncoding, Framed, FrameTokens
    from .chat import Chat
    from .kinds import TOKENIZERS, AnyTokenizer, Bpe, Byte, Char, File, NoTokenizer, TokenizerConfig, Word
    from .stream import Stream
    from .tokenizer import NAMES, SPECIAL, Declared, Role, Tokenizer
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            **dict.fromkeys(("BatchEncoding", "FrameTokens", "Framed"), "batch"),
            "Chat": "chat",
            "Stream": "stream",
            **dict.fromkeys(("TOKENIZERS", "AnyTokenizer", "Bpe", "Byte", "Char", "File"), "kinds"),
            **dict.fromkeys(("NoTokenizer", "TokenizerConfig", "Word"), "kinds"),
            **dict.fromkeys(("NAMES", "SPECIAL", "Declared", "Role", "Tokenizer"), "tokenizer"),
        },
    )

__all__ = [
    "NAMES",
    "SPECIAL",
    "TOKENIZERS",
    "AnyTokenizer",
    "BatchEncoding",
    "Bpe",
    "Byte",
    "Char",
    "Chat",
    "Declared",
    "File",
    "FrameTokens",
    "Framed",
    "NoTokenizer",
    "Role",
    "Stream",
    "Tokenizer",
    "TokenizerConfig",
    "Word",
    "holds",
    "pretrained",
]

# Which files are a tokenizer: asked before anything is read.
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
