"""Files of tokenizers: read within bounds, written whole; what the `tokenizers` library raises, as errors of heed."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import tokenizers

from ..core.atomic import replacing
from ..core.errors import HeedError, InputError

Data: TypeAlias = dict[str, Any]

SETTINGS = 1 << 24  # bytes of a file of settings, such as tokenizer_config.json; the largest known has some 2 million
VOCABULARY = 1 << 27  # bytes of a file that holds a vocabulary; the largest known has some 34 million
GROWTH = 1024  # times that a text may grow while it is prepared or put together


@contextmanager
def understood(what: str) -> Iterator[None]:
    """Whatever the library raises within, as an InputError that begins with `what`."""
    try:
        yield
    except (HeedError, MemoryError):
        raise
    except BaseException as error:
        # The library panics on some files; its PanicException is a BaseException that cannot be imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{what}: {error}") from None


def must_frame_within(tokenizer: tokenizers.Tokenizer, size: int) -> None:
    """Raise if ids that are put around texts are not below `size`: a post-processor names them by itself."""
    with understood("this tokenizer cannot put its special tokens around a text"):
        around = tokenizer.encode("", "").ids
    strange = [index for index in around if index >= size]
    if strange:
        raise InputError(f"this tokenizer puts the id {strange[0]} around texts; its ids end at {size - 1}")


def read_bytes(path: Path, most: int) -> bytes:
    """All of a file, which may have `most` bytes."""
    if path.exists() and not path.is_file():  # a pipe would be waited for
        raise InputError(f"{path} is not a file")
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > most:
        raise InputError(f"{path} has more than {most:,} bytes, which no file of this kind needs")
    return data


def read_text(path: Path, most: int) -> str:
    """All of a text file in UTF-8; every line ends in a line feed, however it was written."""
    try:
        text = read_bytes(path, most).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not text in UTF-8: byte {error.start} is wrong") from None
    return text.replace("\r\n", "\n")


def read_json(path: Path, most: int = SETTINGS) -> Data:
    """A table of named values."""
    try:
        data = json.loads(read_text(path, most))
    except (ValueError, RecursionError) as error:
        if isinstance(error, HeedError):
            raise
        raise InputError(f"{path} is not valid json: {error}") from None
    if not isinstance(data, dict):
        raise InputError(f"{path} holds a {type(data).__name__}; a table of named values is needed")
    return data


def numbered(data: Data, path: Path) -> dict[str, int]:
    """Tokens and their ids, as a vocab.json or an added_tokens.json holds them."""
    for token, index in data.items():
        if type(index) is not int or not 0 <= index < 1 << 32:
            raise InputError(f"{path}: the id of {token!r} is {index!r}; ids are whole numbers from 0 on")
    return data


def check_growth(tokenizer: tokenizers.Tokenizer, what: str) -> None:
    """Refuse parts that would blow up a short text: a file is free to replace every letter by a million."""
    for part in (tokenizer.normalizer, tokenizer.decoder):
        if part is not None and (growth := _growth(json.loads(part.__getstate__()))) > GROWTH:
            raise InputError(
                f"{what} makes a text up to {growth:,} times as long (its {part.__class__.__name__}); "
                f"no more than {GROWTH} times is accepted"
            )


def _growth(part: Any) -> int:
    """How many times as long a part may make a text, as the library writes it down."""
    match part:
        case {"type": "Sequence", "normalizers": list(parts)} | {"type": "Sequence", "decoders": list(parts)}:
            return math.prod(map(_growth, parts))
        case {"type": "Replace", "pattern": {"String": str(found)}, "content": str(content)} if found:
            return max(1, len(content))
        case {"type": "Replace", "content": str(content)}:  # a pattern may match what is empty, between any two letters
            return 1 + len(content)
        case {"type": "Prepend", "prepend": str(content)}:
            return 1 + len(content)
        case {"type": "Precompiled", "precompiled_charsmap": str(written)}:
            return max(1, longest_replacement(base64.b64decode(written)))
    return 1


def longest_replacement(charsmap: bytes) -> int:
    """Bytes of the longest text in a map of characters: a trie, its size before it, then texts that end in zeros."""
    size = int.from_bytes(charsmap[:4], "little")
    return max(map(len, charsmap[4 + size :].split(b"\0")))


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


def whole(path: Path) -> tokenizers.Tokenizer:
    """What a tokenizer.json holds."""
    if not path.exists():
        raise InputError(f"there is no file {path}; give the path of a tokenizer.json")
    try:
        text = read_bytes(path, VOCABULARY).decode()
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text, so it is no tokenizer.json (of sentencepiece?)") from None
    with understood(f"{path} is cut off or not a tokenizer.json"):
        inner = tokenizers.Tokenizer.from_str(text)
        check_growth(inner, str(path))
    if not inner.get_vocab_size(with_added_tokens=True):
        raise InputError(f"{path} holds no tokens; a tokenizer needs at least one token")
    return inner


def write_json(path: Path, data: object) -> None:
    """All of it or nothing: a crash leaves the old file."""
    with replacing(path) as fresh:
        fresh.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
