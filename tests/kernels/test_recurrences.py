"""Recurrences over many tokens: what the equations say, forwards and backwards, on any processor."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Mixer, MixerConfig, Where
from heed.core.errors import InputError
from heed.core.state import leaves as leaves_of
from heed.kernels import (
    dispatch as choice,
)
from heed.kernels import (
    selective,
    served,
    wkv,
)
from heed.kernels import (
    selective_scan as spaces,
)
from heed.kernels import (
    wkv_scan as means,
)
from heed.mixers import Mamba, Rwkv

pytestmark = pytest.mark.usefixtures("compiler")

UNIT = 2.0**-24  # what a float32 is rounded by, relatively
SPACES = [(1, 1, 1, 1), (2, 7, 5, 3), (1, 65, 33, 16), (3, 130, 17, 5), (2, 150, 24, 70)]  # B, T, D, S
MEANS = [(1, 1, 1), (2, 7, 5), (1, 65, 33), (3, 200, 17)]  # B, T, D


@pytest.fixture(autouse=True)
def _this_one(compiled: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "library", lambda: compiled)


def space(rows: int, tokens: int, channels: int, numbers: int, size: float = 1.0) -> list[Tensor]:
    """Steps from 0 to 10 `size`, of which some are exactly 0; states to begin with."""
    draw = torch.Generator().manual_seed(rows + tokens + channels + numbers)
    step = torch.rand(rows, tokens, channels, generator=draw) ** 4 * 10 * size
    step[:, ::5, ::3] = 0
    more = ((rows, tokens, channels), *((rows, tokens, numbers),) * 2, (rows, numbers, channels))
    u, write, read, start = (torch.randn(shape, generator=draw) for shape in more)
    return [step, u, write, read, -(torch.rand(numbers, channels, generator=draw) * numbers), start]


def sums(rows: int, tokens: int, channels: int, size: float = 1.0) -> list[Tensor]:
    """Keys of this size; sums to begin with, of which those of the first row are empty."""
    draw = torch.Generator().manual_seed(rows + tokens + channels)
    key, value = (torch.randn(rows, tokens, channels, generator=draw) for _ in range(2))
    fade, bonus = (torch.randn(channels, generator=draw) for _ in range(2))
    above, level = (torch.randn(rows, channels, generator=draw) for _ in range(2))
    start = torch.stack((above, above.abs() + 1, level * size))
    start[:2, 0], start[2, 0] = 0, -1e38
    return [key * size, value, -torch.exp(fade - 2), bonus, start]


def slopes(outputs: tuple[Tensor, ...], inputs: list[Tensor]) -> tuple[tuple[Tensor, ...], list[Tensor]]:
    """Some slopes of outputs, and what follows for inputs."""
    draw = torch.Generator().manual_seed(0)
    above = tuple(torch.randn(x.shape, generator=draw).to(x) for x in outputs)
    return above, list(torch.autograd.grad(outputs, inputs, above, allow_unused=True, materialize_grads=True))


def leaves(inputs: list[Tensor], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [x.to(dtype, copy=True).requires_grad_() for x in inputs]


def rounding(inputs: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The most that states and sums may be off, token by token, as `spaces.py` states it. Float64"""
    step, u, write, read, rates, start = (x.double() for x in inputs)
    whole, off, made = start.abs(), torch.zeros_like(start), []
    for t in range(step.shape[1]):
        exponent = step[:, t, None] * rates
        whole = exponent.exp() * whole + (write[:, t, :, None] * (step * u)[:, t, None]).abs()
        off = exponent.exp() * off + (exponent.abs() + 8) * UNIT * whole
        made.append((read[:, t, :, None].abs() * (off + (read.shape[2] + 1) * UNIT * whole)).sum(1))
    return torch.stack(made, 1) + 1e-30, off + 1e-30


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e3])
@pytest.mark.parametrize("sizes", SPACES)
def test_a_state_space_within_its_rounding(sizes: tuple[int, int, int, int], size: float) -> None:
    inputs = space(*sizes, size)
    y, last = selective(*inputs)
    exact, wanted, _ = spaces.selective_written_out(*(x.double() for x in inputs))
    most = rounding(inputs)
    assert bool(((y - exact).abs() <= most[0]).all())
    assert bool(((last - wanted).abs() <= most[1]).all())


