"""SentencePiece models (Kudo & Richardson 2018) as tokenizers of the `tokenizers` library, id for id.

A .model file is a message of protocol buffers. Its few fields that matter are read here, within bounds: the reader
that comes with SentencePiece follows the indices of a file without looking whether they lead out of it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from ..core.errors import InputError
from .guard import VOCABULARY, read_bytes, understood

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # the types of pieces, in .model files and in GGUF
MARK = 7  # of heed: found in a text before it is normalised, and written as it is
UNIGRAM, PAIRS, CHARACTERS = 1, 2, 4  # the types of models; 3 is whole words
LONGEST = 512  # characters of a piece, since all ways to halve it are tried; sentencepiece itself makes 16 at most
SPACE = "▁"
HIDDEN = "\ufffe"  # stands before tokens that are written but never read; no text has this character


class Piece(NamedTuple):
    """A token: its text, its score (the logarithm of its probability, or how early it was merged) and its type."""

    text: str
    score: float = 0.0
    type: int = NORMAL


@dataclass(frozen=True)
class Pieces:
    """All that is needed to take a text apart as SentencePiece does."""

    pieces: tuple[Piece, ...]  # by id
    pairs: bool  # merged pair by pair, the best score first; else the best path through the pieces (Unigram)
    lead: tuple[normalizers.Normalizer, ...] = ()  # what a family does to texts before all else
    charsmap: bytes = b""  # how characters are normalised
    composed: bool = False  # by that map, letters and their marks become one character, as in NFC
    prefix: bool = True  # a text begins with a space
    tidy: bool = True  # spaces at the ends and double ones are left out
    legacy: bool = True  # a space also begins what follows a token that was found in a text

    def __post_init__(self) -> None:
        seen = {piece.text for piece in self.pieces}
        if len(seen) < len(self.pieces):
            raise InputError("this SentencePiece model holds a piece twice; ids would not be certain")
        if (longest := max(map(len, seen), default=0)) > LONGEST:
            raise InputError(
                f"this SentencePiece model has a piece of {longest:,} characters; at most {LONGEST} are accepted"
            )

    def first(self, *types: int) -> int | None:
        """The id of the first piece of one of these types."""
        return next((index for index, piece in enumerate(self.pieces) if piece.type in types), None)

    def build(self) -> tokenizers.Tokenizer:
        """The same as a tokenizer of the library."""
        fallback = any(piece.type == BYTE for piece in self.pieces)
        with understood("this SentencePiece model cannot be converted"):
            inner = tokenizers.Tokenizer(self._pairs(fallback) if self.pairs else self._unigram(fallback))
            inner.normalizer = self._normalizer()
            if pieces := self._pre_tokenizers():
                inner.pre_tokenizer = pre_tokenizers.Sequence(pieces)
            inner.decoder = self._decoder(fallback)
            inner.add_tokens(list(self._added()))
        return inner

    def _unigram(self, fallback: bool) -> models.Model:
        vocabulary = [(piece.text, piece.score) for piece in self.pieces]
        return models.Unigram(vocabulary, self.first(UNKNOWN), fallback)

    def _pairs(self, fallback: bool) -> models.Model:
        unknown = self.first(UNKNOWN)
        return models.BPE(
            vocab={piece.text: index for index, piece in enumerate(self.pieces)},
            merges=merges(self.pieces),
            unk_token=None if unknown is None else self.pieces[unknown].text,
            fuse_unk=True,
            byte_fallback=fallback,
        )

    @property
    def _first(self) -> bool:
        """Whether only the beginning of a text gets a space, not what comes after a token that was found in it."""
        return self.prefix and self.pairs and not self.tidy and not self.legacy

    @property
    def _hides(self) -> bool:
        return any(piece.text.startswith(HIDDEN) for piece in self.pieces)

    def _normalizer(self) -> normalizers.Normalizer:
        parts: list[normalizers.Normalizer] = list(self.lead)
        if self._hides:
            parts.append(normalizers.Replace(HIDDEN, ""))
        if self.charsmap:
            # The library applies the map to clusters of less than six bytes only, and else to single characters.
            parts += [normalizers.NFC()] * self.composed + [normalizers.Precompiled(self.charsmap)]
        if self.tidy:
            parts += [
                normalizers.Replace(Regex(" {2,}"), " "),
                normalizers.Replace(Regex(r"\A +| +\z"), ""),
            ]
        if self.prefix and not self._first:
            parts.append(normalizers.Prepend(SPACE))
        return normalizers.Sequence([*parts, normalizers.Replace(" ", SPACE)])

    def _pre_tokenizers(self) -> list[pre_tokenizers.PreTokenizer]:
        parts: list[pre_tokenizers.PreTokenizer] = []
        if self._first:
            parts.append(pre_tokenizers.Metaspace(SPACE, "first", split=False))
        if not self.pairs:
            parts += self._apart()
        # Words one by one are quicker than a text at once. The ids are the same if no piece reaches across.
        read = [piece.text for piece in self.pieces if piece.type in {NORMAL, UNUSED} and piece.text[:1] != HIDDEN]
        within = all(SPACE not in text.lstrip(SPACE) for text in read)
        if within and SPACE in read:
            parts.append(pre_tokenizers.Split(Regex(f"{SPACE}+[^{SPACE}]*"), "isolated"))
        return parts

    def _apart(self) -> Iterator[pre_tokenizers.PreTokenizer]:
        """For Unigram, whose best path may take any piece: some it has to take, others it must not."""
        if taken := [piece.text for piece in self.pieces if piece.type == USER]:
            yield pre_tokenizers.Split(Regex(_any(sorted(taken, key=len, reverse=True))), "isolated")
        # A text that spells a special token or the name of a byte is text: its first letter is split off.
        never = {CONTROL, UNKNOWN, BYTE, MARK}
        names = [piece.text for piece in self.pieces if piece.type in never and len(piece.text) > 1]
        for first in sorted({name[0] for name in names}):
            rest = _any(name[1:] for name in names if name[0] == first)
            yield pre_tokenizers.Split(Regex(f"{_any(first)}(?={rest})"), "isolated")

    def _decoder(self, fallback: bool) -> decoders.Decoder:
        parts: list[decoders.Decoder] = [decoders.Replace(SPACE, " ")]
        if self._hides:
            parts.append(decoders.Replace(HIDDEN, ""))
        if fallback:
            parts.append(decoders.ByteFallback())
        parts.append(decoders.Fuse())
        if self.tidy or self.prefix:
            parts.append(decoders.Strip(" ", 1 << 16 if self.tidy else 1, 0))
        return decoders.Sequence(parts)

    def _added(self) -> Iterator[AddedToken]:
        for piece in self.pieces:
            if piece.type in {CONTROL, UNKNOWN}:
                yield AddedToken(piece.text, special=True, normalized=False)
            elif piece.type == USER and self.pairs:  # found in texts before anything else; spaces are ▁ by then
                yield AddedToken(piece.text, special=False, normalized=SPACE in piece.text)
            elif piece.type == MARK:
                yield AddedToken(piece.text, special=False, normalized=False)


def _any(texts: Iterable[str]) -> str:
    """A pattern for one of these texts. Escapes are those of Oniguruma, where a space and # need none."""
    return "(?:" + "|".join(re.sub(r"([\\^$.|?*+()\[\]{}-])", r"\\\1", text) for text in texts) + ")"


