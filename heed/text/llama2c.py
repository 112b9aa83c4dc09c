"""The tokenizer file of llama2.c (Karpathy 2023): pieces of SentencePiece with their scores, and nothing else."""

from __future__ import annotations

import struct
from pathlib import Path

from ..core.errors import InputError
from .guard import VOCABULARY, read_bytes
from .sentencepiece import BYTE, CONTROL, NORMAL, SPACE, UNKNOWN, Piece, Pieces
from .tokenizer import MOST, Tokenizer
from .tokenizer_config import Frame, TokenizerSettings

SPECIAL = {0: ("<unk>", UNKNOWN), 1: ("<s>", CONTROL), 2: ("</s>", CONTROL)}
BYTES = 3  # the id of the first of the 256 bytes


def from_llama2c(path: Path | str, size: int) -> Tokenizer:
    """The tokenizer of a .bin file with `size` tokens: the longest length, then score, length and bytes of each."""
    place = Path(path)
    if not BYTES + 256 <= size <= MOST:
        raise InputError(f"a tokenizer of llama2.c has the 256 bytes and 3 special tokens at least, not {size}")
    data = read_bytes(place, VOCABULARY)
    pieces: list[Piece] = []
    at = 4  # after the longest length, which is not needed
    for index in range(size):
        score, length = _entry(data, at, place, index, size)
        text = data[at + 8 : at + 8 + length]
        at += 8 + length
        pieces.append(_piece(index, text, score, place))
    if at != len(data):
        raise InputError(f"{place} goes on after {size} tokens; give the number of tokens that it was made for")
    inner = Pieces(tuple(pieces), pairs=True, tidy=False).build()
    settings = TokenizerSettings(tokens={"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"})
    return settings.finish(inner, Frame("bos_token $A", "bos_token $A bos_token:1 $B:1"), str(place))


def _entry(data: bytes, at: int, place: Path, index: int, size: int) -> tuple[float, int]:
    if at + 8 <= len(data):
        score, length = struct.unpack_from("<fi", data, at)
        if 0 <= length <= len(data) - at - 8:
            return score, length
    raise InputError(f"{place} ends at token {index} of {size}, or is no tokenizer of llama2.c")


def _piece(index: int, text: bytes, score: float, place: Path) -> Piece:
    if index in SPECIAL:  # the file has line breaks around their names
        name, kind = SPECIAL[index]
        return Piece(name, 0.0, kind)
    if index < BYTES + 256:
        return Piece(f"<0x{index - BYTES:02X}>", 0.0, BYTE)
    try:
        return Piece(text.decode().replace(" ", SPACE), score, NORMAL)
    except UnicodeDecodeError:
        raise InputError(f"token {index} of {place} is {text!r}, which is not UTF-8") from None
