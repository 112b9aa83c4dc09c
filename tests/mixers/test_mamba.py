"""Mamba against its equations written as loops, at any length, and by what it holds while it learns."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.laws import LAWS, Case
from heed.core.spec import price, words
from heed.core.state import nbytes
from heed.mixers import Mamba
from heed.parts.feedforward.mlp import activate
from heed.parts.recurrence import scan as scans
from tests.mixers.growth import grows, held

WIDTH = 24


def built(options: dict[str, object], width: int = WIDTH) -> Mamba:
    """With states that last and steps that differ from token to token."""
    torch.manual_seed(0)
    mixer = Mamba.Config.load(options).build(width).double().eval()
    with torch.no_grad():
        mixer.step_bias.add_(1.0)
        mixer.step.mul_(4.0)
    return mixer


@torch.no_grad()
def by_hand(mixer: Mamba, x: Tensor) -> Tensor:
    """One row, token by token."""
    kernel, rank, size = mixer.kernel.shape[1], mixer.rank, mixer.state
    u, z = mixer.input(x).chunk(2, -1)
    state = torch.zeros(mixer.hidden, size, dtype=x.dtype)
    rows = []
    for i in range(len(x)):
        convolved = torch.zeros(mixer.hidden, dtype=x.dtype) if mixer.kernel_bias is None else mixer.kernel_bias.clone()
        for k in range(kernel):
            if i - k >= 0:
                convolved += mixer.kernel[:, kernel - 1 - k] * u[i - k]
        token = activate(mixer.activation, convolved)
        low, write, read = mixer.select(token).split((rank, size, size))
        step = F.softplus(mixer.step @ low + mixer.step_bias)
        for channel in range(mixer.hidden):
            for n in range(size):
                decay = torch.exp(-step[channel] * torch.exp(mixer.decay[channel, n]))
                state[channel, n] = decay * state[channel, n] + step[channel] * write[n] * token[channel]
        rows.append(mixer.out((state @ read + mixer.skip * token) * F.silu(z[i])))
    return torch.stack(rows)


@pytest.mark.parametrize(
    "options",
    [
        {"hidden": 6, "state": 3, "rank": 2},
        {"hidden": 5, "state": 2, "kernel": 1, "kernel_bias": False, "bias": True, "activation": "relu"},
    ],
)
def test_it_is_its_equation(options: dict[str, object]) -> None:
    mixer = built(options)
    x = torch.randn(1, 7, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(mixer(x, Where.run(1, 7))[0][0], by_hand(mixer, x[0]), rtol=0, atol=1e-13)


@torch.no_grad()
def recurrent(mixer: Mamba, x: Tensor) -> Tensor:
    """The state space token by token, all channels at once. [B, T, D]"""
    u, z = mixer.input(x).chunk(2, -1)
    taps = mixer.kernel.shape[1]
    u = F.conv1d(F.pad(u.mT, (taps - 1, 0)), mixer.kernel[:, None], mixer.kernel_bias, groups=mixer.hidden).mT
    u = activate(mixer.activation, u)
    low, write, read = mixer.select(u).split((mixer.rank, mixer.state, mixer.state), -1)
    step = F.softplus(low @ mixer.step.T + mixer.step_bias)
    rates, state, rows = -torch.exp(mixer.decay), x.new_zeros(len(x), mixer.hidden, mixer.state), []
    for d, token, b, c in zip(step.unbind(1), u.unbind(1), write.unbind(1), read.unbind(1), strict=True):
        state = torch.exp(d[..., None] * rates) * state + (d * token)[..., None] * b[:, None]
        rows.append((state * c[:, None]).sum(-1))
    y: Tensor = mixer.out((torch.stack(rows, 1) + mixer.skip * u) * F.silu(z))
    return y


@torch.no_grad()
def test_twenty_thousand_tokens_in_every_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole = in calls = token by token, in float64; in float32 within what a scan of that length rounds.

    That is 4 · 16 · 2^-24 = 4e-6 of the sum of magnitudes, which here is some times the largest value.
    """
    mixer = built({"hidden": 6, "state": 4}, 8)
    x = torch.randn(1, 20_000, 8, dtype=torch.float64)
    whole, _ = mixer(x, Where.run(1, 20_000))
    assert bool(whole.isfinite().all())
    state, made, begin = mixer.start(1), list[Tensor](), 0
    for end in (1, 2, 5000, 5001, 5777, 20_000):
        y, after = mixer(x[:, begin:end], Where.run(1, end - begin, start=begin), state)
        assert after is not None
        made.append(y)
        state, begin = after, end
    assert (whole - torch.cat(made, 1)).abs().max() <= 1e-10
    assert (whole - recurrent(mixer, x)).abs().max() <= 1e-10
    monkeypatch.setattr(scans, "PIECE", 2**10)
    assert (whole - mixer(x, Where.run(1, 20_000))[0]).abs().max() <= 1e-10
    single, _ = mixer.float()(x.float(), Where.run(1, 20_000))
    assert (single.double() - whole).abs().max() <= 2e-5 * whole.abs().max()


