"""How a text falls into pieces and how pieces become a text again: what the kinds of tokenizers are made of.

Texts are brought to Unicode NFC first, so that é is one character however it was typed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from ..core.errors import InputError

# --- long texts ---

# The library takes some 250 bytes for each character of a text, and time that grows faster than the text. So a long
# text is cut where none of heed's pieces reaches across: after a single line break between two visible characters.
LONG = 1 << 16
_CUT = re.compile(r"\S\n(?=\S)")


def cut(text: str) -> Iterator[str]:
    """A text in parts of about `LONG` characters, as far as its line breaks allow; a short text as it is."""
    begin = 0
    while len(text) - begin > LONG and (found := _CUT.search(text, begin + LONG)):
        yield text[begin : found.end()]
        begin = found.end()
    yield text[begin:]


def may_be_cut(tokenizer: Tokenizer) -> bool:
    """Whether the ids of a text are those of its parts, for certain: it takes texts apart as heed's kinds do."""
    plain = all(token.special for token in tokenizer.get_added_tokens_decoder().values())
    return plain and _is_in(tokenizer.normalizer, NORMAL) and _is_in(tokenizer.pre_tokenizer, PIECES)


def _is_in(part: object, table: tuple[object, ...]) -> bool:
    return _written(part) in {_written(known) for known in table}  # the library's parts have no `==`


def _written(part: object) -> object:
    """A part as the library writes it down."""
    return None if part is None else part.__getstate__()


# --- normalisation ---


def normalizer(lowercase: bool) -> normalizers.Normalizer:
    """To NFC; in lower case before that, since lower case may take a character apart."""
    return normalizers.Sequence([normalizers.Lowercase(), normalizers.NFC()]) if lowercase else normalizers.NFC()


NORMAL = (None, normalizer(lowercase=False), normalizer(lowercase=True))


# --- bytes ---


def byte_alphabet() -> list[str]:
    """A visible character for each of the 256 bytes, in order: itself, or one from 256 on (GPT-2, Radford 2019)."""
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    hidden = iter(range(256, 512))
    return [chr(byte if byte in visible else next(hidden)) for byte in range(256)]


def bytes_in(tokenizer: Tokenizer) -> dict[str, int] | None:
    """The byte of each character of a token, {} for plain UTF-8; None if a text is not its tokens' bytes in a row."""
    if isinstance(tokenizer.decoder, decoders.ByteLevel):
        return {character: byte for byte, character in enumerate(byte_alphabet())}
    return {} if isinstance(tokenizer.decoder, decoders.Fuse) else None


def spaces_stripped(tokenizer: Tokenizer) -> int | None:
    """For tokens as SentencePiece writes them, with ▁ for a space and <0x0A> for a byte: how many spaces a text loses
    at its beginning. None for other tokens."""
    written = _written(tokenizer.decoder)
    match json.loads(written) if isinstance(written, bytes) else None:
        case {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *stripping,
            ],
        }:
            match stripping:
                case []:
                    return 0
                case [{"type": "Strip", "content": " ", "start": int(start), "stop": 0}]:
                    return start
    return None


def lines() -> pre_tokenizers.PreTokenizer:
    """Line breaks, and what is between them."""
    return pre_tokenizers.Split("\n", "isolated")


