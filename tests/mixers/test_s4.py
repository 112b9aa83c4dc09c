"""S4 against its recurrence and its convolution written as loops, at any length, and by what it remembers."""

from __future__ import annotations

import cmath
import math

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.laws import LAWS, Case
from heed.core.spec import price, words
from heed.core.state import nbytes
from heed.mixers import S4, s4
from heed.parts.feedforward.mlp import activate
from tests.mixers.growth import grows

WIDTH = 6
OPTIONS: list[dict[str, object]] = [
    {"state": 4},
    {"state": 6, "begins": "inverse", "form": "bilinear"},
    {"state": 3, "begins": "real", "activation": "tanh"},
    {"state": 2, "begins": "real", "form": "bilinear"},
]


def built(options: dict[str, object]) -> S4:
    torch.manual_seed(0)
    mixer = S4.Config.load(options).build(WIDTH).double().eval()
    torch.nn.init.normal_(mixer.skip)
    return mixer


def numbers(mixer: S4, channel: int) -> list[tuple[complex, complex, complex]]:
    """Ā, B̄ and C of every number of a channel, and of its conjugate."""
    found: list[tuple[complex, complex, complex]] = []
    step = math.exp(float(mixer.step[channel]))
    for n in range(mixer.fade.shape[1]):
        turn = 0.0 if mixer.turn is None else float(mixer.turn[channel, n])
        rate = complex(-math.exp(float(mixer.fade[channel, n])), turn)
        read = complex(*mixer.read[channel, n].reshape(-1).tolist())
        if mixer.form == "zoh":
            decay = cmath.exp(step * rate)
            write = (decay - 1) / rate
        else:
            decay = (1 + step * rate / 2) / (1 - step * rate / 2)
            write = step / (1 - step * rate / 2)
        found.append((decay, write, read))
        if mixer.turn is not None:
            found.append((decay.conjugate(), write.conjugate(), read.conjugate()))
    return found


@torch.no_grad()
def by_hand(mixer: S4, x: Tensor, *, convolved: bool) -> Tensor:
    """One row, as a recurrence or as a convolution; with both numbers of every pair, so that sums are real."""
    made = torch.zeros_like(x)
    for channel in range(x.shape[1]):
        for decay, write, read in numbers(mixer, channel):
            state = 0j
            for i in range(len(x)):
                if convolved:
                    total = sum((read * decay ** (i - j) * write * float(x[j, channel]) for j in range(i + 1)), 0j)
                else:
                    state = decay * state + write * float(x[i, channel])
                    total = read * state
                made[i, channel] += total.real
    y: Tensor = mixer.out(activate(mixer.activation, made + mixer.skip * x))
    return y


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("chunk", [64, 4, 1])
def test_it_is_its_recurrence_and_its_convolution(
    options: dict[str, object], chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s4, "CHUNK", chunk)
    mixer = built(options)
    x = torch.randn(1, 10, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        y, _ = mixer(x, Where.run(1, 10))
        assert torch.allclose(y[0], by_hand(mixer, x[0], convolved=False), rtol=0, atol=1e-12)
        assert torch.allclose(y[0], by_hand(mixer, x[0], convolved=True), rtol=0, atol=1e-12)


@torch.no_grad()
def recurrent(mixer: S4, x: Tensor) -> Tensor:
    """Token by token, all channels at once. [B, T, D]"""
    chunk = mixer._chunk(1)
    state, rows = torch.zeros_like(chunk.enter[0]).expand(len(x), -1, -1), []
    for token in x.unbind(1):
        state = chunk.power[1] * state + chunk.enter[0] * token[..., None]
        read = chunk.leave[0] * state
        rows.append((read.real if read.is_complex() else read).sum(-1))
    y: Tensor = mixer.out(activate(mixer.activation, torch.stack(rows, 1) + mixer.skip * x))
    return y


@pytest.mark.parametrize("options", [{"state": 8}, {"state": 4, "begins": "real", "form": "bilinear"}], ids=str)
@torch.no_grad()
def test_twenty_thousand_tokens_in_every_form(options: dict[str, object]) -> None:
    """Whole = in calls = token by token, in float64, also where nothing fades for all of it.

    In float32 what is left of a state after n tokens is a power of a rounded number: wrong by n · 2^-24 after as many
    tokens, and lost after 1 / (Δ |Re A|) of them, here some thousand: below 1e-3 of the largest value.
    """
    mixer = built(options)
    mixer.step.fill_(math.log(0.001))
    mixer.fade[0].fill_(-20.0)  # lasts: e^-20 · 0.001 · 20,000 is nothing
    x = torch.randn(1, 20_000, WIDTH, dtype=torch.float64)
    whole, _ = mixer(x, Where.run(1, 20_000))
    assert bool(whole.isfinite().all())
    state, made, begin = mixer.start(1), list[Tensor](), 0
    for end in (1, 2, 65, 5000, 5064, 20_000):
        y, after = mixer(x[:, begin:end], Where.run(1, end - begin, start=begin), state)
        assert after is not None
        made.append(y)
        state, begin = after, end
    assert (whole - torch.cat(made, 1)).abs().max() <= 1e-10
    assert (whole - recurrent(mixer, x)).abs().max() <= 1e-10
    single, _ = mixer.float()(x.float(), Where.run(1, 20_000))
    assert (single.double() - whole).abs().max() <= 1e-3 * whole.abs().max()


@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_laws_hold_over_many_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s4, "CHUNK", chunk)
    for options in (OPTIONS[0], OPTIONS[3]):
        for law in LAWS:
            finding = law(built(options), Case.make(WIDTH, rows=3, tokens=14))
            assert finding.holds, finding


