"""Chinese texts that are cut into words before WordPiece (RoFormer): by a dictionary, which no tokenizer.json holds."""

from __future__ import annotations

from collections.abc import Container
from itertools import accumulate, pairwise
from typing import Any

import tokenizers
from tokenizers import NormalizedString, PreTokenizedString, normalizers, pre_tokenizers

from ..core.errors import MissingExtra
from .tokenizer import Declared, Tokenizer

EXTRA = "chinese"


class DictionaryWords:
    """Words of jieba's dictionary (rjieba); what the vocabulary lacks is cut further: Han characters one by one."""

    def __init__(self, vocabulary: Container[str]) -> None:
        try:
            import rjieba
        except ImportError:
            raise MissingExtra.of("rjieba", EXTRA) from None
        self._library, self._vocabulary = rjieba, vocabulary
        self._apart = normalizers.BertNormalizer(
            clean_text=False, handle_chinese_chars=True, strip_accents=False, lowercase=False
        )

    def pre_tokenize(self, text: PreTokenizedString) -> None:
        """As the library of tokenizers calls it."""
        text.split(self._words)

    def _words(self, number: int, text: NormalizedString) -> list[NormalizedString]:
        cut = list[NormalizedString | None]()
        for word, begin, _ in self._library.tokenize(str(text), hmm=False):
            # Spaces are set around each Han character.
            pieces = [word] if word in self._vocabulary else self._apart.normalize_str(word).split()
            ends = accumulate(map(len, pieces), initial=begin)
            cut += [text[one:other] for one, other in pairwise(ends)]
        return [piece for piece in cut if piece is not None]


class SegmentedTokenizer(Tokenizer):
    """A tokenizer whose words are those of a dictionary; files hold BERT's words in their place, as elsewhere."""

    def __init__(self, inner: tokenizers.Tokenizer, declared: Declared | None = None) -> None:
        inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()  # what can be written, until all else is settled
        super().__init__(inner, declared)
        self._cuttable = False  # a word of the dictionary must not be cut in two
        self._stored = str(inner.to_str(pretty=True))
        vocabulary = inner.get_vocab(with_added_tokens=True)
        inner.pre_tokenizer = pre_tokenizers.PreTokenizer.custom(DictionaryWords(vocabulary))

    def __reduce__(self) -> tuple[Any, tuple[Any, Declared]]:
        return _restored, (self._stored, self._declared)

    def to_json(self) -> str:
        """What a tokenizer.json holds: all but the dictionary."""
        return self._stored


def _restored(stored: str, declared: Declared) -> SegmentedTokenizer:
    return SegmentedTokenizer(tokenizers.Tokenizer.from_str(stored), declared)
