"""What the tests of other people's tokenizers are made of: folders, small SentencePiece models, texts, real files."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

ROOT = Path(__file__).resolve().parents[2]

LINES = [
    "The quick brown fox said hello, twice, to the lazy dog that isn't here.",
    "A model of the world, a test of the tokenizer, and the rest of the story (1234 words).",
    "Ça été naïve, Ünïcödé and Straße; ﬁne ① が.",
    "敏捷的棕色狐狸跳过懒狗。",
    "🎉 party 👩‍👩‍👧 family",
    'He said "there is $5.20 (and/or 50%)" and left; the dog and the fox stayed with the story of the world.',
] * 4

TEXTS = [
    "Hello world, this isn't a test!",
    "  two  spaces ",
    "",
    " ",
    "Line one\n\nline two\tb\r\n",
    "🎉👩‍👩‍👧 ça été naïve",
    "敏捷的棕色狐狸",
    "x" * 50,
    "     indented\n        more",
    "Café 123 12345 $5.20 (and/or) ''quoted'' ``x``",
    "HELLO World",
]


@cache
def trained(**options: Any) -> bytes:
    """A small SentencePiece model."""
    out = io.BytesIO()
    options = {"vocab_size": 200, "hard_vocab_limit": False, **options}
    options = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    trainer = sentencepiece.SentencePieceTrainer
    trainer.train(sentence_iterator=iter(LINES), model_writer=out, minloglevel=3, num_threads=1, **options)
    return out.getvalue()


def folder(place: Path, files: Mapping[str, object]) -> Path:
    """Files in a new folder: bytes and texts as they are, all else as JSON."""
    place.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        text = value if isinstance(value, str) else "" if isinstance(value, bytes) else json.dumps(value)
        (place / name).write_bytes(value if isinstance(value, bytes) else text.encode())
    return place


def real(name: str) -> bytes:
    """A file of a real checkpoint; the test is skipped where it is not at hand."""
    data = Path(os.environ.get("HEED_DATA") or ROOT.parent / "shared" / "data") / "ckpt" / name
    if not data.is_file():
        pytest.skip(f"{name} is not here; HEED_DATA may name a folder that has ckpt/{name}")
    return gzip.decompress(data.read_bytes()) if data.suffix == ".gz" else data.read_bytes()
