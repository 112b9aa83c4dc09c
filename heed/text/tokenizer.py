"""One class for every tokenizer: text to ids and back, held by the `tokenizers` library and saved as tokenizer.json.

Ids of the four special tokens never come out of a text: a text that spells "</s>" is text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import tokenizers

from ..core.atomic import replacing
from ..core.errors import InputError
from .pieces import bytes_in, cut, may_be_cut
from .stream import Bytes, Stream, Whole

Role: TypeAlias = Literal["pad", "begin", "end", "unknown"]

# What a special token may be called, heed's own name first. The first that is in the vocabulary is taken.
NAMES: dict[Role, tuple[str, ...]] = {
    "pad": ("<pad>", "[PAD]", "<PAD>", "<|pad|>", "<|padding|>"),
    "begin": ("<s>", "[CLS]", "<bos>", "[BOS]", "<cls>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "end": ("</s>", "[SEP]", "<eos>", "[EOS]", "<sep>", "<|end_of_text|>", "<|endoftext|>"),
    "unknown": ("<unk>", "[UNK]", "<UNK>", "<|unk|>"),
}
SPECIAL = tuple(names[0] for names in NAMES.values())  # ids 0, 1, 2, 3 of a tokenizer that heed trains

BATCH = 1 << 20  # characters encoded at once: until its ids are taken, each takes some 250 bytes
_SHOWN = str.maketrans({" ": "␣", "▁": "␣", "\n": "⏎", "\t": "⇥"})


class Tokenizer:
    """Text to ids and back. It takes over the tokenizer that it is given.

    `size`: ids are 0 .. size-1. `pad`, `begin`, `end`, `unknown`: ids of the special tokens, None where there is none.
    """

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        inner.no_padding()
        inner.no_truncation()
        vocabulary = inner.get_vocab(with_added_tokens=True)
        if not vocabulary:
            raise InputError("a tokenizer needs at least one token; this one has none")
        found = {role: next((name for name in names if name in vocabulary), None) for role, names in NAMES.items()}
        inner.add_special_tokens([name for role, name in found.items() if name and role != "unknown"])
        inner.encode_special_tokens = True  # special tokens are not looked for in texts

        self.size = max(vocabulary.values()) + 1
        self.pad, self.begin, self.end, self.unknown = (vocabulary[name] if name else None for name in found.values())
        self._inner = inner
        self._special = {index for index, token in inner.get_added_tokens_decoder().items() if token.special}
        self._never = self._special - {self.unknown}  # what no text may give
        self._cuttable = may_be_cut(inner)
        self._bytes = bytes_in(inner)

    def __repr__(self) -> str:
        return f"Tokenizer(size={self.size})"

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[tokenizers.Tokenizer]]:
        return Tokenizer, (self._inner,)  # copies are set up anew: the library forgets `encode_special_tokens`

    def need(self, role: Role) -> int:
        """The id of a special token that a task cannot do without."""
        index = {"pad": self.pad, "begin": self.begin, "end": self.end, "unknown": self.unknown}[role]
        if index is None:
            raise InputError(
                f"this tokenizer has no {role} token (none of {', '.join(NAMES[role])}), which is needed here; "
                "train one with heed, or add the token to the tokenizer.json"
            )
        return index

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, on all cores."""
        found: list[list[int]] = []
        batch: list[str] = []
        owner: list[int] = []  # the text that a piece of the batch belongs to
        held = 0
        for number, text in enumerate(many(texts)):
            found.append([])
            for piece in cut(text) if self._cuttable else (text,):
                batch.append(piece)
                owner.append(number)
                held += len(piece)
                if held >= BATCH:
                    self._encode(batch, owner, found)
                    batch, owner, held = [], [], 0
        self._encode(batch, owner, found)
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids; special tokens, the unknown one too, are left out."""
        return self.decode_all([ids])[0]

    def decode_all(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of ids."""
        for ids in rows:
            self._check(ids)
        return self._inner.decode_batch([list(ids) for ids in rows], skip_special_tokens=True)

    def stream(self) -> Stream:
        """A decoder for ids that come one by one."""
        return Whole(self) if self._bytes is None else Bytes(self._piece)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Each id for people to read: a space is ␣, a line break ⏎, a byte that is no character \\xe4."""
        self._check(ids)
        return [self._shown(index) for index in ids]

    def save(self, path: Path | str) -> None:
        """Write a tokenizer.json, all of it or nothing: a crash leaves the old file."""
        with replacing(Path(path)) as fresh:
            fresh.write_text(self._inner.to_str(pretty=True) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path | str) -> Tokenizer:
        """From a tokenizer.json, heed's or that of another library."""
        place = Path(path)
        if place.is_dir():
            raise InputError(f"{place} is a folder; give the path of the tokenizer.json in it")
        try:
            text = place.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InputError(f"there is no file {place}; give the path of a tokenizer.json") from None
        except UnicodeDecodeError:
            raise InputError(f"{place} is not text, so it is no tokenizer.json (of sentencepiece?)") from None
        except OSError as error:
            raise InputError(f"{place} cannot be read: {error.strerror or error}") from None
        try:
            return cls(tokenizers.Tokenizer.from_str(text))
        except BaseException as error:
            # The library panics on some files; its PanicException is a BaseException that cannot be imported.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            raise InputError(f"{place} is cut off or not a tokenizer.json: {error}") from None

    def _encode(self, batch: list[str], owner: list[int], found: list[list[int]]) -> None:
        encoded = self._inner.encode_batch_fast(batch, add_special_tokens=False)
        for number, one in zip(owner, encoded, strict=True):
            ids = one.ids
            if not self._never.isdisjoint(ids):  # a vocabulary may hold "</s>" as a word like any other
                kept = ((self.unknown if index in self._never else index) for index in ids)
                ids = [index for index in kept if index is not None]
            found[number] += ids

    def _check(self, ids: Collection[int]) -> None:
        if ids and not 0 <= min(ids) <= max(ids) < self.size:
            wrong = next(index for index in ids if not 0 <= index < self.size)
            raise InputError(f"{wrong} is not an id of this tokenizer; its ids are 0 to {self.size - 1}")

    def _piece(self, index: int) -> bytes:
        """What an id adds to the bytes of a text."""
        self._check((index,))
        token = None if index in self._special else self._inner.id_to_token(index)
        if token is None or self._bytes is None:
            return b""
        try:
            return bytes(self._bytes[character] for character in token)
        except KeyError:  # not spelt in the alphabet of bytes
            return token.encode()

    def _shown(self, index: int) -> str:
        token = self._inner.id_to_token(index)
        if token is None or index in self._special:
            return token or ""
        if self._bytes:
            token = self._piece(index).decode(errors="backslashreplace")
        return token.translate(_SHOWN)


def many(texts: Iterable[str]) -> Iterator[str]:
    """Texts that a tokenizer can take, one by one."""
    if isinstance(texts, str):
        raise InputError("a list of texts is needed, and this is one text; write [text]")
    for text in texts:
        if not isinstance(text, str):
            raise InputError(f"a tokenizer takes text, not {type(text).__name__}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            place = f"character {error.start} of {text[:20]!r}..."
            raise InputError(f"{place} is half of a surrogate pair, which no UTF-8 can hold; leave it out") from None
        yield text
