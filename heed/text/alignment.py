"""Words and characters, and the tokens that stand for them: what a label of a word or an answer in a text is put on.

A sentence that comes as words is read as a text, with spaces between words of scripts that set them: so a model sees
what it sees of any other text. The first token of a word carries its label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..core.errors import InputError
from .batch import Aligned, Framed
from .pretokenizers import words

if TYPE_CHECKING:
    from .tokenizer import Tokenizer

Span: TypeAlias = "tuple[int, int]"  # the first character, and the one after the last

# Han, kana, Thai, Lao, Myanmar, Khmer, and the marks that are set among Han characters.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef"
    "\U00020000-\U0003ffff]"
)


class Spanned(NamedTuple):
    """A text, and where its words are."""

    text: str
    spans: list[Span]

    @property
    def words(self) -> list[str]:
        return [self.text[begin:end] for begin, end in self.spans]


def words_in(text: str) -> Spanned:
    """A text taken apart into words and marks; in scripts without spaces each character is a word."""
    pieces = (span for _, span in words().pre_tokenize_str(text))
    spans = [(begin + len(text[begin:end]) - len(text[begin:end].lstrip()), end) for begin, end in pieces]
    return Spanned(text, [(begin, end) for begin, end in spans if begin < end])


def joined(given: Sequence[object]) -> Spanned:
    """A sentence of words as a text: a space between two words, unless both are of a script that sets none."""
    if not given:
        raise InputError("a sentence of no words cannot be read; needed is one at least")
    text, spans = "", list[Span]()
    for word in given:
        if not isinstance(word, str) or word != word.strip() or not word:
            raise InputError(f"a word is text without white space around it, not {word!r}")
        if text and not (_UNSPACED.match(text[-1]) and _UNSPACED.match(word)):
            text += " "
        spans.append((len(text), len(text) + len(word)))
        text += word
    return Spanned(text, spans)


class FramedWords(NamedTuple):
    """A sentence as a model reads it, and the place of the first token of each of its words."""

    framed: Framed
    firsts: list[int]
    before: int  # tokens of the frame before the words
    after: int  # and after them


def framed_words(tokenizer: Tokenizer, sentences: Sequence[Spanned]) -> list[FramedWords]:
    """Every sentence in its frame, each word with a first token of its own.

    Where a token reaches across words, or a word leaves none, words are encoded one by one. A word of which the
    tokenizer drops everything is unknown.
    """
    found = []
    for sentence, aligned in zip(sentences, tokenizer.aligned_all([one.text for one in sentences]), strict=True):
        firsts = _firsts(aligned, sentence.spans)
        if firsts is None:
            found.append(_one_by_one(tokenizer, sentence, aligned))
        else:
            before, after = _frame(aligned)
            found.append(FramedWords(Framed(aligned.ids, aligned.segments), firsts, before, after))
    return found


def _firsts(aligned: Aligned, spans: Iterable[Span]) -> list[int] | None:
    """The first token of each word; None unless each has one that begins within it."""
    firsts, place, count = list[int](), 0, len(aligned.ids)
    for begin, end in spans:
        while place < count and (
            aligned.texts[place] < 0 or aligned.spans[place][1] <= begin or _empty(aligned, place)
        ):
            place += 1
        if place == count or not begin <= aligned.spans[place][0] < end:
            return None
        firsts.append(place)
    return firsts if len(set(firsts)) == len(firsts) else None


def _empty(aligned: Aligned, place: int) -> bool:
    begin, end = aligned.spans[place]
    return begin == end


def _frame(aligned: Aligned) -> tuple[int, int]:
    """Tokens before and after what is of the text."""
    inside = [place for place, text in enumerate(aligned.texts) if text >= 0]
    if not inside:
        return len(aligned.ids) // 2, len(aligned.ids) - len(aligned.ids) // 2
    return inside[0], len(aligned.ids) - 1 - inside[-1]


def _one_by_one(tokenizer: Tokenizer, sentence: Spanned, aligned: Aligned) -> FramedWords:
    before, after = _frame(aligned)
    ids, firsts = list(aligned.ids[:before]), list[int]()
    for alone in tokenizer.aligned_all(_pieces(tokenizer, sentence), framed=False):
        real = next((place for place in range(len(alone.ids)) if not _empty(alone, place)), None)
        firsts.append(len(ids) + (real or 0))
        ids += alone.ids if alone.ids and real is not None else [tokenizer.need("unknown")]
    inside = len(ids) - before
    ids += aligned.ids[len(aligned.ids) - after :]
    ends = aligned.segments[:before], aligned.segments[len(aligned.ids) - after :]
    segment = next((number for number, text in zip(aligned.segments, aligned.texts, strict=True) if text >= 0), 0)
    return FramedWords(Framed(ids, [*ends[0], *[segment] * inside, *ends[1]]), firsts, before, after)


def _pieces(tokenizer: Tokenizer, sentence: Spanned) -> list[str]:
    """Words to be encoded alone: with the white space before them where a text is its tokens' bytes in a row."""
    if not tokenizer.keeps_bytes:
        return sentence.words
    ends = [0, *(end for _, end in sentence.spans)]
    return [sentence.text[begin:end] for begin, end in pairwise(ends)]


def pieces(sentence: FramedWords, longest: int) -> Iterator[FramedWords]:
    """A sentence in pieces of at most so many tokens, each in its frame: every word is in one, with its first token.

    A word that is longer than a piece loses its end.
    """
    (ids, segments), before, after = sentence.framed, sentence.before, sentence.after
    room = longest - before - after
    if room < 1:
        raise InputError(f"there are places for {longest} tokens, and {before + after} of them stand around every text")
    if len(ids) <= longest:
        yield sentence
        return
    head, tail = slice(0, before), slice(len(ids) - after, len(ids))
    ends, begin = [*sentence.firsts[1:], len(ids) - after], 0
    while begin < len(ends):
        first, last = sentence.firsts[begin], begin
        while last + 1 < len(ends) and ends[last + 1] - first <= room:
            last += 1
        body = slice(first, min(ends[last], first + room))
        framed = Framed(*([*row[head], *row[body], *row[tail]] for row in (ids, segments)))
        yield FramedWords(
            framed, [place - first + before for place in sentence.firsts[begin : last + 1]], before, after
        )
        begin = last + 1


class Window(NamedTuple):
    """A part of a context with the whole question before it: what is read at once."""

    framed: Framed
    first: int  # the place of its first token of the context
    begin: int  # the number of that token, of all of the context
    size: int  # tokens of the context in it


class Asking(NamedTuple):
    """A question and its context, in windows."""

    windows: list[Window]
    spans: list[Span]  # characters of every token of the context
    cut: bool  # whether the question lost its end


def windows(aligned: Aligned, longest: int, stride: int, question: int) -> Asking:
    """A pair of texts in windows of at most `longest` tokens, `stride` of which the next one shares.

    At most so many tokens of the `question` are kept.
    """
    inside = [place for place, text in enumerate(aligned.texts) if text == 1]
    if not inside:
        raise InputError("there is nothing in the context that the tokenizer knows; give a text")
    asked = [place for place, text in enumerate(aligned.texts) if text == 0]
    lost = set(asked[question:])
    before = [place for place in range(inside[0]) if place not in lost]
    after = [place for place in range(inside[-1] + 1, len(aligned.ids)) if place not in lost]
    room = longest - len(before) - len(after)
    if room <= stride:
        raise InputError(
            f"a window of {longest} tokens has places for {max(room, 0)} of the context beside the question and what "
            f"stands around them, and shares {stride} with the next; make it longer, or the stride shorter"
        )
    found = []
    for begin in range(0, max(1, len(inside) - stride), room - stride):
        places = [*before, *inside[begin : begin + room], *after]
        framed = Framed([aligned.ids[at] for at in places], [aligned.segments[at] for at in places])
        found.append(Window(framed, len(before), begin, min(room, len(inside) - begin)))
    return Asking(found, [aligned.spans[at] for at in inside], bool(lost))


def covering(spans: Sequence[Span], begin: int, end: int) -> Span | None:
    """The first and the last token that hold characters of a part of a text; None if none does."""
    held = [number for number, (first, last) in enumerate(spans) if first < end and begin < last]
    return (held[0], held[-1]) if held else None
