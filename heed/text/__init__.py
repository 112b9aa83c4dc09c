"""Tokenizers: text to ids and back, heed's own and others'. Imports the tokenizers library and core; no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tables import later
from .files import holds

if TYPE_CHECKING:
    from . import pretrained
    from .chat import Chat
    from .kinds import TOKENIZERS, AnyTokenizer, Bpe, Byte, Char, File, TokenizerConfig, Word
    from .stream import Stream
    from .tokenizer import NAMES, SPECIAL, Declared, Framed, Role, Tokenizer
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            "Chat": "chat",
            "Stream": "stream",
            **dict.fromkeys(("TOKENIZERS", "AnyTokenizer", "Bpe", "Byte", "Char", "File"), "kinds"),
            **dict.fromkeys(("TokenizerConfig", "Word"), "kinds"),
            **dict.fromkeys(("NAMES", "SPECIAL", "Declared", "Framed", "Role", "Tokenizer"), "tokenizer"),
        },
    )

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
    "holds",
    "pretrained",
]
