"""LSTM and GRU against their equations, and by how they pass over padding."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.spec import price, words
from heed.mixers import Gru, Lstm
from tests.mixers.growth import grows

WIDTH, HIDDEN = 6, 5


@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_an_lstm_is_its_equations(*, bias: bool) -> None:
    torch.manual_seed(0)
    mixer = Lstm.Config(hidden=HIDDEN, bias=bias).build(WIDTH).double()
    x = torch.randn(1, 7, WIDTH, dtype=torch.float64)
    y, _ = mixer(x, Where.run(1, 7))
    cell = dict(mixer.cell.named_parameters())
    shift = cell["bias_ih_l0"] + cell["bias_hh_l0"] if bias else torch.zeros(4 * HIDDEN, dtype=torch.float64)
    h, c = torch.zeros(2, HIDDEN, dtype=torch.float64)
    for i in range(7):
        write, forget, new, show = (cell["weight_ih_l0"] @ x[0, i] + cell["weight_hh_l0"] @ h + shift).chunk(4)
        c = torch.sigmoid(forget) * c + torch.sigmoid(write) * torch.tanh(new)
        h = torch.sigmoid(show) * torch.tanh(c)
        assert torch.allclose(y[0, i], mixer.out(h), rtol=0, atol=1e-14)


@torch.no_grad()
def test_a_gru_is_its_equations() -> None:
    torch.manual_seed(0)
    mixer = Gru.Config(hidden=HIDDEN).build(WIDTH).double()
    x = torch.randn(1, 7, WIDTH, dtype=torch.float64)
    y, _ = mixer(x, Where.run(1, 7))
    h, cell = torch.zeros(HIDDEN, dtype=torch.float64), dict(mixer.cell.named_parameters())
    for i in range(7):
        mine = (cell["weight_ih_l0"] @ x[0, i] + cell["bias_ih_l0"]).chunk(3)
        last = (cell["weight_hh_l0"] @ h + cell["bias_hh_l0"]).chunk(3)
        see, keep = (torch.sigmoid(a + b) for a, b in zip(mine[:2], last[:2], strict=True))
        h = keep * h + (1 - keep) * torch.tanh(mine[2] + see * last[2])
        assert torch.allclose(y[0, i], mixer.out(h), rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", [Lstm, Gru])
@torch.no_grad()
def test_padding_never_meets_the_cell(kind: type[Lstm | Gru]) -> None:
    """Rows of any lengths per call, some without a token, give what each gives alone; garbage stands in the padding."""
    torch.manual_seed(0)
    mixer = kind.Config(hidden=HIDDEN).build(WIDTH).double()
    x = torch.randn(3, 20, WIDTH, dtype=torch.float64)
    state, done, made = mixer.start(3), [0, 0, 0], [list[Tensor]() for _ in range(3)]
    for lengths in ([4, 0, 2], [0, 0, 0], [1, 1, 1], [0, 7, 3], [2, 0, 1], [1, 2, 0], [1, 1, 1]):
        piece = torch.full((3, max(1, *lengths), WIDTH), math.nan, dtype=torch.float64)
        for row, n in enumerate(lengths):
            piece[row, :n] = x[row, done[row] : done[row] + n]
        y, after = mixer(piece, Where.ragged(lengths, start=torch.tensor(done), width=piece.shape[1]), state)
        assert after is not None
        state = after
        for row, n in enumerate(lengths):
            made[row].append(y[row, :n])
            done[row] += n
    for row in range(3):
        alone, _ = mixer(x[row : row + 1, : done[row]], Where.run(1, done[row]))
        assert torch.allclose(torch.cat(made[row]), alone[0], rtol=0, atol=1e-14)


def test_they_remember_their_cells() -> None:
    lstm, gru = Lstm.Config(hidden=HIDDEN).build(WIDTH), Gru.Config().build(WIDTH)
    assert price(lstm.spec(), 10**6) == 4 * 2 * HIDDEN
    assert price(gru.spec(), 10**6) == 4 * WIDTH
    assert words(lstm.spec()) == "2·hidden numbers, whatever the length"


def test_memory_grows_with_the_length_and_no_faster() -> None:
    assert grows(Lstm.Config()) <= 4.0
    assert grows(Gru.Config()) <= 4.0


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="hidden is 0"):
        Lstm.Config(hidden=0)
    order = torch.tensor([[0, 2, 1]])
    for kind in (Lstm, Gru):
        with pytest.raises(InputError, match=f"{kind.__name__} takes tokens as they come"):
            kind.Config().build(WIDTH)(torch.randn(1, 3, WIDTH), Where(order, order))