def byte_lines() -> pre_tokenizers.PreTokenizer:
    """The same, spelt in the alphabet of bytes."""
    return pre_tokenizers.Sequence([lines(), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


LINES = (lines(), byte_lines())


def byte_words() -> pre_tokenizers.PreTokenizer:
    """Words with the space before them, numbers, marks and white space, spelt in the alphabet of bytes (GPT-2)."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


# --- words ---

# A word is letters and digits, with ' and - inside, and . , : between digits. In scripts that set no spaces each
# character is a piece, as is each mark; these keep a space in front of them, so that it comes back. Words get one.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_LETTER = rf"[\w&&[^{_UNSPACED}]]"
_WORD = rf"{_LETTER}+(?:(?:['’-]|(?<=\d)[.,:](?=\d)){_LETTER}+)*"
_MARK = rf" ?[^\s{_LETTER}]\p{{M}}*"

_OPENING = r"(\[{<„‚¿¡$£€#@"  # nothing comes between these and a word
_JOINING = r"/\\–—=+&*~-"  # nor after these, unless a space is before them
_QUOTES = "\"'“‘«"  # they open after a space, a line break or something opening; else they close


def words() -> pre_tokenizers.PreTokenizer:
    """Words, marks and line breaks; other white space is lost."""
    return pre_tokenizers.Split(Regex(rf"{_WORD}|\n|{_MARK}"), "removed", invert=True)


def join_words() -> decoders.Decoder:
    """Words and marks to a text that reads well. What comes later never changes what was joined before."""
    opened = rf"[\n{_OPENING}]|\S[{_JOINING}]|[\s{_OPENING}][{_QUOTES}]|\A[{_QUOTES}]"
    return decoders.Sequence(
        [
            decoders.WordPiece(prefix="\n\n", cleanup=False),  # a space before all but the first; no piece begins so
            decoders.Replace(Regex(rf"\A (?=\n|{_MARK})"), ""),  # but not before a mark
            decoders.Fuse(),
            decoders.Replace(Regex(rf"(?<={opened}) (?={_LETTER})"), ""),
        ]
    )


PIECES = (lines(), byte_lines(), byte_words(), words())


# --- where words begin ---


def carries_space(tokenizer: Tokenizer) -> bool:
    """Whether tokens hold the space before them, for certain: words are spelt in the alphabet of bytes."""
    return bool(bytes_in(tokenizer)) and not _is_in(tokenizer.pre_tokenizer, (None, *LINES))


def words_begin(
    tokenizer: Tokenizer,
    ids: Sequence[int],
    piece: Callable[[int], bytes] | None,
    tried: Callable[[list[str]], None],
) -> list[bool]:
    """Of each token of a whole text, whether a word begins with it.

    Where tokens are bytes or characters in a row (`piece` gives them), words are what the tokenizer itself takes a text
    apart into or, if those are lines, what GPT-2's does; a space belongs to the word after it. Elsewhere the tokens say
    it: a word goes on with ## (WordPiece), begins with ▁ (SentencePiece), ends with a suffix, or is a token (words).
    """
    if piece is not None:
        return _begin_in_bytes(tokenizer, ids, piece, tried)
    model, names = tokenizer.model, [tokenizer.id_to_token(index) or "" for index in ids]
    if isinstance(model, models.WordLevel):
        return [True] * len(names)
    if isinstance(model, models.WordPiece):
        return [not name.startswith(model.continuing_subword_prefix) for name in names]
    if isinstance(model, models.BPE) and model.end_of_word_suffix:
        return [True, *(name.endswith(model.end_of_word_suffix) for name, _ in pairwise(names))][: len(names)]
    if any(token.startswith("▁") for token in tokenizer.get_vocab()):
        return [name.startswith("▁") or not place for place, name in enumerate(names)]
    raise InputError(f"this tokenizer ({type(model).__name__}) does not tell where words begin; mask single tokens")


def _begin_in_bytes(
    tokenizer: Tokenizer, ids: Sequence[int], piece: Callable[[int], bytes], tried: Callable[[list[str]], None]
) -> list[bool]:
    spelt = {index: piece(index) or b"x" for index in set(ids)}  # what is unknown is a letter of its word
    text = b"".join(spelt[index] for index in ids).decode(errors="replace")
    begins, at = [0], 0  # in bytes
    for part in cut(text):
        tried([part])
        split = byte_words() if _is_in(tokenizer.pre_tokenizer, (None, *LINES)) else tokenizer.pre_tokenizer
        code = np.frombuffer(part.encode("utf-32-le"), np.uint32)
        width = 1 + (code > 0x7F) + (code > 0x7FF) + (code > 0xFFFF)  # of each character, in bytes
        edge = at + np.concatenate([[0], np.cumsum(width)])
        begins += [int(edge[begin]) for _, (begin, _) in split.pre_tokenize_str(part)]
        at = int(edge[-1])
    first = np.concatenate([[0], np.cumsum([len(spelt[index]) for index in ids])])[: len(ids)]
    found: list[bool] = np.isin(first, begins).tolist()
    return found
