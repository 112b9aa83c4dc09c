"""RWKV's two mixings against their equations written as loops, at any length, and by what they remember."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError
from heed.core.laws import LAWS, Case
from heed.core.spec import price, words
from heed.core.state import nbytes
from heed.mixers import Rwkv
from heed.parts.feedforward import ChannelMix
from heed.parts.recurrence import scan as scans
from tests.mixers.growth import grows

WIDTH = 24


def built(**options: object) -> Rwkv:
    torch.manual_seed(0)
    mixer = Rwkv.Config.load(options).build(WIDTH).double().eval()
    torch.nn.init.normal_(mixer.bonus)
    return mixer


def mixed(x: Tensor, i: int, share: Tensor) -> Tensor:
    """A token and the one before it, before which there are zeros."""
    return share * x[i] + (1 - share) * (x[i - 1] if i else torch.zeros_like(x[0]))


@torch.no_grad()
def by_hand(mixer: Rwkv, x: Tensor) -> Tensor:
    """One row: every weight of every pair of tokens."""
    n, rows = len(x), []
    keys = [mixer.key(mixed(x, i, mixer.mix_key)) for i in range(n)]
    values = [mixer.value(mixed(x, i, mixer.mix_value)) for i in range(n)]
    for i in range(n):
        above, below = torch.zeros_like(keys[0]), torch.zeros_like(keys[0])
        for j in range(i + 1):
            fade = mixer.bonus if j == i else -(i - 1 - j) * torch.exp(mixer.decay)
            weight = torch.exp(fade + keys[j])
            above, below = above + weight * values[j], below + weight
        gate = torch.sigmoid(mixer.receptance(mixed(x, i, mixer.mix_receptance)))
        rows.append(mixer.out(gate * above / below))
    return torch.stack(rows)


@pytest.mark.parametrize("hidden", [None, 10])
def test_time_mixing_is_its_equation(hidden: int | None) -> None:
    mixer = built(hidden=hidden, layer=1, layers=3)
    x = torch.randn(1, 9, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(mixer(x, Where.run(1, 9))[0][0], by_hand(mixer, x[0]), rtol=0, atol=1e-13)


@torch.no_grad()
def test_channel_mixing_is_its_equation() -> None:
    mixer = ChannelMix.Config(hidden=7, layer=1, layers=3).build(WIDTH).double()
    x = torch.randn(1, 6, WIDTH, dtype=torch.float64)
    y, _ = mixer(x, Where.run(1, 6))
    for i in range(6):
        hidden = torch.relu(mixer.key(mixed(x[0], i, mixer.mix_key))) ** 2
        gate = torch.sigmoid(mixer.receptance(mixed(x[0], i, mixer.mix_receptance)))
        assert torch.allclose(y[0, i], gate * mixer.value(hidden), rtol=0, atol=1e-13)


@torch.no_grad()
def recurrent(mixer: Rwkv, x: Tensor) -> Tensor:
    """Token by token with the authors' state (a, b, p). [B, T, D]"""
    earlier = torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)
    key, value, gate = (
        linear(share * x + (1 - share) * earlier)
        for linear, share in (
            (mixer.key, mixer.mix_key),
            (mixer.value, mixer.mix_value),
            (mixer.receptance, mixer.mix_receptance),
        )
    )
    fade, bonus, rows = -torch.exp(mixer.decay), mixer.bonus, []
    a, b, p = torch.zeros_like(key[:, 0]), torch.zeros_like(key[:, 0]), torch.full_like(key[:, 0], -1e38)
    for k, v in zip(key.unbind(1), value.unbind(1), strict=True):
        q = torch.maximum(p, bonus + k)
        old, new = torch.exp(p - q), torch.exp(bonus + k - q)
        rows.append((old * a + new * v) / (old * b + new))
        q = torch.maximum(p + fade, k)
        old, new = torch.exp(p + fade - q), torch.exp(k - q)
        a, b, p = old * a + new * v, old * b + new, q
    y: Tensor = mixer.out(torch.sigmoid(gate) * torch.stack(rows, 1))
    return y


def called(mixer: Rwkv, x: Tensor, sizes: list[int]) -> Tensor:
    """In calls of these sizes, again and again."""
    state, made, begin = mixer.start(len(x)), list[Tensor](), 0
    while begin < x.shape[1]:
        end = min(x.shape[1], begin + sizes[len(made) % len(sizes)])
        y, after = mixer(x[:, begin:end], Where.run(len(x), end - begin, start=begin), state)
        assert after is not None
        made.append(y)
        state, begin = after, end
    return torch.cat(made, 1)


