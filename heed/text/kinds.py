"""The kinds of tokenizers, each a configuration that trains one from texts: bytes, characters, words, pairs, a file.

A task may need more of one than its vocabulary: a frame around texts (`framing`), special tokens (`knowing`).
All that heed trains have the ids 0 <pad>, 1 <s>, 2 </s>, 3 <unk>. The same texts give the same file, byte by byte.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal, Self

import tokenizers
from pydantic import model_validator
from tokenizers import decoders, models, trainers
from tokenizers.processors import TemplateProcessing

from ..core.config import Config, Flag, OneOf, Size, Text
from ..core.errors import InputError
from .guard import many
from .pretokenizers import (
    byte_alphabet,
    byte_lines,
    byte_words,
    carries_space,
    cut,
    join_words,
    lines,
    normalizer,
    words,
)
from .tokenizer import NAMES, SPECIAL, Tokenizer


class TokenizerConfig(Config):
    """How to come by a tokenizer."""

    @abstractmethod
    def train(self, texts: Iterable[str]) -> Tokenizer:
        """The tokenizer for such texts."""


class Trained(TokenizerConfig):
    """A tokenizer that heed makes. Texts are brought to Unicode NFC, always."""

    lowercase: Flag = False  # texts are read in lower case, and come back so

    def _build(self, model: models.Model) -> tokenizers.Tokenizer:
        inner = tokenizers.Tokenizer(model)
        inner.normalizer = normalizer(self.lowercase)
        return inner


class Byte(Trained):
    """The 256 bytes of UTF-8: nothing is unknown, and nothing has to be learnt."""

    kind: Literal["byte"] = "byte"

    def train(self, texts: Iterable[str] = ()) -> Tokenizer:
        inner = self._build(models.BPE(vocab=_numbered(byte_alphabet()), merges=[]))
        inner.pre_tokenizer, inner.decoder = byte_lines(), decoders.ByteLevel()
        return _finished(inner)


class Char(Trained):
    """The characters of the texts; others are unknown."""

    kind: Literal["char"] = "char"

    def train(self, texts: Iterable[str]) -> Tokenizer:
        normal = normalizer(self.lowercase)
        characters: set[str] = set()
        for part in _parts(texts):
            characters.update(normal.normalize_str(part))
        # Pairs without a single merge are characters, and quicker than words of one letter.
        inner = self._build(models.BPE(vocab=_numbered(sorted(characters)), merges=[], unk_token=NAMES["unknown"][0]))
        inner.pre_tokenizer, inner.decoder = lines(), decoders.Fuse()
        return _finished(inner)


class Word(Trained):
    """The most frequent words and marks; others are unknown. Of white space only line breaks come back as they were."""

    kind: Literal["word"] = "word"
    size: Size = 20_000  # at most so many ids, the special ones included

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.size <= len(SPECIAL):
            raise ValueError(f"size {self.size} leaves no word beside {' '.join(SPECIAL)}; it must be at least 5")
        return self

    def train(self, texts: Iterable[str]) -> Tokenizer:
        inner = self._build(models.WordLevel(unk_token=NAMES["unknown"][0]))
        inner.pre_tokenizer, inner.decoder = words(), join_words()
        trainer = trainers.WordLevelTrainer(vocab_size=self.size, special_tokens=list(SPECIAL), show_progress=False)
        inner.train_from_iterator(_parts(texts), trainer)
        return _finished(inner)


class Bpe(Trained):
    """Byte pair encoding (Sennrich et al. 2016) of bytes (Radford et al. 2019): nothing is unknown, nothing is lost.

    From the 256 bytes on, the pair of neighbours that is most frequent within words becomes a token, again and again.
    """

    kind: Literal["bpe"] = "bpe"
    size: Size = 8_000  # at most so many ids; fewer if no pair occurs twice

    @model_validator(mode="after")
    def _fits(self) -> Self:
        least = len(SPECIAL) + 256
        if self.size < least:
            raise ValueError(f"size {self.size} does not hold the 256 bytes and {' '.join(SPECIAL)}; least: {least}")
        return self

    def train(self, texts: Iterable[str]) -> Tokenizer:
        inner = self._build(models.BPE())
        inner.pre_tokenizer, inner.decoder = byte_words(), decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=self.size,
            min_frequency=2,
            special_tokens=list(SPECIAL),
            initial_alphabet=byte_alphabet(),
            show_progress=False,
        )
        inner.train_from_iterator(_parts(texts), trainer)
        return _finished(inner)


class File(TokenizerConfig):
    """A tokenizer.json that exists already, of heed or of another library; it is taken as it is."""

    kind: Literal["file"] = "file"
    path: Text  # of the tokenizer.json

    def train(self, texts: Iterable[str] = ()) -> Tokenizer:
        return Tokenizer.read(self.path)


class NoTokenizer(TokenizerConfig):
    """None: of a model that reads no text. What stands in its place knows the special tokens and nothing else."""

    kind: Literal["none"] = "none"

    def train(self, texts: Iterable[str] = ()) -> Tokenizer:
        return _finished(tokenizers.Tokenizer(models.WordLevel(_numbered(()), unk_token=NAMES["unknown"][0])))


TOKENIZERS: tuple[type[TokenizerConfig], ...] = (Byte, Char, Word, Bpe, File, NoTokenizer)
AnyTokenizer = Annotated[TokenizerConfig, OneOf(lambda: TOKENIZERS)]


def _numbered(tokens: Iterable[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate((*SPECIAL, *tokens))}


def _finished(inner: tokenizers.Tokenizer) -> Tokenizer:
    inner.add_special_tokens(list(SPECIAL))
    return Tokenizer(inner)


def _parts(texts: Iterable[str]) -> Iterator[str]:
    """The texts, long ones in parts; something must be in them."""
    empty = True
    for text in many(texts):
        empty = empty and not text.strip()
        yield from cut(text)
    if empty:
        raise InputError("there is nothing to train a tokenizer on: there are no texts, or all are empty")


def framing(tokenizer: Tokenizer) -> Tokenizer:
    """With texts between begin and end: <s> text </s>, <s> text </s> pair </s>; as it is, if it frames them already."""
    if tokenizer.framed("").ids:
        return tokenizer
    ids = {tokenizer.name(index): index for index in (tokenizer.need("begin"), tokenizer.need("end"))}
    begin, end = (tokenizer.name(index) for index in (tokenizer.need("begin"), tokenizer.need("end")))
    frame = TemplateProcessing(
        single=f"{begin} $A {end}", pair=f"{begin} $A {end} $B:1 {end}:1", special_tokens=list(ids.items())
    )

    def framed(inner: tokenizers.Tokenizer) -> None:
        inner.post_processor = frame

    return tokenizer.copy(framed)


def knowing(tokenizer: Tokenizer, *special: str) -> Tokenizer:
    """With these special tokens after all others; as it is, if it has them."""
    if all(len(tokenizer.encode_marked(token)) == 1 for token in special):
        return tokenizer

    def known(inner: tokenizers.Tokenizer) -> None:
        spaced = carries_space(inner)  # then one that stands for a word stands for the space before it, too
        inner.add_special_tokens([tokenizers.AddedToken(name, special=True, lstrip=spaced) for name in special])

    return tokenizer.copy(known)