@pytest.mark.parametrize("sizes", SPACES)
def test_slopes_of_a_state_space(sizes: tuple[int, int, int, int]) -> None:
    """Written out they are what torch finds. In float32 every term of theirs is rounded some times at each of the

    tokens that it lasts, there and back. Here that is some tokens: 64 roundings, of the same over magnitudes.
    """
    inputs = space(*sizes)
    exact, single = leaves(inputs, torch.float64), leaves(inputs)
    above, wanted = slopes(spaces.selective_written_out(*exact)[:2], exact)
    _, found = slopes(selective(*single), single)
    with torch.no_grad():
        states = spaces.selective_written_out(*exact)[2]
        for mine, other in zip(spaces.selective_back_written_out(*[*above, *exact[:5], states]), wanted, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)
        rates, size = exact[4], [x.detach().abs() for x in exact]
        states = spaces.selective_written_out(*[*size[:4], rates, size[5]])[2]
        whole = spaces.selective_back_written_out(*[*(x.abs() for x in above), *size[:4], rates, states])
    for mine, other, most in zip(found, wanted, whole, strict=True):
        assert bool(((mine - other).abs() <= 64 * UNIT * most.abs().amax()).all())


@pytest.mark.parametrize("size", [1.0, 300.0])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("sizes", MEANS)
def test_wkv_and_its_gradients(sizes: tuple[int, int, int], ragged: bool, size: float) -> None:
    """Written out, slopes are what torch finds. In float32 an exponent of size K is rounded by K · 2^-24, and an

    exponential by 4 · 2^-24, at each token that a weight lasts. That is at random, so that it adds up as its root: over
    T tokens to √T, and four times that at most. A mean is off by that times the spread of what is averaged.
    """
    inputs = sums(*sizes, size)
    count = torch.arange(sizes[0]) * sizes[1] // 2 if ragged else None  # the first row has none
    exact, single = leaves(inputs, torch.float64), leaves(inputs)
    (key, value, fade, bonus, start), (k, v, w, u, s) = exact, single
    y, last, states = means.wkv_written_out(key, value, fade, bonus, start, count)
    mine, after = wkv(k, v, w, u, s, count)
    above, wanted = slopes((y, last[:2]), exact)
    _, found = slopes((mine, after[:2]), single)
    most = 4 * sizes[1] ** 0.5 * (float(inputs[0].abs().max()) + 4) * UNIT
    for one, other in zip((mine, *after[:2], *found), (y, *last[:2], *wanted), strict=True):
        spread = 2 * max(float(inputs[1].abs().max()), float(other.detach().abs().max()))
        assert float((one.detach() - other.detach()).abs().max()) <= most * spread
    assert torch.allclose(after[2].double(), last[2], rtol=sizes[1] * UNIT)
    with torch.no_grad():
        back = means.wkv_back_written_out(above[0], above[1][[0, 1, 1]], key, value, fade, bonus, states, count)
    for one, other in zip(back, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    if count is not None:
        assert not mine[0].any()
        assert torch.equal(after[:, 0], inputs[4][:, 0])


def test_what_is_read_in_several_calls_is_the_same_to_the_last_bit() -> None:
    step, u, write, read, rates, start = space(2, 150, 33, 5)
    whole, last = selective(step, u, write, read, rates, start)
    made, begin = [], 0
    for end in (1, 64, 65, 149, 150):
        y, start = selective(*[*(x[:, begin:end] for x in (step, u, write, read)), rates, start])
        made.append(y)
        begin = end
    assert torch.equal(torch.cat(made, 1), whole)
    assert torch.equal(start, last)
    key, value, fade, bonus, begun = sums(2, 150, 33)
    whole, last = wkv(key, value, fade, bonus, begun)
    one, between = wkv(key[:, :70], value[:, :70], fade, bonus, begun)
    two, after = wkv(key[:, 70:], value[:, 70:], fade, bonus, between)
    assert torch.equal(torch.cat((one, two), 1), whole)
    assert torch.equal(after, last)


def test_threads_change_nothing_but_the_order_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda count=threads: count)
        one, other = leaves(space(3, 70, 33, 5)), leaves(sums(3, 70, 33))
        y, last = selective(*one)
        mean, after = wkv(*other)
        made.append([y, last, mean, after, *slopes((y, last), one)[1], *slopes((mean, after[:2]), other)[1]])
    alone, together = made
    for number, (x, z) in enumerate(zip(alone, together, strict=True)):
        assert torch.equal(x, z) if number < 6 else torch.allclose(x, z, rtol=1e-5, atol=1e-5)


