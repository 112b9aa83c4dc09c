"""Loaded models of long documents answer the same whole, cut into calls that differ from row to row, and alone.

Every golden folder of a family that reads long texts is here: what streams is streamed, what does not refuses to.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import heed
from heed.core.contract import NOTHING, Given, Mixer, Where
from heed.core.errors import CannotStream
from heed.core.spec import price
from heed.core.state import Seen, fork, nbytes, select
from heed.models import Encoder, Retro, Seq2seq, XLNetEncoder
from heed.models.variants.retro import neighbours
from heed.weights import Folder
from heed.weights.replays.authors import retro
from tests.weights.support import GOLDEN, TOLERANCES

LONG = {
    *("big_bird", "fnet", "funnel", "infini", "longformer", "longnet", "longt5", "nystromformer", "reformer", "retro"),
    *("transfo-xl", "xlnet", "yoso"),
}
CASES = sorted(case for case in TOLERANCES if case.partition("/")[0] in LONG)
STREAMING = ("infini", "longnet", "longt5", "retro", "transfo-xl", "xlnet")  # all others look ahead
LENGTHS = (44, 20, 1, 37)  # over several segments, memories and chunks
BOUND = 1e-11


def loaded(case: str) -> Mixer[Any]:
    """The model of a golden folder, in float64."""
    folder = Folder.open(GOLDEN / case)
    if folder.family == "retro":
        return retro.model(folder, *folder.input("retrieved").shape[2:]).double()
    return heed.load(GOLDEN / case).model.double()  # without a tokenizer: the bare model


def drawn(model: Any, *shape: int, seed: int = 0) -> Tensor:
    """Ids that the model knows."""
    embeddings = model.decoder.embeddings if isinstance(model, Seq2seq) else model.embeddings
    return torch.randint(1, embeddings.table.num_embeddings, shape, generator=torch.Generator().manual_seed(seed))


class Document:
    """Rows of different lengths, and what the model is given beside them: a source, or neighbours of their chunks."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.lengths = torch.tensor([min(length, longest(model)) for length in LENGTHS])
        self.tokens = drawn(model, len(LENGTHS), int(self.lengths.max()))
        self.source: Seen | None = None
        if isinstance(model, Seq2seq):
            self.source = model.encode(drawn(model, len(LENGTHS), 26, seed=1), Where.ragged([26, 3, 19, 8]))

    @property
    def given(self) -> Given:
        return NOTHING if self.source is None else Given(encoder_output=self.source)

    def rows(self, row: int) -> Given:
        """What one row is given."""
        if self.source is None:
            return NOTHING
        kept = int(self.source.real[row].sum())
        tensors = (self.source.order, self.source.position, *self.source.parts)
        return Given(encoder_output=Seen(*(tensor[row : row + 1, :kept] for tensor in tensors)))

    def where(self, begin: Tensor, take: Tensor) -> Where:
        """The next tokens of every row, from `begin` on. [B] both"""
        where = Where.ragged(take, start=begin).beside(self.given)
        if not isinstance(self.model, Retro):
            return where
        chunk, many = self.model.chunk, self.model.config.chunked
        ids = drawn(self.model, len(begin), int(self.lengths.max()) // chunk, many.neighbours, many.length, seed=2)
        found = neighbours(ids)
        late = (found.order < (begin // chunk)[:, None]) | (found.order >= ((begin + take) // chunk)[:, None])
        return where.give(neighbours=Seen(found.order.masked_fill(late, -1), found.position, *found.parts))

    def whole(self) -> Tensor:
        """The answers of one call."""
        y, _ = self.model(self.tokens, self.where(torch.zeros_like(self.lengths), self.lengths))
        return y


def longest(model: Any) -> int:
    """Tokens that the model has places for."""
    body = model.decoder if isinstance(model, Seq2seq) else model
    position = body.embeddings.position
    return 1 << 30 if position is None or position.longest is None else int(position.longest)


@torch.no_grad()
def in_calls(document: Document, seed: int) -> Tensor:
    """Rows go on at their own pace, some not at all; once rows are forked and put back."""
    model, lengths, tokens = document.model, document.lengths, document.tokens
    draw = torch.Generator().manual_seed(seed)
    state: Any = model.start(len(lengths), document.given)
    begin, made, call = torch.zeros_like(lengths), list[list[Tensor]]([] for _ in lengths), 0
    while bool((begin < lengths).any()):
        take = torch.minimum(torch.randint(0, 7, begin.shape, generator=draw), lengths - begin)
        take[int((lengths - begin).argmax())] += int(not bool(take.any()))  # a call brings at least one column
        columns = (begin[:, None] + torch.arange(int(take.max()))).clamp(max=tokens.shape[1] - 1)
        y, state = model(tokens.take_along_dim(columns, 1), document.where(begin, take), state)
        for row, count in enumerate(take.tolist()):
            made[row].append(y[row, :count])
        begin, call = begin + take, call + 1
        if call == 3:
            state = select(fork(state), [3, 2, 1, 0])
            state = select(state, [3, 2, 1, 0])
        assert nbytes(state) <= len(lengths) * price(model.spec(), int(begin.max()), 26)
    rows = [torch.cat(pieces) for pieces in made]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith(STREAMING)])
@torch.no_grad()
def test_whole_and_in_calls(case: str) -> None:
    document = Document(loaded(case))
    whole = document.whole()
    real = torch.arange(whole.shape[1]) < document.lengths[:, None]
    for seed in range(2):
        gap = (in_calls(document, seed) - whole)[real].abs().max()
        assert gap <= BOUND * whole[real].abs().max(), f"{gap:.2g}"


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_a_row_answers_as_if_alone(case: str) -> None:
    model = loaded(case)
    document = Document(model)
    if isinstance(model, Encoder | XLNetEncoder):
        read = model.encode(document.tokens, Where.ragged(document.lengths))
        alone = [
            model.encode(document.tokens[row : row + 1, :length], Where.run(1, length)).parts[0][0]
            for row, length in enumerate(document.lengths.tolist())
        ]
        found = [part[real] for part, real in zip(read.parts[0], read.real, strict=True)]
    else:
        whole = document.whole()
        alone = [one_row(document, row) for row in range(len(LENGTHS))]
        found = [y[:length] for y, length in zip(whole, document.lengths.tolist(), strict=True)]
    for y, wanted in zip(found, alone, strict=True):
        assert y.shape == wanted.shape
        assert (y - wanted).abs().max() <= BOUND * wanted.abs().max()


def one_row(document: Document, row: int) -> Tensor:
    """What the model answers to one row without padding."""
    length = int(document.lengths[row])
    where = document.where(torch.zeros_like(document.lengths), document.lengths)
    given = Given(encoder_output=document.rows(row).encoder_output)
    if where.given.neighbours is not None:
        found = where.given.neighbours
        there = found.order[row] >= 0
        kept = (tensor[row : row + 1, there] for tensor in (found.order, found.position, *found.parts))
        given = Given(neighbours=Seen(*kept))
    y, _ = document.model(document.tokens[row : row + 1, :length], Where.run(1, length).beside(given))
    return y[0]


def test_what_looks_ahead_says_so() -> None:
    for case in CASES:
        model = loaded(case)
        assert model.streams == case.startswith(STREAMING), case
        if not model.streams:
            with pytest.raises(CannotStream):
                model.start(1)