def test_powers_are_products_of_few() -> None:
    base = torch.tensor([0.9, 0.5 + 0.5j, -0.3j], dtype=torch.complex128)
    for highest in (1, 2, 7, 64):
        power = s4._powers(base, highest)
        assert len(power) == highest + 1
        wanted = torch.ones_like(base)
        for made in power:
            assert bool(((made - wanted).abs() <= 1e-14 * wanted.abs()).all())
            wanted = wanted * base


def test_memory_grows_with_the_length_and_no_faster() -> None:
    assert grows(S4.Config()) <= 4.0


def test_it_remembers_its_state() -> None:
    mixer = S4.Config(state=10).build(WIDTH)
    assert price(mixer.spec(), 10**6) == 4 * 10 * WIDTH
    assert words(mixer.spec()) == "width·state numbers, whatever the length"
    _, state = mixer(torch.randn(2, 300, WIDTH), Where.run(2, 300), mixer.start(2))
    assert nbytes(state) == 2 * price(mixer.spec(), 300)


def test_first_rates_are_the_papers() -> None:
    linear, inverse, real = (S4.Config.load({"state": 8, "begins": b}).build(1) for b in ("linear", "inverse", "real"))
    assert linear.turn is not None
    assert inverse.turn is not None
    assert real.turn is None
    assert torch.allclose(-torch.exp(linear.fade), torch.tensor(-0.5))
    assert torch.allclose(linear.turn[0], math.pi * torch.arange(4))
    assert torch.allclose(inverse.turn[0], torch.tensor([8 / math.pi * (8 / (2 * n + 1) - 1) for n in range(4)]))
    assert torch.allclose(torch.exp(real.fade[0]), torch.arange(1.0, 9.0))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="a state of 5 numbers has no pairs; use an even one, or begins = 'real'"):
        S4.Config(state=5)
    with pytest.raises(ConfigError, match="form is 'euler'"):
        S4.Config.load({"form": "euler"})
    order = torch.tensor([[0, 2, 1]])
    with pytest.raises(InputError, match="S4 takes tokens as they come"):
        S4.Config().build(WIDTH)(torch.randn(1, 3, WIDTH), Where(order, order))
