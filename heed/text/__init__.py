"""Tokenizers: text to ids and back. Imports the tokenizers library and core; no torch."""

from __future__ import annotations

from .kinds import TOKENIZERS, AnyTokenizer, Bpe, Byte, Char, File, TokenizerConfig, Word
from .stream import Stream
from .tokenizer import NAMES, SPECIAL, Role, Tokenizer

__all__ = [
    "NAMES",
    "SPECIAL",
    "TOKENIZERS",
    "AnyTokenizer",
    "Bpe",
    "Byte",
    "Char",
    "File",
    "Role",
    "Stream",
    "Tokenizer",
    "TokenizerConfig",
    "Word",
]
