"""A tokenizer called as Hugging Face's are: ids, masks and segments of texts, padded and cut as asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeAlias, TypedDict, Unpack, runtime_checkable

import numpy as np
import tokenizers

from ..core.errors import InputError
from ..core.foreign_names import refuse_unknown

BATCH = 1 << 20  # characters encoded at once: until its ids are taken, each takes some 250 bytes

Side: TypeAlias = Literal["left", "right"]


@runtime_checkable
class _Listable(Protocol):
    """A tensor or an array."""

    def tolist(self) -> list[int]: ...


Numbers: TypeAlias = Sequence[int] | _Listable  # ids, as a list, a tensor or an array


def listed(ids: Numbers) -> list[int]:
    """Ids as a list."""
    return ids.tolist() if isinstance(ids, _Listable) else list(ids)


class Framed(NamedTuple):
    """A text as a model reads it: ids with the special tokens around them, and 0 or 1 for each: which of two texts."""

    ids: list[int]
    segments: list[int]


class Aligned(NamedTuple):
    """A text, or a pair of texts, token by token, with the characters that each token stands for.

    `texts`: which of the texts a token is of, -1 for what frames them. `spans`: where its characters begin and end
    there, white space around them left out; where nothing is left, both are equal.
    """

    ids: list[int]
    segments: list[int]
    texts: list[int]
    spans: list[tuple[int, int]]

    def add(self, index: int, segment: int, text: int, span: tuple[int, int]) -> None:
        """One token more."""
        self.ids.append(index)
        self.segments.append(segment)
        self.texts.append(text)
        self.spans.append(span)


def trimmed(text: str, begin: int, end: int) -> tuple[int, int]:
    """A part of a text without the white space around it."""
    part = text[begin:end]
    begin += len(part) - len(part.lstrip())
    return begin, max(begin, end - (len(part) - len(part.rstrip())))


class FrameTokens(NamedTuple):
    """The special tokens that stand before a text, between two and after the last; and the segments of the two."""

    before: Framed
    between: Framed
    after: Framed
    segments: tuple[int, int]

    @classmethod
    def of(cls, tokenizer: tokenizers.Tokenizer, *, pair: bool) -> FrameTokens:
        """Those that a tokenizer puts around a text of one token at least, or around two."""
        known = (tokenizer.decode([index]) for index in range(tokenizer.get_vocab_size()))
        text = next(text for text in chain("a0", known) if tokenizer.encode(text, add_special_tokens=False).ids)
        encoded = tokenizer.encode(text, text if pair else None)
        each = list(zip(encoded.ids, encoded.type_ids, encoded.special_tokens_mask, encoded.sequence_ids, strict=True))
        own = [place for place, (*_, put, _) in enumerate(each) if not put]
        second = [place for place in own if each[place][3] == 1]
        first = [place for place in own if each[place][3] != 1]
        cuts = (0, first[0], first[-1] + 1, *((second[0], second[-1] + 1) if second else (first[-1] + 1,) * 2))

        def framed(begin: int, end: int) -> Framed:
            return Framed([one[0] for one in each[begin:end]], [one[1] for one in each[begin:end]])

        parts = framed(*cuts[:2]), framed(*cuts[2:4]), framed(cuts[4], len(each))
        return cls(*parts, (each[first[0]][1], each[second[0]][1] if second else 1))

    @property
    def size(self) -> int:
        """How many they are."""
        return len(self.before.ids) + len(self.between.ids) + len(self.after.ids)

    def around(self, *texts: Numbers) -> Framed:
        """The ids of one text, or of two, framed."""
        parts = [self.before]
        for number, text in enumerate(texts):
            ids = listed(text)
            parts += [self.between] if number else []
            parts.append(Framed(ids, [self.segments[number]] * len(ids)))
        parts.append(self.after)
        return Framed([index for part in parts for index in part.ids], [one for part in parts for one in part.segments])


class EncodingOptions(TypedDict, total=False):
    """Keywords of a tokenizer's call."""

    padding: bool | Literal["longest", "max_length"]  # texts become as long as the longest, or as max_length
    truncation: bool  # texts become no longer than max_length; special tokens stay
    max_length: int
    return_tensors: Literal["pt", "np"] | None  # tensors of torch, arrays of numpy; None: lists
    add_special_tokens: bool  # those that frame a text; True if nothing is said
    split_special_tokens: bool  # True: a text that spells a special token is text


