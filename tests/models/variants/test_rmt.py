"""The recurrent memory Transformer, segment by segment as the paper has it, and in rows of any phase."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.spec import price
from heed.core.state import fork, nbytes, select
from heed.mixers import Attention, Cross, Infini
from heed.models import RMT
from heed.parts.inputs.tokens import Narrow
from heed.parts.masks import Whole, Window
from heed.parts.positions import Learned, Rope

WIDTH, VOCABULARY = 16, 11
MIXERS = {
    "attention": Attention.Config(position=Rope.Config()),
    "window": Attention.Config(mask=Window(back=3)),
    "infini": Infini.Config(segment=3),
}


def built(segment: int = 4, memory: int = 2, **options: object) -> RMT:
    torch.manual_seed(0)
    sizes = {"vocabulary": VOCABULARY, "width": WIDTH, "depth": 2, "segment": segment, "memory": memory}
    model = RMT.Config(**{**sizes, **options}).build().double()  # type: ignore[arg-type]
    return model.eval()


def by_hand(model: RMT, tokens: Tensor) -> Tensor:
    """[memory; segment; memory] through the stack, again and again. One row."""
    memory, made = model.memory[None], []
    count = memory.shape[1]
    for piece in tokens.split(model.segment):
        x = torch.cat((memory, model.embeddings.table(piece)[None], memory), 1)
        here = Where.run(1, x.shape[1])
        y, _ = model.stack(model.embeddings.place(x, here), here)
        made.append(y[0, count : count + len(piece)])
        memory = y[:, -count:]
    return model.head(torch.cat(made))


@pytest.mark.parametrize("mixer", MIXERS)
@pytest.mark.parametrize(("segment", "memory", "length"), [(4, 2, 12), (4, 2, 10), (1, 1, 5), (5, 3, 4), (3, 6, 11)])
def test_it_is_its_equation(mixer: str, segment: int, memory: int, length: int) -> None:
    model = built(segment, memory, mixer=MIXERS[mixer], position=Learned.Config(length=32))
    tokens = torch.randint(VOCABULARY, (length,))
    with torch.no_grad():
        scores, _ = model(tokens[None], Where.run(1, length))
        wanted = by_hand(model, tokens)
    assert torch.allclose(scores[0], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mixer", MIXERS)
def test_rows_end_their_segments_at_different_times(mixer: str, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    model, rows = built(5, 2, mixer=MIXERS[mixer]), 4
    tokens = torch.randint(VOCABULARY, (rows, 60), generator=draw)
    state, done, made = model.start(rows), torch.zeros(rows, dtype=torch.long), [list[Tensor]() for _ in range(rows)]
    with torch.no_grad():
        for most in (7, 1, 1, 13, 1, 4, 1):
            lengths = torch.randint(0, most + 1, (rows,), generator=draw)
            piece = torch.full((rows, most), -100)
            for row in range(rows):
                piece[row, : lengths[row]] = tokens[row, done[row] : done[row] + lengths[row]]
            scores, after = model(piece, Where.ragged(lengths, start=done, width=most), state)
            assert after is not None
            state = after
            for row in range(rows):
                made[row].append(scores[row, : lengths[row]])
            done = done + lengths
            assert nbytes(state) <= rows * price(model.spec(), int(done.max()))
        for row in range(rows):
            wanted = by_hand(model, tokens[row, : done[row]])
            assert torch.allclose(torch.cat(made[row]), wanted, rtol=0, atol=1e-12)


def test_gradients_flow_through_the_memory() -> None:
    """The last segment's loss reaches the first token, through tokens of memory alone."""
    model = built(3, 1)
    x = torch.randn(1, 9, WIDTH, dtype=torch.float64, requires_grad=True)
    y, _ = model.mix(x, Where.run(1, 9))
    (slope,) = torch.autograd.grad(y[0, 8].square().sum(), x)
    assert slope[0].abs().amax(-1).min() > 0


def test_the_loss_sees_the_stream_that_the_scores_come_from() -> None:
    model = built()
    tokens, where = torch.randint(VOCABULARY, (2, 9)), Where.run(2, 9)
    with torch.no_grad():
        (stream, _), head = model.hidden_states(tokens, where), model.lm_head
        assert torch.equal(head(stream), model(tokens, where)[0])


def test_beams_are_a_selection_of_rows() -> None:
    model = built(4, 2)
    tokens = torch.randint(VOCABULARY, (2, 9))
    with torch.no_grad():
        _, state = model(tokens[:, :7], Where.run(2, 7), model.start(2))
        assert state is not None
        chosen, _ = model(tokens[[1, 1, 0], 7:], Where.run(3, 2, start=7), select(fork(state), [1, 1, 0]))
        whole, _ = model(tokens, Where.run(2, 9))
    assert torch.allclose(chosen, whole[[1, 1, 0], 7:], rtol=0, atol=1e-12)


def test_a_position_code_need_only_cover_a_segment() -> None:
    model = built(4, 2, position=Learned.Config(length=8))
    assert model.longest is None
    with torch.no_grad():
        scores, _ = model(torch.randint(VOCABULARY, (1, 50)), Where.run(1, 50))
    assert scores.isfinite().all()
    with pytest.raises(ConfigError, match="between twice 2 tokens of memory has 9 positions.*; set segment = 4"):
        built(5, 2, position=Learned.Config(length=8))


def test_padding_may_hold_anything() -> None:
    model, where = built(), Where.ragged([7, 0], width=9)
    x = torch.randn(2, 9, WIDTH, dtype=torch.float64)
    x[~where.real] = math.nan
    with torch.no_grad():
        y, _ = model.mix(x, where)
        alone, _ = model.mix(x[:1, :7], Where.run(1, 7))
    assert torch.allclose(y[0, :7], alone[0], rtol=0, atol=1e-12)


def test_impossible_things_are_refused() -> None:
    with pytest.raises(ConfigError, match="leave cross unset"):
        built(cross=Cross.Config())
    with pytest.raises(ConfigError, match="drop narrow"):
        built(narrow=Narrow(size=4))
    with pytest.raises(ConfigError, match="use mixers that look back only"):
        built(mixer=Attention.Config(mask=Whole()))
    with pytest.raises(ConfigError, match="memory is 0"):
        built(memory=0)
    model, tokens = built(4), torch.zeros(1, 3, dtype=torch.long)
    with pytest.raises(InputError, match="must follow one another without a gap"):
        model(tokens, Where(torch.tensor([[0, 1, 3]]), torch.tensor([[0, 1, 3]])))
    with pytest.raises(InputError, match="without a state a row begins with the first token of a segment of 4"):
        model(tokens, Where.run(1, 3, start=2))
