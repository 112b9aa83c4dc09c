"""Mutations that know a file format: which bytes are counts, lengths, types and offsets, and what checksums follow."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

from .mutate import (
    INTEGERS,
    TEXTS,
    Mutator,
    mutated_bytes,
    mutated_json,
    mutated_jsonl,
    mutated_text,
    mutated_toml,
    mutated_tree,
    nasty,
)

DTYPES = ("F64", "F32", "F16", "BF16", "I64", "I8", "U8", "BOOL", "F8_E4M3", "C64", "F4", "X", "", "F32\0")
ODD_FLOATS = (float("nan"), float("inf"), -float("inf"), 3.4e38, 1e-45, 0.0, -0.0, 1e30)


class Field(NamedTuple):
    """A number in a file: where, and how it is stored (struct's letter)."""

    at: int
    letter: str


def with_number(draw: Random, data: bytes, field: Field) -> bytes:
    """Another number there."""
    size = struct.calcsize("<" + field.letter)
    if field.letter in "efd":
        number = struct.pack("<" + field.letter, draw.choice(ODD_FLOATS) if field.letter != "e" else float("nan"))
    else:
        (now,) = struct.unpack_from("<" + field.letter, data, field.at)
        value = draw.choice((now + 1, now - 1, now * 2, now ^ 1 << draw.randrange(8 * size), draw.choice(INTEGERS)))
        number = (value % (1 << 8 * size)).to_bytes(size, "little")
    return data[: field.at] + number + data[field.at + size :]


def _of_fields(fields: Callable[[bytes], list[Field]]) -> Mutator:
    def mutated(draw: Random, data: bytes) -> bytes:
        try:
            found = fields(data)
        except (struct.error, IndexError, ValueError, UnicodeDecodeError):
            found = []
        found = [field for field in found if 0 <= field.at <= len(data) - struct.calcsize("<" + field.letter)]
        if not found or draw.random() < 0.15:
            return mutated_bytes(draw, data)
        return with_number(draw, data, draw.choice(found))

    return mutated


# --- safetensors: the length of a header, the header in JSON, the tensors ---


def mutated_safetensors(draw: Random, data: bytes) -> bytes:
    try:
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        body = data[8 + length :]
        found = (entry for name, entry in header.items() if name != "__metadata__")
        entries = [entry for entry in found if isinstance(entry.get("shape"), list)]  # an earlier mutation may be there
    except (ValueError, AttributeError, TypeError, RecursionError):
        return mutated_bytes(draw, data)
    how = draw.randrange(8)
    if how == 0:
        return with_number(draw, data, Field(0, "Q"))  # its length
    if how == 1 or not entries:
        return mutated_bytes(draw, data)
    if how == 2 and len(body) >= 4:  # numbers that no training gives
        at = draw.randrange(len(body) // 4) * 4
        return data[: 8 + length] + body[:at] + struct.pack("<f", draw.choice(ODD_FLOATS)) + body[at + 4 :]
    entry, other = draw.choice(entries), draw.choice(entries)
    _misdescribe(draw, header, entry, other, len(body))
    text = mutated_json(draw, json.dumps(header).encode()) if how == 7 else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def _misdescribe(draw: Random, header: dict[str, Any], entry: dict[str, Any], other: dict[str, Any], size: int) -> None:
    """One wrong entry of a header."""
    match draw.randrange(8):
        case 0:
            entry["dtype"] = draw.choice(DTYPES)
        case 1:
            entry["shape"] = nasty(draw, entry["shape"])
        case 2 if entry["shape"]:
            entry["shape"][draw.randrange(len(entry["shape"]))] = draw.choice(INTEGERS)
        case 3:
            entry["data_offsets"] = draw.choice((other.get("data_offsets"), [0, size], [size, 0], [0, 2**64 - 1], [5]))
        case 4:
            entry["shape"] = [1] * draw.choice((1, 64, 1000)) + list(entry["shape"])
        case 5:  # reshaped: as many numbers as before
            entry["shape"] = [*list(entry["shape"])[::-1]]
        case 6:
            name = draw.choice(sorted(header))
            header[draw.choice((*TEXTS, name + ".weight", name.upper()))] = header.pop(name)
        case _:
            mutated_tree(draw, header)


# --- GGUF: counts, keys, types, values, tensors ---

GGUF_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}


class _Gguf:
    """Walks through a file and notes where its numbers are."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 4
        self.fields: list[Field] = []
        self.pairs: list[tuple[int, int]] = []  # from where to where a key and its value reach
        self.number("I")
        tensors, keys = self.number("Q"), self.number("Q")
        for _ in range(keys):
            begin = self.at
            self.text()
            self.value(self.number("I"))
            self.pairs.append((begin, self.at))
        for _ in range(tensors):
            self.text()
            for _ in range(self.number("I")):
                self.number("Q")
            self.number("I")
            self.number("Q")

    def number(self, letter: str) -> int:
        (found,) = struct.unpack_from("<" + letter, self.data, self.at)
        self.fields.append(Field(self.at, letter))
        self.at += struct.calcsize("<" + letter)
        return int(found) if letter not in "fd" else 0

    def text(self) -> None:
        length = self.number("Q")
        self.at += length
        if self.at > len(self.data):
            raise ValueError("a text leads out of the file")

    def value(self, kind: int) -> None:
        if kind in GGUF_NUMBERS:
            self.number(GGUF_NUMBERS[kind])
        elif kind == 8:
            self.text()
        elif kind == 9:
            inner, count = self.number("I"), self.number("Q")
            for _ in range(min(count, 5000)):
                self.value(inner)
        else:
            raise ValueError("an unknown type")


def mutated_gguf(draw: Random, data: bytes) -> bytes:
    try:
        found = _Gguf(data)
    except (struct.error, ValueError):
        return mutated_bytes(draw, data)
    how = draw.randrange(10)
    if how == 0:
        return mutated_bytes(draw, data)
    if how == 1 and found.pairs:  # a key twice, or not at all
        begin, end = draw.choice(found.pairs)
        again = draw.choice((0, 2))
        count = (len(found.pairs) + again - 1).to_bytes(8, "little")
        return data[:16] + count + data[24:begin] + data[begin:end] * again + data[end:]
    if how == 2:  # the text of a key or of a name
        at = draw.choice([field.at + 8 for field in found.fields if field.letter == "Q"])
        return data[:at] + draw.choice(TEXTS).encode("utf-8", "replace")[:8] + data[at + 8 :]
    if how == 3:  # numbers of the tensors
        at = draw.randrange(found.at, max(found.at + 1, len(data) - 4))
        return data[:at] + draw.choice((b"\xff" * 4, b"\0\0\x80\x7f", draw.randbytes(4))) + data[at + 4 :]
    few = [field for field in found.fields if field.letter in "IQ"] if how < 7 else found.fields
    return with_number(draw, data, draw.choice(few))


# --- llama2.c: seven numbers; its tokenizer: a score and a length before every piece ---


def _llama2c(data: bytes) -> list[Field]:
    first = 8 if data[:4] == b"24ka" else 0
    return [Field(at, "i") for at in range(0, min(first + 28, len(data) - 4), 4)]


def _llama2c_pieces(data: bytes) -> list[Field]:
    found, at = [Field(0, "i")], 4
    while at + 8 <= len(data):
        found += [Field(at, "f"), Field(at + 4, "i")]
        at += 8 + max(0, int(struct.unpack_from("<i", data, at + 4)[0]))
    return found


# --- SentencePiece: a message of protocol buffers ---


def _protobuf(data: bytes) -> list[Field]:
    """The bytes of tags, lengths and numbers, two levels deep."""
    return [Field(at, "B") for at in _tags(data, 0, len(data), 2)]


def _tags(data: bytes, at: int, end: int, levels: int) -> Iterator[int]:
    while at < end:
        yield at
        tag, at = _varint(data, at)
        yield at
        match tag & 7:
            case 0:
                _, at = _varint(data, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case 2:
                length, at = _varint(data, at)
                if levels > 1:
                    yield from _tags(data, at, min(end, at + length), levels - 1)
                at += length
            case _:
                return


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | data[at] << shift, at + 1


# --- pickles: an archive of torch's, with a program in it ---

HOSTILE = (
    b"cos\nsystem\n(S'touch ../outside/ran'\ntR.",
    b'cbuiltins\nexec\n(S\'open("../outside/ran", "w")\'\ntR.',
    b"ctorch\n_utils\n(tR.",
    b"ctorch.serialization\nload\n(S'/etc/passwd'\ntR.",
    pickle.dumps({"a": [1] * 9, "b": {"c": "d"}}, 2),
    b"(" * 5000 + b"l." * 10,
    b"]" + b"2a" * 40 + b".",
    b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01h\x00u.",
    b"\x80\x02X\xff\xff\xff\x7fabc.",
    b"\x80\x02\x8a\xff" + b"\xff" * 255 + b".",
)


def mutated_pickle(draw: Random, data: bytes) -> bytes:
    if data[:2] != b"PK":
        at = draw.randrange(len(data) + 1)
        return draw.choice((mutated_bytes(draw, data), draw.choice(HOSTILE), data[:at] + draw.choice(HOSTILE)))
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, zlib.error, RuntimeError, EOFError):
        return mutated_bytes(draw, data)
    if draw.random() < 0.3 or not entries:
        return mutated_bytes(draw, data)
    name = draw.choice(sorted(entries))
    program = next((entry for entry in entries if entry.endswith("data.pkl")), name)
    kind = zipfile.ZIP_STORED
    match draw.randrange(6):
        case 0:
            entries[program] = draw.choice(HOSTILE)
        case 1:
            entries[program] = mutated_bytes(draw, entries[program])
        case 2:
            entries[name] = mutated_bytes(draw, entries[name])
        case 3:
            del entries[name]
        case 4:
            entries[draw.choice(("../../outside/ran", "/etc/x", "a/../data.pkl", name + "\\x"))] = entries[name]
        case _:
            kind = zipfile.ZIP_DEFLATED
            entries[name] = bytes(draw.choice((10, 10**7)))
    return _zipped(entries, kind)


def _zipped(entries: dict[str, bytes], kind: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", kind) as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, kind)
    return out.getvalue()


# --- compressed: what is inside is mutated, or how it is packed ---


def gzipped(inner: Mutator) -> Mutator:
    def mutated(draw: Random, data: bytes) -> bytes:
        try:
            plain = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return mutated_bytes(draw, data)
        if len(plain) > 1 << 20:  # it was made large before
            return mutated_bytes(draw, data)
        match draw.randrange(5):
            case 0:
                return mutated_bytes(draw, data)
            case 1:
                return data + draw.choice((data, b"garbage", data[:10]))
            case 2:
                line = draw.choice((b"a" * (1 << 22), b"\n", b"a\tb\n", b'{"text": "a"}\n'))
                # A few seconds of honest work at most: each of these lines is read, split and counted.
                return gzip.compress(line * max(1, (1 << 18) // len(line)), 1, mtime=0)
        return gzip.compress(inner(draw, plain), mtime=0)

    return mutated


# --- images and sounds ---


def mutated_png(draw: Random, data: bytes) -> bytes:
    """A chunk changed, with a checksum that fits."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        length = int.from_bytes(data[at : at + 4], "big")
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    if not chunks or draw.random() < 0.3:
        return mutated_bytes(draw, data)
    index = draw.randrange(len(chunks))
    kind, content = chunks[index]
    if kind == b"IHDR" and draw.random() < 0.7:
        size = draw.choice((0, 1, 5000, 2**16, 2**24, 2**31 - 1, 2**31)).to_bytes(4, "big")
        chunks[index] = (
            kind,
            draw.choice((size + content[4:], content[:4] + size + content[8:], size * 2 + content[8:])),
        )
    else:
        chunks[index] = draw.choice(((kind, mutated_bytes(draw, content)), (b"tEXt", content), (b"acTL", content[:8])))
    if draw.random() < 0.2:
        chunks.insert(draw.randrange(len(chunks)), (b"zTXt", b"k\0\0" + zlib.compress(bytes(1 << 24))))
    return data[:8] + b"".join(
        len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")
        for kind, content in chunks
    )


def _wav(data: bytes) -> list[Field]:
    """RIFF: sizes of chunks, and what the format says."""
    found, at = [Field(4, "I")], 12
    while at + 8 <= len(data):
        found.append(Field(at + 4, "I"))
        if data[at : at + 4] == b"fmt ":
            found += [Field(at + 8 + offset, letter) for offset, letter in ((0, "H"), (2, "H"), (4, "I"), (8, "I"))]
            found += [Field(at + 20, "H"), Field(at + 22, "H")]
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "little") + at % 2
    return found