class BatchEncoding(dict[str, Any]):
    """Encoded texts: `input_ids`, `attention_mask` and, where a model tells two texts apart, `token_type_ids`."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"there is no {name} in these encoded texts; there is {', '.join(self)}")
        return self[name]

    def to(self, device: Any) -> Self:
        """Tensors on another device."""
        return type(self)({name: tensor.to(device) for name, tensor in self.items()})


class FamiliarNames(ABC):
    """What a tokenizer is asked by people who know those of Hugging Face: a call, and a few names."""

    size: int
    pad: int | None
    begin: int | None
    end: int | None
    unknown: int | None
    mask: int | None
    padding_side: Side = "right"  # where `padding` goes

    @abstractmethod
    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of many texts, without special tokens."""

    @abstractmethod
    def encode_marked(self, text: str) -> list[int]:
        """The ids of a text whose special tokens are special."""

    @abstractmethod
    def framed_all(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, marked: bool = False
    ) -> list[Framed]:
        """Texts with the special tokens around them."""

    @abstractmethod
    def decode_all(self, rows: Sequence[Numbers], *, skip_special_tokens: bool = True) -> list[str]:
        """The text of each row of ids."""

    @abstractmethod
    def _id_of(self, token: str) -> int | None:
        """The id of a token, as the vocabulary spells it."""

    @abstractmethod
    def name(self, index: int) -> str:
        """The token of an id, as the vocabulary spells it."""

    def __call__(
        self,
        text: str | Sequence[str] | Sequence[tuple[str, str]],
        text_pair: str | Sequence[str] | None = None,
        **options: Unpack[EncodingOptions],
    ) -> BatchEncoding:
        """The ids of a text, or of each of several, with special tokens around them; `text_pair` is the second of two.

        Special tokens that a text spells are special, as in Hugging Face's tokenizers; with `split_special_tokens`
        they are text, as in every verb of heed's.
        """
        refuse_unknown("a tokenizer's call", options, EncodingOptions.__annotations__)
        single, texts, pairs = _texts(text, text_pair)
        rows = self._rows(texts, pairs, options)
        width = _width(rows, options)
        padded = [self._padded(row, width) for row in rows]
        found: dict[str, Any] = {"input_ids": [row[0] for row in padded]}
        if self._tells_segments:
            found["token_type_ids"] = [row[1] for row in padded]
        found["attention_mask"] = [row[2] for row in padded]
        kind = options.get("return_tensors")
        if kind is None:
            return BatchEncoding({name: some[0] for name, some in found.items()} if single else found)
        return BatchEncoding({name: _tensor(some, kind) for name, some in found.items()})

    def __len__(self) -> int:
        return self.size

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""
        return self.size

    @property
    def pad_token_id(self) -> int | None:
        return self.pad

    @property
    def bos_token_id(self) -> int | None:
        return self.begin

    @property
    def eos_token_id(self) -> int | None:
        return self.end

    @property
    def mask_token_id(self) -> int | None:
        return self.mask

    def batch_decode(self, rows: Sequence[Numbers], *, skip_special_tokens: bool = True) -> list[str]:
        """The text of each row of ids."""
        return self.decode_all(list(rows), skip_special_tokens=skip_special_tokens)

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """The id of a token as the vocabulary spells it, or of each of several."""
        if isinstance(tokens, str):
            found = self._id_of(tokens)
            return self.unknown if found is None else found
        return [self.convert_tokens_to_ids(token) for token in tokens]

    def convert_ids_to_tokens(self, ids: int | Numbers) -> Any:
        """The token of an id as the vocabulary spells it, or of each of several."""
        return self.name(ids) if isinstance(ids, int) else [self.name(index) for index in listed(ids)]

    def tokenize(self, text: str) -> list[str]:
        """The tokens of a text as the vocabulary spells them."""
        return [self.name(index) for index in self.encode_marked(text)]

    @cached_property
    def _tells_segments(self) -> bool:
        """Whether a frame tells two texts apart: special tokens stand around a text, and the second one is numbered."""
        frame = self.framed_all([""])[0].ids
        return len(frame) > 1 and 1 in self.framed_all([""], [""])[0].segments

    def _rows(self, texts: Sequence[str], pairs: Sequence[str] | None, options: Mapping[str, Any]) -> list[Framed]:
        """Framed, if that is wanted, and cut."""
        marked = not options.get("split_special_tokens", False)
        own = [texts] if pairs is None else [texts, pairs]
        alone = [[self.encode_marked(text) for text in some] if marked else self.encode_all(some) for some in own]
        if options.get("add_special_tokens", True):
            rows = self.framed_all(texts, pairs, marked=marked)
        else:
            rows = [_joined(some) for some in zip(*alone, strict=True)]
        if not options.get("truncation", False):
            return rows
        longest = options.get("max_length")
        if longest is None:
            raise InputError("truncation=True needs to know how long a text may be; add max_length=")
        parts = zip(rows, zip(*alone, strict=True), strict=True)
        return [row if len(row.ids) <= longest else shortened(row, some, longest) for row, some in parts]

    def _padded(self, row: Framed, width: int) -> tuple[list[int], list[int], list[int]]:
        """Ids, segments and mask. What stands at padding is masked, so without a pad token it is 0."""
        empty = max(width - len(row.ids), 0)
        mask, nothing = [1] * len(row.ids), [0] * empty
        pads = [self.pad or 0] * empty
        if self.padding_side == "left":
            return [*pads, *row.ids], [*nothing, *row.segments], [*nothing, *mask]
        return [*row.ids, *pads], [*row.segments, *nothing], [*mask, *nothing]


