"""Tokenizers of models that label frames of sound (CTC): a vocab.json of letters, and a mark for the space."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers

from ...core.errors import InputError
from ...text.guard import VOCABULARY, numbered, read_json
from ...text.tokenizer import Declared, Tokenizer

LETTERS, SETTINGS = "vocab.json", "tokenizer_config.json"
SPACE = "|"
ROLES = {"pad": "<pad>", "unk": "<unk>", "word_delimiter": SPACE}  # unless named


def of_folder(place: Path) -> Tokenizer | None:
    """The tokenizer of a Wav2Vec2's folder; None: there is none."""
    path = place / LETTERS
    if not path.is_file():
        return None
    told = read_json(place / SETTINGS) if (place / SETTINGS).is_file() else {}
    names = {role: _named(told, f"{role}_token", usual) for role, usual in ROLES.items()}
    vocabulary = numbered(read_json(path, VOCABULARY), path)
    if names["pad"] not in vocabulary:
        raise InputError(f"{path} does not hold {names['pad']!r}, the pad_token, which is the blank")
    return of_letters(vocabulary, pad=names["pad"], unknown=names["unk"], space=names["word_delimiter"])


def _named(told: Mapping[str, Any], key: str, usual: str) -> str:
    """A token as tokenizer_config.json has it: a text, or a table with its content."""
    value = told.get(key)
    found = value.get("content") if isinstance(value, dict) else value
    return found if isinstance(found, str) else usual


def of_letters(vocabulary: Mapping[str, int], *, pad: str, unknown: str, space: str) -> Tokenizer:
    """Texts letter by letter; `space` stands between words, `pad` for no letter."""
    inner = tokenizers.Tokenizer(models.BPE(vocab=dict(vocabulary), merges=[], unk_token=unknown, fuse_unk=False))
    inner.normalizer = normalizers.Replace(" ", space)
    inner.decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace(space, " ")])
    special = [name for name in (pad, unknown, "<s>", "</s>") if name in vocabulary]
    inner.add_special_tokens(special)
    known = unknown if unknown in vocabulary else None
    return Tokenizer(inner, Declared(roles={"pad": pad, "unknown": known, "begin": None, "end": None, "mask": None}))


def write(tokenizer: Tokenizer, folder: Path) -> None:
    """The files of a Wav2Vec2's tokenizer, where they are not there already."""
    if (folder / LETTERS).is_file():
        return
    named = {tokenizer.name(index): index for index in range(tokenizer.size)}
    pad, unknown = (None if index is None else tokenizer.name(index) for index in (tokenizer.pad, tokenizer.unknown))
    strange = next((name for name in named if len(name) > 1 and not name.startswith("<")), None)
    if strange is not None:
        raise InputError(f"the layout of Wav2Vec2 has letters alone, and this tokenizer has {strange!r}")
    vocabulary = {SPACE if name == " " else name: index for name, index in named.items()}
    if len(vocabulary) < len(named):
        raise InputError(f"the layout of Wav2Vec2 writes a space as {SPACE!r}, and this tokenizer has both")
    roles = {"pad_token": pad, "unk_token": unknown, "word_delimiter_token": SPACE}
    told = {"tokenizer_class": "Wav2Vec2CTCTokenizer", **roles, "bos_token": None, "eos_token": None}
    for name, data in ((LETTERS, vocabulary), (SETTINGS, told)):
        (folder / name).write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