def _parquet(data: bytes) -> list[Field]:
    """The footer: its length, and the bytes of its thrift message."""
    length = int.from_bytes(data[-8:-4], "little")
    return [Field(len(data) - 8, "I"), *(Field(at, "B") for at in range(max(0, len(data) - 8 - length), len(data) - 8))]


# --- which mutation a file gets ---

FORMATS: dict[str, Mutator] = {  # by the end of its name
    ".index.json": mutated_json,
    ".json": mutated_json,
    ".jsonl": mutated_jsonl,
    ".toml": mutated_toml,
    ".safetensors": mutated_safetensors,
    ".gguf": mutated_gguf,
    "tok.bin": _of_fields(_llama2c_pieces),
    "stories.bin": _of_fields(_llama2c),
    ".bin": mutated_pickle,
    ".pt": mutated_pickle,
    ".model": _of_fields(_protobuf),
    ".spm": _of_fields(_protobuf),
    ".jsonl.gz": gzipped(mutated_jsonl),
    ".gz": gzipped(mutated_text),
    ".parquet": _of_fields(_parquet),
    ".png": mutated_png,
    ".wav": _of_fields(_wav),
    ".txt": mutated_text,
    ".tsv": mutated_text,
    ".csv": mutated_text,
    ".md": mutated_text,
    "SHA256SUMS": mutated_text,
}


def mutated(draw: Random, name: str, data: bytes) -> bytes:
    """One change to a file, by what it is."""
    ends = [end for end in FORMATS if name.endswith(end)]
    return FORMATS[max(ends, key=len)](draw, data) if ends else mutated_bytes(draw, data)
