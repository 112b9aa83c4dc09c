"""Infini-attention against its equations written as loops, and by what it promises about time and memory."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.laws import LAWS, Case
from heed.core.spec import price, words
from heed.core.state import nbytes
from heed.mixers import Infini
from heed.parts.look import look
from heed.parts.positions import Rope
from heed.parts.segments.segmented import Segmented

WIDTH, HEADS, SIZE = 24, 4, 6


def built(**options: object) -> Infini:
    torch.manual_seed(0)
    mixer = Infini.Config.load({"heads": HEADS, **options}).build(WIDTH).double()
    torch.nn.init.normal_(mixer.gate)
    return mixer.eval()


def phi(x: Tensor) -> Tensor:
    return torch.where(x > 0, x + 1, x.exp())


@torch.no_grad()
def by_hand(mixer: Infini, x: Tensor, *, delta: bool, reference: bool = False) -> Tensor:
    """One row, token by token: the paper's equations 2 to 10, or what lucidrains made of them."""
    q, k, v = (linear(x).view(len(x), HEADS, SIZE) for linear in (mixer.query, mixer.key, mixer.value))
    length, rows = mixer.segment, []
    matrix = torch.zeros(HEADS, SIZE, SIZE, dtype=x.dtype)
    norm = torch.zeros(HEADS, SIZE, dtype=x.dtype)

    def recalled(feature: Tensor, head: int) -> Tensor:
        divisor = feature @ norm[head]
        return feature @ matrix[head] / divisor if divisor > 0 else torch.zeros(SIZE, dtype=x.dtype)

    for i in range(len(x)):
        begin, heads = i // length * length, []
        for h in range(HEADS):
            weight = [math.exp(float(q[i, h] @ k[j, h]) / math.sqrt(SIZE)) for j in range(begin, i + 1)]
            local = sum((w / sum(weight) * v[begin + n, h] for n, w in enumerate(weight)), torch.zeros_like(v[0, 0]))
            share = torch.sigmoid(mixer.gate[h])
            share = 1 - share if reference else share
            share = torch.zeros_like(share) if reference and i < length else share
            heads.append(share * recalled(phi(q[i, h]), h) + (1 - share) * local)
        rows.append(torch.cat(heads))
        if (i + 1) % length == 0:
            before = [[recalled(phi(k[j, h]), h) if delta else 0.0 for h in range(HEADS)] for j in range(begin, i + 1)]
            for j in range(begin, i + 1):
                for h in range(HEADS):
                    matrix[h] += torch.outer(phi(k[j, h]), v[j, h] - before[j - begin][h])
                    norm[h] += phi(k[j, h])
    made: Tensor = mixer.out(torch.stack(rows))
    return made


