"""Convolutions and involution along a sequence against their equations written as loops, cut and ragged."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from heed.core.contract import Mixer, MixerConfig, Where
from heed.core.errors import CannotStream, ConfigError
from heed.core.laws import LAWS, Case
from heed.core.spec import price, words
from heed.core.state import Log, Seen, nbytes
from heed.mixers import Convolution, DynamicConv, Involution, LightConv, Separable
from heed.parts.convolution.sliding import BLOCK, FEW, Line, depthwise, dynamic

WIDTH = 24
CAUSAL: tuple[MixerConfig, ...] = (
    Convolution.Config(kernel=4, dilation=2, groups=3),
    Separable.Config(kernel=3, dilation=2),
    LightConv.Config(kernel=5),
    DynamicConv.Config(kernel=4, heads=2),
    Involution.Config(kernel=3, group=8),
)


def built(config: MixerConfig) -> Mixer[Log]:
    torch.manual_seed(0)
    return config.build(WIDTH).double().eval()


def at(x: Tensor, place: int) -> Tensor:
    """A token, or zeros outside of the text."""
    return x[place] if 0 <= place < len(x) else torch.zeros_like(x[0])


def places(i: int, kernel: int, dilation: int, causal: bool) -> list[int]:
    return [i - (kernel - 1 - k) * dilation if causal else i + (k - kernel // 2) * dilation for k in range(kernel)]


@pytest.mark.parametrize(("kernel", "dilation", "groups"), [(1, 1, 1), (3, 1, 1), (4, 1, 3), (3, 3, 24), (15, 2, 2)])
@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_a_convolution_is_its_equation(kernel: int, dilation: int, groups: int, causal: bool) -> None:
    if not causal and kernel % 2 == 0:
        kernel += 1
    mixer = built(Convolution.Config(kernel=kernel, dilation=dilation, groups=groups, causal=causal))
    assert isinstance(mixer, Convolution)
    assert mixer.taps.bias is not None
    mixer.taps.bias.normal_()
    x = torch.randn(9, WIDTH, dtype=torch.float64)
    y, _ = mixer(x[None], Where.run(1, 9))
    each = WIDTH // groups
    for i in range(9):
        for c in range(WIDTH):
            begin = c // each * each
            total = mixer.taps.bias[c].clone()
            for k, place in enumerate(places(i, kernel, dilation, causal)):
                total += mixer.taps.weight[c, :, k] @ at(x, place)[begin : begin + each]
            assert abs(y[0, i, c] - total) < 1e-12


@pytest.mark.parametrize(("kernel", "dilation"), [(1, 1), (3, 1), (5, 2), (15, 1)])
@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_a_separable_convolution_is_its_equation(kernel: int, dilation: int, causal: bool) -> None:
    mixer = built(Separable.Config(kernel=kernel, dilation=dilation, causal=causal))
    assert isinstance(mixer, Separable)
    x = torch.randn(9, WIDTH, dtype=torch.float64)
    y, _ = mixer(x[None], Where.run(1, 9))
    for i in range(9):
        near = places(i, kernel, dilation, causal)
        total = sum((mixer.taps[:, k] * at(x, j) for k, j in enumerate(near)), torch.zeros_like(x[0]))
        assert torch.allclose(y[0, i], mixer.out(total), rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_an_involution_is_its_equation(causal: bool) -> None:
    mixer = built(Involution.Config(kernel=5, group=6, reduction=3, causal=causal))
    assert isinstance(mixer, Involution)
    assert mixer.norm is not None
    x = torch.randn(9, WIDTH, dtype=torch.float64)
    y, _ = mixer(x[None], Where.run(1, 9))
    for i in range(9):
        kernels = mixer.spread(F.relu(mixer.norm(mixer.reduce(x[i])))).view(4, 5)
        near = places(i, 5, 1, causal)
        for c in range(WIDTH):
            assert abs(y[0, i, c] - sum(kernels[c // 6, k] * at(x, j)[c] for k, j in enumerate(near))) < 1e-12


@pytest.mark.parametrize("config", CAUSAL, ids=repr)
@pytest.mark.parametrize("seed", range(2))
@torch.no_grad()
def test_rows_go_on_at_different_times(config: MixerConfig, seed: int) -> None:
    """Rows of any lengths per call, some of none, give what each gives alone."""
    draw, mixer, rows = torch.Generator().manual_seed(seed), built(config), 4
    x = torch.randn(rows, 60, WIDTH, dtype=torch.float64, generator=draw)
    state, done, made = mixer.start(rows), torch.zeros(rows, dtype=torch.long), [list[Tensor]() for _ in range(rows)]
    for most in (7, 1, 1, 13, 1, 4, 1, 1):
        lengths = torch.randint(0, most + 1, (rows,), generator=draw)
        where = Where.ragged(lengths, start=done, width=most)
        piece = torch.full((rows, most, WIDTH), math.nan, dtype=torch.float64)
        for row in range(rows):
            piece[row, : lengths[row]] = x[row, done[row] : done[row] + lengths[row]]
        y, after = mixer(piece, where, state)
        assert after is not None
        state = after
        for row in range(rows):
            made[row].append(y[row, : lengths[row]])
        done = done + lengths
        assert nbytes(state) <= rows * price(mixer.spec(), int(done.max()))
    for row in range(rows):
        n = int(done[row])
        alone, _ = mixer(x[row : row + 1, :n], Where.run(1, n))
        assert torch.allclose(torch.cat(made[row]), alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "config", [*CAUSAL, LightConv.Config(causal=False), Convolution.Config(causal=False)], ids=repr
)
@torch.no_grad()
def test_an_order_that_is_left_out_is_a_blank(config: MixerConfig) -> None:
    """Tokens are as far apart as their orders say, in one call and cut; so padding in the middle is no token."""
    mixer, order = built(config), torch.tensor([[0, 1, 2, 5, 6, 12, 13]])
    x, where = torch.randn(1, 7, WIDTH, dtype=torch.float64), Where(order, order)
    made, _ = mixer(x, where)
    if mixer.streams:
        state = mixer.start(1)
        for t in range(7):
            y, after = mixer(x[:, t : t + 1], where.cut(t, t + 1), state)
            assert after is not None
            state = after
            assert torch.allclose(y[:, 0], made[:, t], rtol=0, atol=1e-12)
    if isinstance(mixer, Convolution):  # zeros are its blanks: it projects nothing before
        whole = torch.zeros(1, 14, WIDTH, dtype=torch.float64)
        whole[:, order[0]] = x
        assert torch.allclose(mixer(whole, Where.run(1, 14))[0][:, order[0]], made, rtol=0, atol=1e-12)


def test_laws_hold_over_many_tokens() -> None:
    """Where kernels go block by block, forwards and backwards."""
    for config in (LightConv.Config(kernel=FEW + 3), DynamicConv.Config(kernel=9)):
        for law in LAWS[:3]:
            finding = law(config.build(WIDTH), Case.make(WIDTH, rows=2, tokens=BLOCK + 13))
            assert finding.holds, finding


@pytest.mark.parametrize("tokens", [1, 5, BLOCK, BLOCK + 1, 3 * BLOCK - 1])
@pytest.mark.parametrize("kernel", [1, 3, FEW + 1, 40])
def test_all_forms_of_a_kernel_are_one(tokens: int, kernel: int) -> None:
    """Torch's own, a band of blocks, and loops; values and gradients."""
    draw = torch.Generator().manual_seed(0)
    line = torch.randn(2, tokens + kernel - 1, 12, dtype=torch.float64, generator=draw).requires_grad_()
    taps = torch.randn(4, kernel, dtype=torch.float64, generator=draw).requires_grad_()
    every = taps.repeat_interleave(3, 0)
    slow = torch.stack([(line[:, i : i + kernel] * every.T).sum(1) for i in range(tokens)], 1)
    target = torch.randn(slow.shape, dtype=torch.float64, generator=draw)
    wanted = torch.autograd.grad((slow * target).sum(), (line, taps))
    with torch.no_grad():
        assert torch.allclose(depthwise(line, taps), slow, rtol=0, atol=1e-12)
    for fast in (depthwise(line, taps), dynamic(line, taps.expand(2, tokens, 4, kernel))):
        assert torch.allclose(fast, slow, rtol=0, atol=1e-12)
        for one, other in zip(torch.autograd.grad((fast * target).sum(), (line, taps)), wanted, strict=True):
            assert torch.allclose(one, other, rtol=0, atol=1e-11)


