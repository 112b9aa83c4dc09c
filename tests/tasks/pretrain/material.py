"""Texts of more than 100,000 tokens that are made on the spot, and their tokenizers."""

from __future__ import annotations

from functools import cache

import numpy as np

from heed.text import Bpe, Tokenizer, Word
from tests.tasks.test_tasks import Some

WORDS = 400
TEXTS = 300


@cache
def texts() -> tuple[str, ...]:
    """Documents of sentences of words that are made of syllables."""
    draw = np.random.default_rng(1)
    syllables = [f"{a}{b}" for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = ["".join(draw.choice(syllables, size=1 + number % 4)) for number in range(WORDS)]

    def sentence() -> str:
        return " ".join(draw.choice(words, size=int(draw.integers(3, 20)))).capitalize() + "."

    return tuple(" ".join(sentence() for _ in range(int(draw.integers(10, 70)))) for _ in range(TEXTS))


@cache
def tokenizer(kind: str = "bpe") -> Tokenizer:
    return {"bpe": Bpe(size=420), "word": Word(size=1000)}[kind].train(texts())


def examples(count: int = TEXTS) -> Some:
    return Some(*((text,) for text in texts()[:count]))


def within(found: float, wanted: float, count: int) -> bool:
    """Whether a share of so many independent draws is within four standard deviations: missed once in 16,000."""
    return abs(found - wanted) <= 4 * (wanted * (1 - wanted) / count) ** 0.5
