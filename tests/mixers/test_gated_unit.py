"""The gated attention unit against its equations written as loops, and by what it promises about time and memory."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.laws import LAWS, Case
from heed.core.spec import price, words
from heed.core.state import nbytes
from heed.mixers import GatedUnit
from heed.parts.look import look
from heed.parts.positions import Buckets, NoPosition, Rope
from tests.mixers.growth import grows

WIDTH, SIZE = 24, 6


def draw(*shape: int, seed: int = 3) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def built(**options: Any) -> GatedUnit:
    torch.manual_seed(1)
    mixer = GatedUnit.Config(**{"size": SIZE, **options}).build(WIDTH).double().eval()
    for weight in (mixer.gain, mixer.shift):
        torch.nn.init.normal_(weight)  # from 0.02 and 0 on all would be alike
    return mixer


def turned(x: Tensor, place: int) -> Tensor:
    """Channel c with channel c + d/2."""
    half = len(x) // 2
    angle = torch.tensor([place * 10000 ** (-c / half) for c in range(half)], dtype=x.dtype)
    a, b = x[:half], x[half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()))


@torch.no_grad()
def by_hand(mixer: GatedUnit, x: Tensor, chunk: int, *, causal: bool, scale: float = 1.0) -> Tensor:
    """One row: Hua et al. 2022, eq. 6 to 8 in mixed chunk attention, token by token."""

    def silu(z: Tensor) -> Tensor:
        return z / (1 + (-z).exp())

    u, v, z = (silu(linear(x)) for linear in (mixer.gate, mixer.value, mixer.base))
    roles = [[turned(mixer.gain[r] * z[t] + mixer.shift[r], t) for t in range(len(x))] for r in range(4)]
    assert isinstance(mixer.relation, Buckets)
    rows = []
    for i in range(len(x)):
        total = torch.zeros_like(v[0])
        for j in range(len(x)):
            if i // chunk == j // chunk and (j <= i or not causal):
                bias = mixer.relation.table[mixer.relation.bucket(torch.tensor(j - i)), 0]
                total = total + (scale * roles[0][i] @ roles[1][j] + bias).clamp(min=0) ** 2 * v[j]
            if j // chunk < i // chunk or not causal:
                total = total + scale * (roles[2][i] @ roles[3][j]) * v[j]
        rows.append(mixer.out(u[i] * total))
    return torch.stack(rows)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("chunk", [1, 3, 4, 30])
def test_it_is_its_equation(causal: bool, chunk: int) -> None:
    mixer, x = built(chunk=chunk, causal=causal, scale=0.7), draw(2, 11, WIDTH)
    y, _ = mixer(x, Where.ragged([11, 6]))
    assert torch.allclose(y[0], by_hand(mixer, x[0], chunk, causal=causal, scale=0.7), rtol=0, atol=1e-11)
    assert torch.allclose(y[1, :6], by_hand(mixer, x[1, :6], chunk, causal=causal, scale=0.7), rtol=0, atol=1e-11)


def test_weights_start_as_in_the_paper() -> None:
    mixer = GatedUnit.Config(size=256).build(WIDTH)
    assert float(mixer.gain.detach().std()) == pytest.approx(0.02, rel=0.1)
    assert not mixer.shift.any()


@pytest.mark.parametrize("seed", range(2))
def test_rows_fold_at_different_times(seed: int) -> None:
    """Rows of any lengths per call, in any phase of their chunks, give what each gives alone."""
    generator = torch.Generator().manual_seed(seed)
    mixer, rows = built(chunk=5), 4
    x, done, made = (
        draw(rows, 60, WIDTH, seed=seed),
        torch.zeros(rows, dtype=torch.long),
        [list[Tensor]() for _ in range(rows)],
    )
    state = mixer.start(rows)
    with torch.no_grad():
        for most in (7, 1, 1, 13, 1, 4, 1):
            lengths = torch.randint(0, most + 1, (rows,), generator=generator)
            piece = torch.full((rows, most, WIDTH), math.nan, dtype=torch.float64)
            for row in range(rows):
                piece[row, : lengths[row]] = x[row, done[row] : done[row] + lengths[row]]
            y, after = mixer(piece, Where.ragged(lengths, start=done, width=most), state)
            assert after is not None
            state = after
            for row in range(rows):
                made[row].append(y[row, : lengths[row]])
            done = done + lengths
            assert nbytes(state) <= rows * price(mixer.spec(), int(done.max()))
        for row in range(rows):
            alone, _ = mixer(x[row : row + 1, : done[row]], Where.run(1, int(done[row])))
            assert torch.allclose(torch.cat(made[row]), alone[0], rtol=0, atol=1e-11)


@pytest.mark.parametrize("law", LAWS[:3], ids=lambda law: law.__name__)
def test_laws_hold_over_many_chunks(law: Any) -> None:
    finding = law(built(chunk=7), Case.make(WIDTH, rows=2, tokens=40))
    assert finding.holds, finding


def test_the_memory_is_fixed_and_the_open_chunk_bounded() -> None:
    mixer = GatedUnit.Config(size=SIZE, chunk=4, hidden=9).build(WIDTH)
    one = 4 * (2 * SIZE + 9) + 16
    assert price(mixer.spec(), 10**6) == 4 * SIZE * 9 + 3 * one
    assert words(mixer.spec()) == (
        "size·hidden numbers, whatever the length; 2·size + hidden numbers per token, for the last (chunk - 1) tokens"
    )
    state = mixer.start(1)
    with torch.no_grad():
        for t in range(9):
            _, after = mixer(torch.randn(1, 1, WIDTH), Where.run(1, 1, start=t), state)
            assert after is not None
            state = after
            assert nbytes(state) == 4 * SIZE * 9 + (t + 1) % 4 * one


@pytest.mark.parametrize("causal", [True, False])
def test_it_grows_with_the_length_and_no_faster(causal: bool) -> None:
    assert grows(GatedUnit.Config(size=SIZE, chunk=20, causal=causal)) < 4.5


def test_what_is_looked_at_is_the_chunk() -> None:
    mixer = built(chunk=4)
    with torch.no_grad(), look(mixer) as seen:
        mixer(draw(2, 11, WIDTH), Where.run(2, 11))
    (weights,) = seen["weights"]
    assert weights.shape == (2, 1, 11, 11)
    place = torch.arange(11)
    same = (place[:, None] // 4 == place // 4) & (place <= place[:, None])
    assert not weights[..., ~same].any()
    assert weights[..., same].count_nonzero() > 10


def test_positions_that_are_orders_and_others_are_the_same_distance() -> None:
    """Where positions are orders one chunk stands for all when distances are looked up."""
    mixer, x = built(chunk=4, position=Rope.Config()), draw(1, 19, WIDTH)
    order = torch.arange(19)[None]
    with torch.no_grad():
        shifted, _ = mixer(x, Where(order, order + 5))
        plain, _ = mixer(x, Where.run(1, 19))
    assert torch.allclose(shifted, plain, rtol=0, atol=1e-12)


def test_dropout_falls_in_training_only() -> None:
    mixer = built(chunk=4, dropout=0.5, position=NoPosition.Config())
    x, where = draw(1, 9, WIDTH), Where.run(1, 9)
    assert torch.equal(mixer(x, where)[0], mixer(x, where)[0])
    mixer.train()
    assert not torch.equal(mixer(x, where)[0], mixer(x, where)[0])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="chunk is 0"):
        GatedUnit.Config(chunk=0)
    with pytest.raises(ConfigError, match="channels turn two by two"):
        GatedUnit.Config(size=5).build(WIDTH)
    with pytest.raises(ConfigError, match="relation.kind is 'rope'"):
        GatedUnit.Config.load({"relation": {"kind": "rope"}})