def test_a_line_goes_there_and_back() -> None:
    order = torch.tensor([[3, 4, 5, -1], [9, -1, -1, -1], [-1] * 4, [0, 2, 3, 6]])
    where = Where(order, order.clamp(min=0))
    x = torch.arange(1.0, 17.0).view(4, 4, 1)
    line = Line(where, Seen.of(where, where.blank(x)), 2, 1)
    assert not line.straight
    assert line.values[..., 0].tolist()[0] == [0, 0, 1, 2, 3, 0, 0, 0, 0, 0]
    assert line.values[..., 0].tolist()[3] == [0, 0, 13, 0, 14, 15, 0, 0, 16, 0]
    assert torch.equal(line.take(line.values[:, 2:-1])[where.real], x[where.real])
    assert torch.equal(line.spread(where.blank(x)), line.values[:, 2:-1])


def test_what_is_remembered_is_the_kernel() -> None:
    mixer = Convolution.Config(kernel=4, dilation=2).build(WIDTH)
    assert words(mixer.spec()) == "width numbers per token, for the last (kernel - 1)·dilation tokens"
    assert price(mixer.spec(), 10**6) == 6 * (4 * WIDTH + 16)
    assert mixer.reach == (6, 0)
    assert Convolution.Config(kernel=5, dilation=2, causal=False).build(WIDTH).reach == (4, 4)
    assert "for the last (kernel - 1) tokens" in words(LightConv.Config(kernel=9).build(WIDTH).spec())


