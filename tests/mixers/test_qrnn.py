"""QRNN, the plain RNN, both directions and the plainest attention: each against its equation, written as loops."""

from __future__ import annotations

import pytest
import torch

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.spec import price, words
from heed.mixers import Attention, Bidirectional, Gru, PlainAttention, Qrnn, Rnn
from heed.parts.look import look
from heed.parts.masks import Whole
from heed.parts.recurrence.scan import looped

WIDTH, HIDDEN, TOKENS = 6, 5, 9


def drawn(rows: int = 1, tokens: int = TOKENS) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(rows, tokens, WIDTH, dtype=torch.float64)


@torch.no_grad()
def test_an_rnn_is_its_equation() -> None:
    mixer, x = Rnn.Config(hidden=HIDDEN).build(WIDTH).double(), drawn()
    cell, h = dict(mixer.cell.named_parameters()), torch.zeros(HIDDEN, dtype=torch.float64)
    y, _ = mixer(x, Where.run(1, TOKENS))
    for i in range(TOKENS):
        shift = cell["bias_ih_l0"] + cell["bias_hh_l0"]
        h = torch.tanh(cell["weight_ih_l0"] @ x[0, i] + cell["weight_hh_l0"] @ h + shift)
        assert torch.allclose(y[0, i], mixer.out(h), rtol=0, atol=1e-14)


@pytest.mark.parametrize("kernel", [1, 2, 4])
@torch.no_grad()
def test_a_qrnn_is_its_equations(kernel: int) -> None:
    mixer, x = Qrnn.Config(hidden=HIDDEN, kernel=kernel).build(WIDTH).double(), drawn()
    y, _ = mixer(x, Where.run(1, TOKENS))
    weight = mixer.gates.weight.view(3, HIDDEN, kernel, WIDTH)  # z, f, o; oldest tap first
    c = torch.zeros(HIDDEN, dtype=torch.float64)
    for i in range(TOKENS):
        gates = mixer.gates.bias.view(3, HIDDEN).clone()
        for tap in range(kernel):
            place = i - (kernel - 1) + tap
            if place >= 0:
                gates += weight[:, :, tap] @ x[0, place]
        z, f, o = torch.tanh(gates[0]), torch.sigmoid(gates[1]), torch.sigmoid(gates[2])
        c = f * c + (1 - f) * z
        assert torch.allclose(y[0, i], mixer.out(o * c), rtol=0, atol=1e-13)


def test_a_qrnn_remembers_its_cell_and_the_tokens_of_its_kernel() -> None:
    mixer = Qrnn.Config(hidden=HIDDEN, kernel=4).build(WIDTH)
    assert price(mixer.spec(), 10**6) == 4 * (HIDDEN + 3 * WIDTH)
    assert words(Qrnn.Config(kernel=2).build(WIDTH).spec()).startswith("hidden + (kernel - 1)·width numbers")


@torch.no_grad()
def test_the_scan_of_a_qrnn_is_its_loop() -> None:
    torch.manual_seed(0)
    mixer, x = Qrnn.Config(hidden=HIDDEN).build(WIDTH).double(), drawn(2, 40)
    near = torch.cat((torch.zeros(2, 1, WIDTH, dtype=torch.float64), x), 1).unfold(1, 2, 1).movedim(-1, 2).flatten(2)
    new, forget, show = mixer.gates(near).chunk(3, -1)
    forget = forget.sigmoid()
    cells = looped(forget, (1 - forget) * new.tanh(), torch.zeros(2, HIDDEN, dtype=torch.float64))
    y, _ = mixer(x, Where.run(2, 40))
    assert torch.allclose(y, mixer.out(show.sigmoid() * cells), rtol=0, atol=1e-13)


@torch.no_grad()
def test_both_directions_are_two_mixers() -> None:
    torch.manual_seed(0)
    mixer, x = Bidirectional.Config(mixer=Gru.Config()).build(WIDTH).double(), drawn(2)
    y, _ = mixer(x, Where.ragged([TOKENS, 4], width=TOKENS))
    for row, length in enumerate((TOKENS, 4)):
        alone = x[row : row + 1, :length]
        after, before = mixer.ahead(alone)[0], mixer.behind(alone.flip(1))[0].flip(1)
        wanted = mixer.out(torch.cat((after, before), -1))
        assert torch.allclose(y[row, :length], wanted[0], rtol=0, atol=1e-14)


def test_a_direction_that_looks_ahead_is_refused() -> None:
    with pytest.raises(ConfigError, match="attention as it is configured looks ahead"):
        Bidirectional.Config(mixer=Attention.Config(mask=Whole())).build(24)


@pytest.mark.parametrize("scaled", [False, True])
@torch.no_grad()
def test_the_plainest_attention_is_its_equation(*, scaled: bool) -> None:
    mixer, x = PlainAttention.Config(mask=Whole(), scaled=scaled).build(WIDTH).double(), drawn()
    assert not list(mixer.parameters())
    assert not mixer.state_dict()
    with look(mixer) as seen:
        y, _ = mixer(x, Where.run(1, TOKENS))
    for i in range(TOKENS):
        score = torch.tensor([float(x[0, i] @ x[0, j]) for j in range(TOKENS)], dtype=torch.float64)
        weight = (score / WIDTH**0.5 if scaled else score).softmax(0)
        assert torch.allclose(y[0, i], weight @ x[0], rtol=0, atol=1e-13)
        assert torch.allclose(seen["weights"][0][0, 0, i], weight, rtol=0, atol=1e-13)


@torch.no_grad()
def test_the_plainest_attention_does_not_see_order() -> None:
    mixer, x, mixed = PlainAttention.Config(mask=Whole()).build(WIDTH).double(), drawn(), torch.randperm(TOKENS)
    assert torch.allclose(mixer(x)[0][:, mixed], mixer(x[:, mixed])[0], rtol=0, atol=1e-13)
