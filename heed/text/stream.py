"""Text from ids that come one by one. What was given out is never taken back: together it is what `decode` gives."""

from __future__ import annotations

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

BYTE = re.compile(r"<0x([0-9A-F]{2})>")  # how SentencePiece spells a byte
UNFINISHED = "\ufffd"  # how a decoder shows bytes that are not a character (yet)


class Stream(ABC):
    """A decoder for one text."""

    @abstractmethod
    def push(self, index: int) -> str:
        """The new text that this id brings; "" while a character is incomplete."""

    @abstractmethod
    def rest(self) -> str:
        """What was held back, at the end; after that a new text may begin."""

    @abstractmethod
    def alone(self, index: int) -> bytes:
        """What this id alone adds to a text; nothing, if it is a special token."""


class Bytes(Stream):
    """For tokenizers whose texts are their tokens' bytes in a row: each id takes the same short time."""

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, index: int) -> str:
        return self._decoder.decode(self._piece(index))

    def rest(self) -> str:
        return self._decoder.decode(b"", final=True)

    def alone(self, index: int) -> bytes:
        return self._piece(index)


class Fallback(Stream):
    """For SentencePiece with bytes for what it does not know: they wait, since those after them decide how they read.

    `piece`: what an id adds, a text or a byte. `strip`: so many spaces at the beginning are left out.
    """

    def __init__(self, piece: Callable[[int], str | int], strip: int) -> None:
        self._piece, self._strip = piece, strip
        self._held, self._left = bytearray(), strip

    def push(self, index: int) -> str:
        piece = self._piece(index)
        if isinstance(piece, int):
            self._held.append(piece)
            return ""
        return self._stripped(self._bytes() + piece) if piece else ""

    def rest(self) -> str:
        text = self._stripped(self._bytes())
        self._left = self._strip
        return text

    def alone(self, index: int) -> bytes:
        piece = self._piece(index)
        return bytes((piece,)) if isinstance(piece, int) else piece.encode()

    def _bytes(self) -> str:
        held, self._held = bytes(self._held), bytearray()
        try:
            return held.decode()
        except UnicodeDecodeError:  # the library shows all bytes in a row as broken if one of them is
            return UNFINISHED * len(held)

    def _stripped(self, text: str) -> str:
        while self._left and text.startswith(" "):
            text, self._left = text[1:], self._left - 1
        if text:
            self._left = 0
        return text


class Decodes(Protocol):
    """Whatever turns ids into text and shows what they are."""

    def decode(self, ids: Sequence[int]) -> str: ...

    def tokens(self, ids: Sequence[int]) -> list[str]: ...


class Whole(Stream):
    """For all others: how a token reads depends on those before it, so they are decoded again each time."""

    def __init__(self, tokenizer: Decodes) -> None:
        self._tokenizer = tokenizer
        self._ids: list[int] = []
        self._given = ""

    def push(self, index: int) -> str:
        self._ids.append(index)
        (token,) = self._tokenizer.tokens([index])
        if token.startswith("<0x"):  # a byte: the bytes after it decide how all bytes in a row are read
            return ""
        return self._more(self._tokenizer.decode(self._ids).rstrip(UNFINISHED))

    def rest(self) -> str:
        text = self._more(self._tokenizer.decode(self._ids)) if self._ids else ""
        self._ids, self._given = [], ""
        return text

    def alone(self, index: int) -> bytes:
        (token,) = self._tokenizer.tokens([index])
        byte = BYTE.fullmatch(token)
        return bytes((int(byte[1], 16),)) if byte else self._tokenizer.decode([index]).encode()

    def _more(self, text: str) -> str:
        if not text.startswith(self._given):  # an end that is still open
            return ""
        more = text[len(self._given) :]
        self._given = text
        return more