def test_they_are_operators_that_compilers_see_through() -> None:
    torch.library.opcheck(torch.ops.heed.selective, tuple(leaves(space(2, 7, 5, 3))))
    torch.library.opcheck(torch.ops.heed.wkv, (*leaves(sums(2, 7, 5)), torch.tensor([7, 3])))

    def chosen(*given: Tensor) -> Tensor:
        return selective(*given)[0] * 2 if served(*given) else torch.zeros_like(given[0])

    inputs = space(2, 7, 5, 3)
    compiled = torch.compile(chosen, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(compiled(*inputs), 2 * selective(*inputs)[0])


@pytest.mark.parametrize("config", [Mamba.Config(state=5, hidden=33), Rwkv.Config(hidden=33)], ids=["mamba", "rwkv"])
def test_a_mixer_with_and_without_kernels(
    config: MixerConfig, compiled: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of several lengths, from a state on: what is said, kept and learnt, of some roundings in float32."""
    torch.manual_seed(0)
    mixer: Mixer[Any] = config.build(24)
    x, more = torch.randn(2, 3, 100, 24).unbind()
    order = torch.arange(100).expand(3, -1)
    lengths = torch.tensor([100, 0, 61])[:, None]
    first, second = Where.run(3, 100), Where(torch.where(order < lengths, order + 100, -1), order + 100)
    found = []
    for library in (compiled, None):
        monkeypatch.setattr(choice, "library", lambda library=library: library)
        mixer.zero_grad()
        y, state = mixer(x, first, mixer.start(3))
        z, state = mixer(more, second, state)
        kept = [tensor for leaf in leaves_of(state) for tensor in leaf.tensors()]
        (y.square().sum() + second.blank(z).square().sum() + sum(t.square().sum() for t in kept)).backward()
        learnt = [p.grad for p in mixer.parameters()]
        found.append([y.detach(), second.blank(z).detach(), *(t.detach() for t in kept), *learnt])
    for one, other in zip(*found, strict=True):
        assert float((one - other).abs().max()) <= 1e-5 * max(1.0, float(other.abs().max()))


def test_other_precisions_are_written_out() -> None:
    inputs = [x.double() for x in space(1, 5, 3, 2)]
    assert not served(*inputs)
    y, last = selective(*inputs)
    wanted = spaces.selective_written_out(*inputs)
    assert torch.equal(y, wanted[0])
    assert torch.equal(last, wanted[1])


def test_what_does_not_fit_is_refused() -> None:
    step, u, write, read, rates, start = space(2, 7, 5, 3)
    with pytest.raises(
        InputError, match=r"heed::selective was given a tensor of shape \[2, 6, 3\] in place of \[2, 7, 3\]"
    ):
        selective(step, u, write[:, 1:], read, rates, start)
    with pytest.raises(InputError, match=r"shape \[1, 3, 5\] in place of \[2, 3, 5\]"):
        selective(step, u, write, read, rates, start[:1])
    key, value, fade, bonus, begun = sums(2, 7, 5)
    with pytest.raises(InputError, match=r"heed::wkv was given a tensor of shape \[4\] in place of \[5\]"):
        wkv(key, value, fade[1:], bonus, begun)
    with pytest.raises(InputError, match="takes counts of 64 bits"):
        torch.ops.heed.wkv(key, value, fade, bonus, begun, torch.tensor([1, 2], dtype=torch.int32))
    assert torch.equal(
        wkv(key, value, fade, bonus, begun, torch.tensor([7, 7], dtype=torch.int32))[0], wkv(*sums(2, 7, 5))[0]
    )


def test_a_second_derivative_is_refused() -> None:
    """In float32, by name; the written-out forms of the mixers have one."""
    for form, inputs in ((selective, leaves(space(1, 5, 3, 2))), (wkv, leaves(sums(1, 5, 3)))):
        (slope,) = torch.autograd.grad(form(*inputs)[0].square().sum(), inputs[1], create_graph=True)
        with pytest.raises(NotImplementedError, match="no second derivative; take float64"):
            slope.sum().backward()
