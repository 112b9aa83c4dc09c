"""One class for every tokenizer: text to ids and back, held by the `tokenizers` library and saved as tokenizer.json.

Ids of the four special tokens never come out of a text: a text that spells "</s>" is text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import tokenizers

from ..core.atomic import replacing
from ..core.errors import InputError
from .batch import BATCH, Aligned, FamiliarNames, Framed, FrameTokens, Numbers, batched, listed, trimmed
from .chat import Chat, Message, checked
from .confined.trial import trial_of
from .guard import many, must_frame_within, understood, whole
from .pretokenizers import bytes_in, cut, may_be_cut, spaces_stripped, words_begin
from .prompt import Prompter
from .stream import BYTE, Bytes, Fallback, Stream, Whole

Role: TypeAlias = Literal["pad", "begin", "end", "unknown", "mask"]

# What a special token may be called, heed's own name first. The first that is in the vocabulary is taken.
NAMES: dict[Role, tuple[str, ...]] = {
    "pad": ("<pad>", "[PAD]", "<PAD>", "<|pad|>", "<|padding|>"),
    "begin": ("<s>", "[CLS]", "<bos>", "[BOS]", "<cls>", "<|begin_of_text|>", "<|startoftext|>", "<|endoftext|>"),
    "end": ("</s>", "[SEP]", "<eos>", "[EOS]", "<sep>", "<|end_of_text|>", "<|endoftext|>"),
    "unknown": ("<unk>", "[UNK]", "<UNK>", "<|unk|>"),
}
SPECIAL = tuple(names[0] for names in NAMES.values())  # ids 0, 1, 2, 3 of a tokenizer that heed trains
MASKS = ("<mask>", "[MASK]", "<MASK>", "<|mask|>")  # taken only if they are special tokens already

MOST = 1 << 24  # ids; the largest vocabularies have some 260,000
_SHOWN = str.maketrans({" ": "␣", "▁": "␣", "\n": "⏎", "\t": "⇥"})


@dataclass(frozen=True)
class Declared:
    """What others say about a tokenizer of theirs: which token has which role, which ids end a completion, how to chat.

    `roles`: None if nothing is said, so that the usual names decide.
    """

    roles: Mapping[Role, str | None] | None = None
    ends: tuple[int, ...] = ()
    chat: Chat | None = None
    tokens: Mapping[str, str | None] = field(default_factory=dict)  # by the keys of a tokenizer_config.json


class Tokenizer(FamiliarNames):
    """Text to ids and back. It takes over the tokenizer that it is given.

    `size`: ids are 0 .. size-1. `pad`, `begin`, `end`, `unknown`, `mask`: ids of the special tokens, None where there
    is none. `ends`: all ids that end a completion. `chat`: the template of chats, if there is one.
    """

    def __init__(self, inner: tokenizers.Tokenizer, declared: Declared | None = None) -> None:
        inner.no_padding()
        inner.no_truncation()
        vocabulary = inner.get_vocab(with_added_tokens=True)
        if not vocabulary:
            raise InputError("a tokenizer needs at least one token; this one has none")
        self.size = max(vocabulary.values()) + 1
        if self.size > MOST:
            raise InputError(f"this tokenizer has ids up to {self.size - 1:,}; at most {MOST:,} are accepted")
        must_frame_within(inner, self.size)
        self._declared = declared or Declared()
        roles = self._declared.roles or _by_name(vocabulary, _special(inner).values())
        kept = {"unknown"} if self._declared.roles is None else set()  # what a name suggests is not certain
        names = {name for role, name in roles.items() if name in vocabulary and role not in kept}
        inner.add_special_tokens(sorted(names - set(_special(inner).values())))
        inner.encode_special_tokens = True  # special tokens are not looked for in texts

        def index(role: Role) -> int | None:
            name = roles.get(role)
            return None if name is None else vocabulary.get(name)

        self.pad, self.begin, self.end = index("pad"), index("begin"), index("end")
        self.unknown, self.mask = index("unknown"), index("mask")
        ends = (self.end, *self._declared.ends)
        self.ends = tuple(dict.fromkeys(end for end in ends if end is not None and end < self.size))
        self.chat = self._declared.chat
        self._inner = inner
        self._special = set(_special(inner))
        self._never = self._special - {self.unknown}  # what no text may give
        self._cuttable = may_be_cut(inner)
        self._bytes = bytes_in(inner)
        self.keeps_bytes = self._bytes is not None  # a text is its tokens' bytes in a row
        self._trial = trial_of(inner)

    @property
    def algorithm(self) -> str:
        """How texts are cut: BPE, WordPiece, Unigram, WordLevel."""
        return type(self._inner.model).__name__

    def __repr__(self) -> str:
        return f"Tokenizer(size={self.size})"

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[tokenizers.Tokenizer, Declared]]:
        # Copies are set up anew: the library forgets `encode_special_tokens`.
        return Tokenizer, (self._inner, self._declared)

    def need(self, role: Role) -> int:
        """The id of a special token that a task cannot do without."""
        index: int | None = getattr(self, role)
        if index is None:
            names = MASKS if role == "mask" else NAMES[role]
            raise InputError(
                f"this tokenizer has no {role} token (none of {', '.join(names)}), which is needed here; "
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

    def encode_marked(self, text: str) -> list[int]:
        """The ids of a text whose special tokens are special, as a chat template writes it. Not for texts of users."""
        self._try([text])
        with understood("this tokenizer cannot read the text"):
            return list(self._marked.encode(next(many([text])), add_special_tokens=False).ids)

    def framed(self, text: str, pair: str | None = None, *, marked: bool = False) -> Framed:
        """A text, or a pair of texts, with the special tokens that this tokenizer puts around it; `marked`: those that
        the text itself spells are special, too, such as a [MASK] to be filled."""
        return self.framed_all([text], None if pair is None else [pair], marked=marked)[0]

    def framed_all(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, marked: bool = False
    ) -> list[Framed]:
        """The same for many texts; the pair of each is at the same place."""
        if pairs is not None and len(pairs) != len(texts):
            raise InputError(f"each text needs its pair; there are {len(texts)} texts and {len(pairs)} pairs")
        encoded = self._encodings(texts, pairs, marked=marked)
        return [Framed(one.ids, one.type_ids) if marked else self._framed(one) for one, _ in encoded]

    def aligned_all(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, *, framed: bool = True
    ) -> list[Aligned]:
        """Texts, or pairs of them, with the characters that each token stands for."""
        return [self._aligned(one, given) for one, given in self._encodings(texts, pairs, framed=framed)]

    def _encodings(
        self, texts: Sequence[str], pairs: Sequence[str] | None, *, marked: bool = False, framed: bool = True
    ) -> Iterator[tuple[tokenizers.Encoding, tuple[str, ...]]]:
        """Each as the library encodes it, and the texts that it is of."""
        inner = self._marked if marked else self._inner
        for batch in batched(many(texts) if pairs is None else zip(many(texts), many(pairs), strict=True)):
            given = [(one,) if isinstance(one, str) else one for one in batch]
            self._try([text for one in given for text in one])
            with understood("this tokenizer cannot read the text"):
                encoded = inner.encode_batch(batch, add_special_tokens=framed)
            yield from zip(encoded, given, strict=True)

    def prompt(
        self,
        messages: Sequence[Message],
        *,
        prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **values: Any,
    ) -> list[int]:
        """The ids of a chat. Special tokens are what the template writes; a message that spells one is text."""
        if self.chat is None:
            raise InputError("this tokenizer has no chat template")
        hidden = self._prompter.hidden
        text = self.chat.render(hidden(checked(messages)), prompt=prompt, tools=hidden(tools), **values)
        self._try([text])
        return self._prompter.encode(next(many([text])), self._as_text)

    def decode(self, ids: Numbers, *, skip_special_tokens: bool = True) -> str:
        """The text of these ids; special tokens, the unknown one too, are left out, if nothing else is said."""
        return self.decode_all([ids], skip_special_tokens=skip_special_tokens)[0]

    def decode_all(self, rows: Iterable[Numbers], *, skip_special_tokens: bool = True) -> list[str]:
        """The text of each row of ids."""
        ids = [listed(row) for row in rows]
        for row in ids:
            self._check(row)
        if self._trial is not None:
            self._trial.write([[self._inner.id_to_token(index) or "" for index in row] for row in ids])
        with understood("this tokenizer cannot write these ids"):
            return self._inner.decode_batch(ids, skip_special_tokens=skip_special_tokens)

    def stream(self) -> Stream:
        """A decoder for ids that come one by one."""
        if self.keeps_bytes:
            return Bytes(self._piece)
        stripped = spaces_stripped(self._inner)
        return Whole(self) if stripped is None else Fallback(self._spaced, stripped)

    def name(self, index: int) -> str:
        """A token as the vocabulary spells it."""
        self._check((index,))
        return self._inner.id_to_token(index) or ""

    def tokens(self, ids: Numbers) -> list[str]:
        """Each id for people to read: a space is ␣, a line break ⏎, a byte that is no character \\xe4."""
        self._check(numbers := listed(ids))
        return [self._shown(index) for index in numbers]

    def copy(self, change: Callable[[tokenizers.Tokenizer], object]) -> Tokenizer:
        """The same, changed; this one stays as it is."""
        change(inner := tokenizers.Tokenizer.from_str(self.to_json()))
        return type(self)(inner, self._declared)

    def usual(self) -> list[int]:
        """All ids that are no special token."""
        return sorted(set(self._inner.get_vocab().values()) - self._special)

    def frame(self, *, pair: bool = False) -> FrameTokens:
        """What it puts around a text, or around two."""
        with understood("this tokenizer cannot frame a text"):
            return FrameTokens.of(self._inner, pair=pair)

    def words(self, ids: Numbers) -> list[bool]:
        """Of each token of a whole text, whether a word begins with it."""
        self._check(numbers := listed(ids))
        return words_begin(self._inner, numbers, None if self._bytes is None else self._piece, self._try)

    def save(self, path: Path | str) -> None:
        """Write a tokenizer.json, all of it or nothing."""
        with replacing(Path(path)) as fresh:
            fresh.write_text(self.to_json() + "\n", encoding="utf-8")

    def to_json(self) -> str:
        """What a tokenizer.json holds."""
        return str(self._inner.to_str(pretty=True))

    def save_all(self, folder: Path | str) -> None:
        """The same, and beside it what is known of its special tokens and its chats: a folder that others read, too."""
        from .tokenizer_config import write

        write(self, Path(folder))

    @classmethod
    def read(cls, path: Path | str) -> Tokenizer:
        """From a tokenizer.json, heed's or that of another library."""
        place = Path(path)
        if place.is_dir():
            raise InputError(f"{place} is a folder; give the path of the tokenizer.json in it")
        return cls(whole(place))

    @property
    def told(self) -> Declared:
        """What was said about it beside its tokenizer.json."""
        return self._declared

    @classmethod
    def of_folder(cls, folder: Path | str) -> Tokenizer:
        """From a folder of another library, whichever files its tokenizer is in (`heed.text.pretrained`)."""
        from .pretrained import read

        return read(Path(folder))

    def _id_of(self, token: str) -> int | None:
        return self._inner.token_to_id(token)

    def _encode(self, batch: list[str], owner: list[int], found: list[list[int]]) -> None:
        self._try(batch)
        with understood("this tokenizer cannot read the text"):
            encoded = self._inner.encode_batch_fast(batch, add_special_tokens=False)
        for number, one in zip(owner, encoded, strict=True):
            ids = one.ids
            if not self._never.isdisjoint(ids):  # a vocabulary may hold "</s>" as a word like any other
                ids = [index for index in map(self._as_text, ids) if index is not None]
            found[number] += ids

    def _try(self, texts: Sequence[str]) -> None:
        """Patterns that nobody knows are tried in another process first."""
        if self._trial is not None:
            self._trial.read([text for text in texts if text])

    def _as_text(self, index: int) -> int | None:
        """An id that came out of a text: no special one."""
        return self.unknown if index in self._never else index

    def _framed(self, encoded: tokenizers.Encoding) -> Framed:
        each = zip(encoded.ids, encoded.type_ids, encoded.special_tokens_mask, strict=True)
        kept = [(index if put else self._as_text(index), segment) for index, segment, put in each]
        ids = [(index, segment) for index, segment in kept if index is not None]
        return Framed([index for index, _ in ids], [segment for _, segment in ids])

    def _aligned(self, encoded: tokenizers.Encoding, texts: Sequence[str]) -> Aligned:
        found = Aligned([], [], [], [])
        each = zip(encoded.ids, encoded.type_ids, encoded.sequence_ids, encoded.offsets, strict=True)
        for index, segment, text, (begin, end) in each:
            kept = index if text is None else self._as_text(index)
            if kept is not None:
                span = (0, 0) if text is None or self._is_blank(index) else trimmed(texts[text], begin, end)
                found.add(kept, segment, -1 if text is None else text, span)
        return found

    def _is_blank(self, index: int) -> bool:
        """Whether a token is the space before a word alone, which some tokenizers put where there is none."""
        token = self._inner.id_to_token(index) or ""
        return not token.strip("▁") or (bool(self._bytes) and not token.strip("Ġ"))

    @cached_property
    def _marked(self) -> tokenizers.Tokenizer:
        """The same tokenizer, which looks for special tokens."""
        twin = self._twin()
        twin.add_tokens([token for _, token in sorted(self._inner.get_added_tokens_decoder().items())])
        return twin

    @cached_property
    def _prompter(self) -> Prompter:
        return Prompter(self._twin(), self._inner.get_added_tokens_decoder())

    def _twin(self) -> tokenizers.Tokenizer:
        """The same tokenizer, without the tokens that were added to it; the vocabulary is shared."""
        twin = tokenizers.Tokenizer(self._inner.model)
        if self._inner.normalizer is not None:
            twin.normalizer = self._inner.normalizer
        if self._inner.pre_tokenizer is not None:
            twin.pre_tokenizer = self._inner.pre_tokenizer
        if self._inner.post_processor is not None:
            twin.post_processor = self._inner.post_processor
        return twin

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

    def _spaced(self, index: int) -> str | int:
        """What an id adds to a text of SentencePiece: a text, or a byte."""
        self._check((index,))
        token = None if index in self._special else self._inner.id_to_token(index)
        if token is None:
            return ""
        byte = BYTE.fullmatch(token)
        return int(byte[1], 16) if byte else token.replace("▁", " ")

    def _shown(self, index: int) -> str:
        token = self._inner.id_to_token(index)
        if token is None or index in self._special:
            return token or ""
        if self._bytes:
            token = self._piece(index).decode(errors="backslashreplace")
        return token.translate(_SHOWN)


def _special(inner: tokenizers.Tokenizer) -> dict[int, str]:
    return {index: token.content for index, token in inner.get_added_tokens_decoder().items() if token.special}


def _by_name(vocabulary: Collection[str], special: Collection[str]) -> dict[Role, str | None]:
    """Special tokens that go by one of the usual names."""
    found: dict[Role, str | None] = {
        role: next((name for name in names if name in vocabulary), None) for role, names in NAMES.items()
    }
    return found | {"mask": next((name for name in MASKS if name in special), None)}