@pytest.mark.parametrize("config", [LightConv.Config(kernel=9), DynamicConv.Config(kernel=9), Separable.Config()])
def test_training_holds_no_square_of_the_length(config: MixerConfig) -> None:
    """At 16 times the length the largest tensor saved for the gradient is 16 times as large, not 256 times."""

    def largest(tokens: int) -> int:
        sizes: list[int] = []

        def kept(t: Tensor) -> Tensor:
            sizes.append(t.numel())
            return t

        mixer = config.build(WIDTH)
        with torch.autograd.graph.saved_tensors_hooks(kept, lambda t: t):
            mixer(torch.randn(1, tokens, WIDTH), Where.run(1, tokens))
        return max(sizes)

    assert largest(2048) <= 17 * largest(128)


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="width 24 does not divide into 5 groups; use one of \\[1, 2, 3, 4, 6"):
        Convolution.Config(groups=5).build(WIDTH)
    with pytest.raises(ConfigError, match="a kernel of 4 taps has no middle; use an odd one, or causal = true"):
        Separable.Config(kernel=4, causal=False)
    with pytest.raises(ConfigError, match="kernel is 0"):
        Convolution.Config(kernel=0)
    with pytest.raises(ConfigError, match="24 channels do not divide into groups of 7"):
        Involution.Config(group=7).build(WIDTH)
    with pytest.raises(ConfigError, match="a reduction of 25 leaves nothing of 24 channels"):
        Involution.Config(reduction=25).build(WIDTH)
    with pytest.raises(CannotStream, match="looks 1 tokens ahead"):
        Convolution.Config(causal=False).build(WIDTH).start(1)