def test_laws_hold_over_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "PIECE", 1)
    monkeypatch.setattr(scans, "LEAST", 3)
    for law in LAWS:
        finding = law(built({"hidden": 10, "state": 3, "kernel": 5}), Case.make(WIDTH, rows=3, tokens=14))
        assert finding.holds, finding


def test_steps_of_any_size_neither_overflow_nor_stall() -> None:
    """A step so long that all is forgotten, and one of zero, forwards and backwards."""
    mixer = built({})
    with torch.no_grad():
        mixer.step_bias[::2], mixer.step_bias[1::2] = 1e4, -1e4
    x = torch.randn(1, 300, WIDTH, dtype=torch.float64, requires_grad=True)
    y, _ = mixer(x, Where.run(1, 300))
    y.square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in (x, *mixer.parameters()))


def test_states_of_all_tokens_are_never_held_at_once() -> None:
    """At 4,000 tokens the largest tensor, gradient included, has the size of a projection, not 16 times that."""
    assert grows(Mamba.Config()) <= 4.0
    mixer = Mamba.Config().build(64)
    sizes = held(lambda: mixer(torch.randn(1, 4000, 64), Where.run(1, 4000)))
    assert max(sizes) == 4003 * 128  # one number for each channel of a token, and of the three before the first
    assert sum(sizes) < 16 * 4000 * 128  # all that is held is less than the states of all tokens would be


def test_it_remembers_its_state_and_a_tail() -> None:
    mixer = Mamba.Config(hidden=10, state=3, kernel=5).build(WIDTH)
    assert price(mixer.spec(), 10**6) == 4 * (4 * 10 + 3 * 10)
    assert words(mixer.spec()).startswith("(kernel - 1)·hidden numbers, whatever the length; state·hidden numbers")
    _, state = mixer(torch.randn(2, 300, WIDTH), Where.run(2, 300), mixer.start(2))
    assert nbytes(state) == 2 * price(mixer.spec(), 300)


def test_first_steps_are_spread_over_their_orders_of_magnitude() -> None:
    torch.manual_seed(0)
    mixer = Mamba.Config(hidden=4000).build(WIDTH)
    steps = F.softplus(mixer.step_bias.detach())
    assert 0.00099 < float(steps.min()) < 0.0011
    assert 0.09 < float(steps.max()) < 0.1001
    assert float((steps < 0.01).double().mean()) == pytest.approx(0.5, abs=0.03)
    assert torch.allclose(torch.exp(mixer.decay[7]).detach(), torch.arange(1.0, 17.0))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="kernel is 0"):
        Mamba.Config(kernel=0)
    with pytest.raises(ConfigError, match="activation is 'swish'"):
        Mamba.Config.load({"activation": "swish"})
    order = torch.tensor([[0, 2, 1]])
    with pytest.raises(InputError, match="Mamba takes tokens as they come"):
        Mamba.Config().build(WIDTH)(torch.randn(1, 3, WIDTH), Where(order, order))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_padding_leaves_no_trace_in_what_is_remembered(dtype: torch.dtype) -> None:
    """In float32 a kernel walks over the tokens, in float64 a scan does: rows of any lengths go on as each would alone,
    whatever stands in their padding.
    """
    mixer = built({}).to(dtype)
    draw = torch.Generator().manual_seed(4)
    x = torch.randn(2, 40, WIDTH, generator=draw, dtype=torch.float64).to(dtype)
    begun = x[:, :20].clone()
    begun[1, 11:] = 50.0
    first, state = mixer(begun, Where.ragged([20, 11]), mixer.start(2))
    rest = torch.stack((x[0, 20:29], x[1, 11:20]))
    second, _ = mixer(rest, Where.ragged([9, 9], start=torch.tensor([20, 11])), state)
    alone, _ = mixer(x[1:, :20], Where.run(1, 20))
    made = torch.cat((first[1, :11], second[1]))
    assert torch.allclose(made, alone[0], rtol=0, atol=2e-5 if dtype == torch.float32 else 1e-12)