@pytest.mark.parametrize("update", ["linear", "delta"])
@pytest.mark.parametrize("segment", [1, 3, 4, 20])
def test_it_is_its_equations(update: str, segment: int) -> None:
    mixer = built(update=update, segment=segment)
    x = torch.randn(1, 11, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        y, _ = mixer(x, Where.run(1, 11))
        assert torch.allclose(y[0], by_hand(mixer, x[0], delta=update == "delta"), rtol=0, atol=1e-12)


@pytest.mark.parametrize("update", ["linear", "delta"])
def test_the_references_form_is_its_equations(update: str) -> None:
    mixer = built(update=update, segment=4, gates="local", ungated_first=True, floor=1e-10)
    x = torch.randn(1, 11, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        y, _ = mixer(x, Where.run(1, 11))
        wanted = by_hand(mixer, x[0], delta=update == "delta", reference=True)
    assert torch.allclose(y[0], wanted, rtol=0, atol=1e-12)
    assert not torch.allclose(y[0], by_hand(mixer, x[0], delta=update == "delta"), rtol=0, atol=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_rows_fold_at_different_times(seed: int) -> None:
    """Rows of any lengths per call, in any phase of their segments, give what each gives alone."""
    draw = torch.Generator().manual_seed(seed)
    mixer, rows = built(segment=5, update="delta", position={"kind": "rope"}), 4
    x = torch.randn(rows, 60, WIDTH, dtype=torch.float64, generator=draw)
    state, done, made = mixer.start(rows), torch.zeros(rows, dtype=torch.long), [list[Tensor]() for _ in range(rows)]
    with torch.no_grad():
        for most in (7, 1, 1, 13, 1, 4, 1):
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


def test_orders_may_have_gaps() -> None:
    """A segment that never gets its last token is over when a later one begins: whole and cut agree."""
    mixer = built(segment=4)
    order = torch.tensor([[0, 1, 2, 5, 6, 12, 13]])
    x, where = torch.randn(1, 7, WIDTH, dtype=torch.float64), Where(order, order)
    with torch.no_grad():
        whole, _ = mixer(x, where)
        state = mixer.start(1)
        for t in range(7):
            y, after = mixer(x[:, t : t + 1], where.cut(t, t + 1), state)
            assert after is not None
            state = after
            assert torch.allclose(y[:, 0], whole[:, t], rtol=0, atol=1e-12)


def test_laws_hold_over_many_segments() -> None:
    mixer = Infini.Config(segment=7, kv_heads=2, position=Rope.Config()).build(WIDTH)
    for law in LAWS:
        finding = law(mixer, Case.make(WIDTH, rows=2, tokens=40))
        assert finding.holds, finding


def test_the_memory_is_fixed_and_the_open_segment_bounded() -> None:
    mixer = Infini.Config(segment=4).build(WIDTH)
    assert price(mixer.spec(), 10**6) == 4 * 4 * (36 + 6) + 3 * (2 * WIDTH * 4 + 16)
    assert "for the last (segment - 1) tokens" in words(mixer.spec())
    state = mixer.start(1)
    with torch.no_grad():
        for t in range(9):
            _, after = mixer(torch.randn(1, 1, WIDTH), Where.run(1, 1, start=t), state)
            assert after is not None
            state = after
            assert nbytes(state) == 4 * 4 * (36 + 6) + (t + 1) % 4 * (2 * WIDTH * 4 + 16)


def test_training_holds_no_square_of_the_length() -> None:
    """At 16 times the length the largest tensor saved for the gradient is 16 times as large, not 256 times."""

    def largest(tokens: int) -> int:
        sizes: list[int] = []

        def kept(t: Tensor) -> Tensor:
            sizes.append(t.numel())
            return t

        mixer = Infini.Config(segment=16, update="linear").build(WIDTH)
        with torch.autograd.graph.saved_tensors_hooks(kept, lambda t: t):
            mixer(torch.randn(1, tokens, WIDTH), Where.run(1, tokens))
        return max(sizes)

    assert largest(1024) == 16 * largest(64)


def test_what_is_looked_at_is_the_segment() -> None:
    mixer = built(segment=4)
    with torch.no_grad(), look(mixer) as seen:
        mixer(torch.randn(2, 11, WIDTH, dtype=torch.float64), Where.run(2, 11))
    (weights,) = seen["weights"]
    assert weights.shape == (2, HEADS, 11, 11)
    place = torch.arange(11)
    same = (place[:, None] // 4 == place // 4) & (place <= place[:, None])
    assert torch.equal(weights > 0, same.expand(2, HEADS, 11, 11))


def test_gradients_are_finite_where_nothing_is_known() -> None:
    """φ underflows to zero for keys far below zero: 0 / 0 is 0, forwards and backwards."""
    mixer = built(segment=2, bias=True)
    with torch.no_grad():
        mixer.key.bias.fill_(-1e4)
    x = torch.randn(1, 6, WIDTH, dtype=torch.float64, requires_grad=True)
    y, _ = mixer(x, Where.run(1, 6))
    y.square().sum().backward()
    assert y.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in mixer.parameters())


def test_segmented_goes_there_and_back() -> None:
    order = torch.tensor([[3, 4, 5, 6, 7], [8, 9, -1, -1, -1], [-1] * 5])
    grid = Segmented(Where(order, order.clamp(min=0)), 4)
    x = torch.arange(15.0).view(3, 5, 1)
    assert grid.count == 2
    assert grid.closed.tolist() == [2, 0, 0]
    assert grid.put(x)[0, :, :, 0].tolist() == [[0, 0, 0, 0], [1, 2, 3, 4]]
    assert torch.equal(grid.take(grid.put(x), 3)[:1], x[:1, 2:])


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="segment is 0"):
        Infini.Config(segment=0)
    with pytest.raises(ConfigError, match="floor is -1"):
        Infini.Config(floor=-1.0)
    with pytest.raises(ConfigError, match="update is 'hebb'"):
        Infini.Config.load({"update": "hebb"})
    with pytest.raises(ConfigError, match="width 26 does not divide into 4 heads"):
        Infini.Config().build(26)
