"""Patterns of strangers' tokenizers under a time limit.

The `tokenizers` library cannot be interrupted, and panics where a pattern backtracks too often. So a text goes through
a pattern that nobody knows in a process of its own first (`pretokenize.py`); only what that one comes through is
encoded here. Patterns that well-known models have, and those without repetition, need no trial and cost nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import tokenizers

from ...core.errors import InputError
from .worker import Limits, Worker

SECONDS = 20  # that the patterns may take for a batch of texts, a million characters
MEMORY = 1 << 32  # bytes that they may take, where the system can limit that

_LATIN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = r"[^\r\n\p{L}\p{N}]?"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# As the tokenizer.json of these models spells them.
PUBLISHED = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",  # GPT-2
    rf"{_LATIN}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}",  # Llama 3, GPT-4
    rf"{_LATIN}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}",  # Qwen 2
    rf"{_CASED}{_UPPER}*{_LOWER}+{_LATIN}?|{_CASED}{_UPPER}+{_LOWER}*{_LATIN}?|\p{{N}}{{1,3}}|{_SYMBOLS}",  # GPT-4o
    rf"{_CASED}{_UPPER}*{_LOWER}+|{_CASED}{_UPPER}+{_LOWER}*|\p{{N}}|{_SYMBOLS}",  # Mistral's Tekken
    r" ?[^(\s|[.,!?…。，、।۔،])]+",  # BLOOM
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",  # CLIP
    r"\p{N}{1,3}",
    r"\s+",
    " {2,}",
    r"[^\r\n]+",
)


class Trial:
    """What a tokenizer's parts are tried in, before they are used here."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        data = json.loads(tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?")).to_str())
        for name in ("normalizer", "pre_tokenizer", "decoder"):
            part = getattr(tokenizer, name)
            data[name] = None if part is None else json.loads(part.__getstate__())
        self._told = {"tokenizer": json.dumps(data)}
        self._worker = Worker("pretokenize.py", ("tokenizers",), lambda: Limits(MEMORY, SECONDS))

    def read(self, texts: Sequence[str]) -> None:
        """Raise if these texts take too long to take apart."""
        self._ask({"texts": list(texts)}, "read the text")

    def write(self, rows: Sequence[Sequence[str]]) -> None:
        """The same of tokens that become texts."""
        self._ask({"rows": [list(row) for row in rows]}, "write these ids")

    def _ask(self, request: dict[str, Any], what: str) -> None:
        answer = self._worker.ask(json.dumps({**self._told, **request}))
        if "done" not in answer:
            raise InputError(
                f"this tokenizer cannot {what}: {answer.get('error')}. Its file has patterns of its own, which may "
                f"take any time: give shorter texts or, if you trust it, raise heed.text.confined.trial.SECONDS"
            )


def trial_of(tokenizer: tokenizers.Tokenizer) -> Trial | None:
    """A trial, if one of the patterns is not known to be harmless."""
    parts = (tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder)
    found = {one for part in parts if part is not None for one in patterns(json.loads(part.__getstate__()))}
    return None if all(map(is_harmless, found)) else Trial(tokenizer)


def patterns(part: Any) -> Iterator[str]:
    """Every regular expression in a part, as the library writes it down."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "Regex" and isinstance(value, str):
                yield value
            else:
                yield from patterns(value)
    elif isinstance(part, list):
        for value in part:
            yield from patterns(value)


def is_harmless(pattern: str) -> bool:
    """One that repeats nothing, one of heed's own, or one of a well-known model."""
    return not re.search(r"[*+{]", re.sub(r"\\.", "", pattern)) or pattern in _known()


@lru_cache(maxsize=1)
def _known() -> frozenset[str]:
    from .. import gguf, pretokenizers

    own = [*(one for how in gguf.BYTE_LEVEL.values() for one in how.patterns), *PUBLISHED]
    for part in (*pretokenizers.PIECES, pretokenizers.join_words()):
        own += patterns(json.loads(part.__getstate__()))
    return frozenset(own)