def merges(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """The pairs that make a piece, the piece with the best score first."""
    known = {piece.text for piece in pieces if piece.type in {NORMAL, UNUSED}}
    found: list[tuple[float, str, str]] = []
    for piece in pieces:
        if piece.type in {NORMAL, UNUSED}:
            halves = ((piece.text[:cut], piece.text[cut:]) for cut in range(1, len(piece.text)))
            found += ((-piece.score, left, right) for left, right in halves if left in known and right in known)
    return [(left, right) for _, left, right in sorted(found, key=lambda pair: pair[0])]


def relabelled(model: Pieces, ids: Mapping[str, int], special: Sequence[str]) -> Pieces:
    """The same model with the ids of a vocabulary of its own (Marian, M2M-100).

    What only the vocabulary holds (the pieces of the other language) is written, but never read, unless it is a single
    character, which would be unknown otherwise.
    """
    known, names = {piece.text: piece for piece in model.pieces}, set(special)
    least = min((piece.score for piece in model.pieces), default=0.0)
    placed: dict[int, Piece] = {}
    for text, index in ids.items():
        if text in names:
            placed[index] = Piece(text, least, UNKNOWN if text == special[0] else CONTROL)
        elif text in known and known[text].type == NORMAL:
            placed[index] = known[text]
        elif text.startswith(">>") and text.endswith("<<"):  # the language to translate to
            placed[index] = Piece(text, least, MARK)
        else:
            placed[index] = Piece(text if len(text) == 1 and not model.pairs else HIDDEN + text, least)
    if sorted(placed) != list(range(len(ids))):
        raise InputError(f"the ids of this vocabulary are not 0 to {len(ids) - 1}, each of them once")
    pieces = tuple(placed[index] for index in range(len(ids)))
    return replace(model, pieces=pieces)


# --- files ---


def read_pieces(path: Path) -> Pieces:
    """From a .model or .spm file."""
    try:
        return _model(read_bytes(path, VOCABULARY))
    except _Broken as error:
        raise InputError(
            f"{path} is cut off or not a SentencePiece model: {error} (tiktoken's files have the same name)"
        ) from None


class _Broken(Exception):
    """Bytes that are no message of protocol buffers."""


def _model(data: bytes) -> Pieces:
    pieces: list[Piece] = []
    kind, whole = UNIGRAM, {3: 1, 4: 1}
    charsmap, composed = b"", False
    for number, value in _fields(data):
        if number == 1:
            pieces.append(_piece(_bytes(value)))
        elif number == 2:  # how it was trained
            trained = dict(_fields(_bytes(value)))
            kind = _number(trained.get(3, UNIGRAM))
            if trained.get(24):
                raise InputError("this SentencePiece model has its spaces at the ends of words, which is not supported")
        elif number == 3:  # how texts are normalised
            normal = dict(_fields(_bytes(value)))
            whole |= {field: _number(normal[field]) for field in (3, 4) if field in normal}
            charsmap, composed = _bytes(normal.get(2, b"")), b"nfkc" in _bytes(normal.get(1, b""))
            if normal.get(5, 1) != 1:
                raise InputError("this SentencePiece model leaves spaces as they are, which is not supported")
    if not pieces:
        raise _Broken("it holds no pieces")
    if kind not in {UNIGRAM, PAIRS, CHARACTERS}:
        raise InputError(f"SentencePiece models of type {kind} are not supported; unigram, bpe and char are")
    return Pieces(
        tuple(pieces),
        kind != UNIGRAM,
        charsmap=charsmap,
        composed=composed,
        prefix=bool(whole[3]),
        tidy=bool(whole[4]),
        legacy=all(piece.type != USER for piece in pieces),
    )


def _piece(data: bytes) -> Piece:
    found = dict(_fields(data))
    try:
        text = _bytes(found.get(1, b"")).decode()
    except UnicodeDecodeError:
        raise _Broken("a piece is not UTF-8") from None
    score = found.get(2, b"\0\0\0\0")
    if not isinstance(score, bytes) or len(score) != 4:
        raise _Broken(f"the score of {text!r} is no number")
    return Piece(text, struct.unpack("<f", score)[0], _number(found.get(3, NORMAL)))


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number and value. Nothing is read that is not there."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in {1, 5}:
            size = 8 if wire == 1 else 4
        else:
            raise _Broken(f"byte {at} begins no field")
        if size > len(data) - at:
            raise _Broken(f"a field of {size} bytes begins at byte {at} of {len(data)}")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, and the place after it."""
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise _Broken(f"a number at byte {at} does not end")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _Broken("a number stands where a text belongs")
    return value


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise _Broken("a text stands where a number belongs")
    return value
