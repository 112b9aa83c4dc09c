"""Tokenizers: text to ids and back, heed's own and others'. Imports the tokenizers library and core; no torch."""

from __future__ import annotations

from . import foreign
from .chat import Chat
from .kinds import TOKENIZERS, AnyTokenizer, Bpe, Byte, Char, File, TokenizerConfig, Word
from .stream import Stream
from .tokenizer import NAMES, SPECIAL, Declared, Framed, Role, Tokenizer

__all__ = [
    "NAMES",
    "SPECIAL",
    "TOKENIZERS",
    "AnyTokenizer",
    "Bpe",
    "Byte",
    "Char",
    "Chat",
    "Declared",
    "File",
    "Framed",
    "Role",
    "Stream",
    "Tokenizer",
    "TokenizerConfig",
    "Word",
    "foreign",
]