def shortened(framed: Framed, texts: Sequence[Sequence[int]], longest: int) -> Framed:
    """At most so many tokens of a framed text, or of a pair: the longer text loses its end first, the frame stays.

    `texts`: their own tokens, which are in the frame one after the other.
    """
    frame = len(framed.ids) - sum(map(len, texts))
    if frame > longest:
        raise InputError(f"there are places for {longest} tokens, and {frame} of them stand around every text")
    lengths = _fitting([len(text) for text in texts], longest - frame)
    kept, place = list[int](), 0
    for text, length in zip(texts, lengths, strict=True):
        begin = next(
            (at for at in range(place, place + frame + 1) if framed.ids[at : at + len(text)] == list(text)), None
        )
        if begin is None:
            raise InputError("the tokenizer frames this text otherwise than it encodes it; make the text shorter")
        kept += [*range(place, begin), *range(begin, begin + length)]
        place = begin + len(text)
    kept += range(place, len(framed.ids))
    return Framed([framed.ids[at] for at in kept], [framed.segments[at] for at in kept])


def _fitting(lengths: Sequence[int], room: int) -> list[int]:
    """Token by token off the longer one until both fit; where half a token is left, the longer one (the second) has it.

    The shorter one keeps all if it has at most half of the room.
    """
    if len(lengths) == 1:
        return [min(lengths[0], room)]
    short = min(*lengths, room // 2)
    return [short, room - short] if lengths[0] <= lengths[1] else [room - short, short]


def _joined(texts: Sequence[Sequence[int]]) -> Framed:
    segments = [number for number, ids in enumerate(texts) for _ in ids]
    return Framed([index for ids in texts for index in ids], segments)


def _texts(text: Any, pair: Any) -> tuple[bool, list[str], list[str] | None]:
    """Whether it is one text, all texts, and their pairs."""
    if isinstance(text, str):
        if pair is not None and not isinstance(pair, str):
            raise InputError(f"the pair of a text is a text, not {type(pair).__name__}")
        return True, [text], None if pair is None else [pair]
    if not isinstance(text, Sequence):
        raise InputError(f"a tokenizer takes a text or a list of texts, not {type(text).__name__}")
    if text and pair is None and all(isinstance(one, tuple) and len(one) == 2 for one in text):
        return False, [one for one, _ in text], [other for _, other in text]
    return False, list(text), None if pair is None else list(pair)


def _width(rows: Sequence[Framed], options: Mapping[str, Any]) -> int:
    """How wide rows become; 0: as they are."""
    match options.get("padding", False):
        case False:
            return 0
        case True | "longest":
            return max((len(row.ids) for row in rows), default=0)
        case "max_length":
            longest = options.get("max_length")
            if longest is None:
                raise InputError('padding="max_length" needs to know how long; add max_length=')
            return int(longest)
        case other:
            raise InputError(f'padding is True, False, "longest" or "max_length", not {other!r}')


def _tensor(rows: list[list[int]], kind: str) -> Any:
    if len({len(row) for row in rows}) > 1:
        raise InputError("texts of different lengths make no tensor; add padding=True")
    if kind == "np":
        return np.array(rows, np.int64)
    if kind != "pt":
        raise InputError(f'return_tensors is "pt" (torch) or "np" (numpy), not {kind!r}')
    import torch

    return torch.tensor(rows, dtype=torch.long)


def batched(texts: Iterable[str | tuple[str, str]]) -> Iterator[list[str | tuple[str, str]]]:
    """Texts, or pairs of them, as many at once as memory allows."""
    batch: list[str | tuple[str, str]] = []
    held = 0
    for text in texts:
        batch.append(text)
        held += len(text) if isinstance(text, str) else sum(map(len, text))
        if held >= BATCH:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch
