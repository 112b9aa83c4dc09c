"""Pages of documents (LayoutLM): words with the boxes that they have on a page, read together.

A box is left, top, right and bottom, from 0 to 1000 of the page's width and height. All tokens of a word have its box;
what stands before the words has an empty one in the first corner, what stands behind them one in the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from ... import engine
from ...core.contract import Where
from ...core.errors import InputError
from ...core.state import Seen
from ...parts.outputs.heads import Pool
from ...text import Framed
from ...text.alignment import FramedWords, Spanned, joined, pieces
from ..encoder import EncoderPipeline
from ..labels.tagging import TaggedWords, scheme_of
from ..results import Prediction, Response, predictions
from ..streams import stream_of

Box: TypeAlias = "tuple[int, int, int, int]"
EDGE = 1000  # the far edge of a page
FIRST, LAST = (0, 0, 0, 0), (EDGE,) * 4
NEEDED = (
    "this model reads words with the boxes that they have on a page: give (words, boxes), or a list of such pages; a "
    "box is (left, top, right, bottom) in thousandths of the page, from 0 to 1000"
)


class Page(NamedTuple):
    """Words, and a box for each."""

    words: Spanned
    boxes: list[Box]


class BoxedRow(Framed):
    """A framed page, token by token with its boxes."""

    boxes: list[Box]

    @classmethod
    def of(cls, framed: Framed, boxes: list[Box]) -> BoxedRow:
        row = cls(framed.ids, framed.segments)
        row.boxes = boxes
        return row


class PageEncoder(EncoderPipeline):
    """An encoder of pages. What it is asked about is (words, boxes), never a text without its layout."""

    what = "an encoder of pages: words with their boxes"

    @property
    def can(self) -> tuple[str, ...]:
        return tuple(verb for verb in super().can if verb in {"embed", "classify", "tag"})

    def embed(self, texts: Any, *, pool: Pool | None = None, unit: bool | None = None) -> Tensor:
        if pool is not None and pool not in get_args(Pool):
            raise InputError(f"pool must be one of {', '.join(get_args(Pool))}, not {pool!r}")
        one, given = _pages(texts)
        found = self.embed_framed([self._beginning(page) for page in given], pool, unit)
        return found[0] if one else found

    def classify(self, given: Any, labels: Sequence[str] = ()) -> Any:
        if not self._classifies():
            raise self._cannot("classify")
        if labels:
            raise InputError("the classes of this checkpoint are fixed; leave labels out")
        head = self._head("pooled", "classify")

        def predicted(seen: Seen, rows: Sequence[Framed]) -> list[list[Prediction]]:
            return [predictions(one, self.labels, self.problem) for one in head(seen.parts[0], seen)]

        one, pages = _pages(given)
        found = self._each([self._beginning(page) for page in pages], predicted)
        return found[0] if one else found

    def tag(self, texts: Any = None, *, words: Any = None) -> Any:
        """The label of each word, by that of its first token. A long page is read in pieces."""
        head, scheme = self._head("tagged", "tag"), scheme_of(self.labels)
        if words is not None:
            raise InputError(NEEDED)
        one, pages = _pages(texts)
        cut = [self._rows(page) for page in pages]
        flat = [row for some in cut for row, _ in some]
        logits = iter(self._each(flat, lambda seen, _: list(head(seen.parts[0], seen))))
        found = [[self._tagged(label) for _, firsts in some for label in next(logits)[firsts]] for some in cut]
        tagged = [TaggedWords(page.words, labels, scheme) for page, labels in zip(pages, found, strict=True)]
        return tagged[0] if one else tagged

    def answer(self, question: Any, context: Any) -> NoReturn:
        raise InputError(
            "answers from a page are read off m(input_ids, token_type_ids=..., bbox=...).start_logits and .end_logits; "
            "a context without boxes is not what this model was trained on"
        )

    def fill(self, text: Any, top_k: int = 5) -> NoReturn:
        raise InputError("masked words of a page are read off m(input_ids, bbox=...).logits; a text has no boxes")

    def inspect(self, text: Any, target: str | None = None) -> NoReturn:
        raise InputError("attention weights of a page are looked at in its .model, with ids, segments and boxes")

    def respond(self, text: str) -> Response:
        raise InputError(f"{NEEDED}; in Python: heed.load(path).tag((words, boxes))")

    def _encoded_texts(self, texts: list[str]) -> Mapping[str, Any]:
        raise InputError(NEEDED)

    # --- rows ---

    def _beginning(self, page: Page) -> BoxedRow:
        return self._rows(page)[0][0]

    def _rows(self, page: Page) -> list[tuple[BoxedRow, list[int]]]:
        """A page in pieces that the model has places for, with the first token of each word."""
        frame, unknown = self.tokenizer.frame(), self.tokenizer.unknown
        ids, firsts, before = list[int](), list[int](), len(frame.before.ids)
        for word, found in zip(page.words.words, self.tokenizer.encode_all(page.words.words), strict=True):
            if not found and unknown is None:
                raise InputError(f"the tokenizer knows nothing of the word {word!r}; leave it out, with its box")
            firsts.append(before + len(ids))
            ids += found or [self.tokenizer.need("unknown")]
        whole = FramedWords(frame.around(ids), firsts, before, len(frame.after.ids))
        rows, done = list[tuple[BoxedRow, list[int]]](), 0
        for piece in pieces(whole, self.longest or len(whole.framed.ids)):
            boxes = page.boxes[done : done + len(piece.firsts)]
            done += len(piece.firsts)
            rows.append((BoxedRow.of(piece.framed, _spread(piece, boxes)), piece.firsts))
        return rows

    def _encoded(self, rows: Sequence[Framed]) -> Seen:
        width = max(len(row.ids) for row in rows)
        tokens = np.zeros((len(rows), width, 6), np.int64)
        for place, row in enumerate(rows):
            if not isinstance(row, BoxedRow):
                raise InputError(NEEDED)
            fields = zip(row.ids, row.segments, *zip(*row.boxes, strict=True), strict=True)
            tokens[place, : len(row.ids)] = list(fields)
        fields_here = [0, *([1] if self._fields() > 5 else []), 2, 3, 4, 5]  # a model may know no segments
        device = self.model.device
        where = Where.ragged(torch.tensor([len(row.ids) for row in rows], device=device))
        chosen = torch.from_numpy(tokens[..., fields_here]).to(device)
        return stream_of(engine.compile(self.model), chosen, where)


def _spread(piece: FramedWords, boxes: Sequence[Box]) -> list[Box]:
    """A box for each token: that of its word, and those of the frame."""
    ends = [*piece.firsts[1:], len(piece.framed.ids) - piece.after]
    inside = [box for box, begin, end in zip(boxes, piece.firsts, ends, strict=True) for _ in range(end - begin)]
    return [*[FIRST] * piece.before, *inside, *[LAST] * piece.after]


def _pages(given: Any) -> tuple[bool, list[Page]]:
    """Whether it is one page, and all of them."""
    one = isinstance(given, tuple)
    if not one and not isinstance(given, list):
        raise InputError(f"{NEEDED}; this is {type(given).__name__}")
    return one, [_page(page) for page in ([given] if one else given)]


def _page(given: object) -> Page:
    if not isinstance(given, tuple) or len(given) != 2 or not all(isinstance(part, list | tuple) for part in given):
        raise InputError(f"{NEEDED}; this is {given!r}"[:300])
    words, boxes = given
    if len(words) != len(boxes):
        raise InputError(f"a page has {len(words)} words and {len(boxes)} boxes; give one box for each word")
    return Page(joined(words), [_box(box, word) for box, word in zip(boxes, words, strict=True)])


def _box(given: object, word: object) -> Box:
    numbers = tuple(given) if isinstance(given, list | tuple) else ()
    if len(numbers) != 4 or not all(type(number) is int and 0 <= number <= EDGE for number in numbers):
        raise InputError(
            f"the box of {word!r} is {given!r}; needed are four integers from 0 to 1000: left, top, right, bottom, "
            "each 1000 · pixels / size of the page"
        )
    left, top, right, bottom = numbers
    if left > right or top > bottom:
        raise InputError(f"the box of {word!r} is {given!r}: it ends before it begins; left <= right, top <= bottom")
    return left, top, right, bottom