@pytest.mark.parametrize("size", [1.0, 30.0], ids=["plain keys", "keys of some hundreds"])
@torch.no_grad()
def test_twenty_thousand_tokens_in_every_form(size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole = in calls = token by token, in float64. Keys span far more than an exponential can hold.

    In float32 an exponent of size K is rounded to K · 2^-24 at each of the tokens that a weight lasts, at random: with
    keys of about 3 that is below 1e-5 of the largest value, with keys of hundreds below 1e-3.
    """
    torch.manual_seed(0)
    mixer = Rwkv.Config(layer=1, layers=3).build(8).double()
    mixer.key.weight.mul_(3 * size)
    x = torch.randn(1, 20_000, 8, dtype=torch.float64)
    whole, _ = mixer(x, Where.run(1, 20_000))
    assert bool(whole.isfinite().all())
    assert (whole - called(mixer, x, [4096, 1, 777])).abs().max() <= 1e-10
    assert (whole - recurrent(mixer, x)).abs().max() <= 1e-10
    monkeypatch.setattr(scans, "PIECE", 2**10)
    assert (whole - mixer(x, Where.run(1, 20_000))[0]).abs().max() <= 1e-10
    single, _ = mixer.float()(x.float(), Where.run(1, 20_000))
    assert (single.double() - whole).abs().max() <= (1e-5 if size == 1.0 else 1e-3) * whole.abs().max()


def test_laws_hold_over_many_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "PIECE", 1)
    monkeypatch.setattr(scans, "LEAST", 3)
    for law in LAWS:
        finding = law(built(hidden=10), Case.make(WIDTH, rows=3, tokens=14))
        assert finding.holds, finding


def test_gradients_of_a_long_text_with_large_keys_are_finite() -> None:
    mixer = built()
    with torch.no_grad():
        mixer.key.weight.mul_(1e3)
    x = torch.randn(1, 500, WIDTH, dtype=torch.float64, requires_grad=True)
    mixer(x, Where.run(1, 500))[0].square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in (x, *mixer.parameters()))


def test_it_remembers_five_vectors_whatever_the_length() -> None:
    time, channel = Rwkv.Config().build(WIDTH), ChannelMix.Config().build(WIDTH)
    assert price(time.spec(), 1) + price(channel.spec(), 1) == price(time.spec(), 10**6) + price(channel.spec(), 10**6)
    assert price(time.spec(), 1) + price(channel.spec(), 1) == 5 * WIDTH * 4
    assert words(channel.spec()) == "width numbers, whatever the length"
    _, state = time(torch.randn(2, 3000, WIDTH), Where.run(2, 3000), time.start(2))
    assert nbytes(state) == 2 * price(time.spec(), 3000)


def test_memory_grows_with_the_length_and_no_faster() -> None:
    assert grows(Rwkv.Config()) <= 4.0
    assert grows(ChannelMix.Config()) <= 4.0


@torch.no_grad()
def test_half_precision_sums_in_float32() -> None:
    mixer = Rwkv.Config().build(WIDTH).bfloat16()
    x = torch.randn(1, 40, WIDTH, dtype=torch.bfloat16)
    y, state = mixer(x, Where.run(1, 40), mixer.start(1))
    assert state is not None
    assert [part.dtype for cell in state for part in cell.tensors()] == [torch.bfloat16, *[torch.float32] * 3]
    assert y.dtype == torch.bfloat16
    exact, _ = mixer.double()(x.double(), Where.run(1, 40))
    assert (y.double() - exact).abs().max() <= 0.05 * exact.abs().max()  # bfloat16 has 8 bits: some roundings of 2^-9


def test_first_weights_are_by_depth() -> None:
    """The authors' curves: channels from slow to fast, -5 to 3, and steeper in deeper layers."""
    first, last = (Rwkv.Config(layer=layer, layers=6).build(WIDTH) for layer in (0, 5))
    for mixer in (first, last):
        assert float(mixer.decay[0].detach()) == -5.0
        assert float(mixer.decay[-1].detach()) == pytest.approx(3.0)
    assert float(first.decay[12].detach()) > float(last.decay[12].detach())
    assert torch.allclose(first.mix_key.detach(), torch.arange(WIDTH) / WIDTH)
    assert torch.allclose(last.mix_value.detach(), (torch.arange(WIDTH) / WIDTH) ** (1 / 6) + 0.3)
    assert torch.allclose(first.bonus[:3].detach(), math.log(0.3) + torch.tensor([0.0, 0.5, -0.5]))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="layer is 3, but there are 3 layers, counted from 0"):
        Rwkv.Config(layer=3, layers=3)
    with pytest.raises(ConfigError, match="layer is 1, but there are 1 layers"):
        ChannelMix.Config(layer=1)
    order = torch.tensor([[0, 2, 1]])
    for mixer in (Rwkv.Config().build(WIDTH), ChannelMix.Config().build(WIDTH)):
        with pytest.raises(InputError, match="RWKV takes tokens as they come; their order must rise"):
            mixer(torch.randn(1, 3, WIDTH), Where(order, order))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_padding_leaves_no_trace_in_what_is_remembered(dtype: torch.dtype) -> None:
    """In float32 a kernel walks over the tokens, in float64 a scan does: rows of any lengths go on as each would alone,
    whatever stands in their padding.
    """
    mixer = built().to(dtype)
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
