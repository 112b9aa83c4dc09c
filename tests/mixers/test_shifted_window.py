"""Shifted windows against their equation written as loops, on whole planes and on planes with holes.

The laws are run over the table, in test_mixers.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heed.core.contract import Where
from heed.core.errors import CannotStream, ConfigError, InputError
from heed.core.laws import LAWS, Case
from heed.mixers import ShiftedWindow
from heed.parts.inputs.patches import Grid
from heed.parts.look import look

WIDTH, HEADS, SIZE = 6, 2, 3
EXACT = 1e-12


def built(grid: tuple[int, int], window: int, shift: int) -> ShiftedWindow:
    mixer = ShiftedWindow.Config(heads=HEADS, grid=grid, window=window, shift=shift).build(WIDTH).double().eval()
    with torch.no_grad():
        for parameter in mixer.parameters():
            parameter.copy_(torch.randn(parameter.shape, dtype=torch.float64))
    return mixer


def neighbours(mixer: ShiftedWindow, cell: int) -> Iterator[tuple[int, int]]:
    """The cells of the window of a cell, those beyond the lower and right border too, as row and column."""
    height, width = mixer.config.grid
    window, shift = mixer.config.window, mixer.config.shift
    if min(height, width) <= window:
        window, shift = min(height, width), 0
    rows, columns = (-(-side // window) * window for side in (height, width))
    r, c = divmod(cell, width)
    for row in range(rows):
        for column in range(columns):
            if (row - shift) // window == (r - shift) // window and (column - shift) // window == (c - shift) // window:
                yield row, column


def equation(mixer: ShiftedWindow, tokens: dict[int, Tensor]) -> dict[int, Tensor]:
    """y for every token, by its cell."""
    height, width = mixer.config.grid
    most = mixer.config.window
    made = {}
    for cell, x in tokens.items():
        r, c = divmod(cell, width)
        seen = []
        for row, column in neighbours(mixer, cell):
            if row >= height or column >= width:
                seen.append((r - row, c - column, torch.zeros(WIDTH, dtype=torch.float64)))
            elif row * width + column in tokens:
                seen.append((r - row, c - column, tokens[row * width + column]))
        heads = []
        for h in range(HEADS):
            one = slice(SIZE * h, SIZE * h + SIZE)
            query = mixer.query(x)[one]
            scores = [
                query @ mixer.key(other)[one] / math.sqrt(SIZE)
                + mixer.table[(down + most - 1) * (2 * most - 1) + right + most - 1, h]
                for down, right, other in seen
            ]
            weight = torch.stack(scores).softmax(0)
            heads.append(weight @ torch.stack([mixer.value(other)[one] for _, _, other in seen]))
        made[cell] = mixer.out(torch.cat(heads))
    return made


PLANES = [
    ((4, 4), 2, 0),
    ((4, 4), 2, 1),
    ((6, 3), 2, 1),
    ((5, 7), 3, 1),
    ((5, 7), 3, 2),
    ((3, 5), 3, 1),  # the window is the shorter side: no shift
    ((2, 5), 4, 2),  # larger than the plane
    ((1, 4), 3, 1),
    ((6, 6), 4, 2),
]


@pytest.mark.parametrize(("grid", "window", "shift"), PLANES)
def test_it_is_its_equation(grid: tuple[int, int], window: int, shift: int) -> None:
    mixer, cells = built(grid, window, shift), grid[0] * grid[1]
    x = torch.randn(2, cells, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        y, state = mixer(x, Where.run(2, cells))
        for row in range(2):
            wanted = equation(mixer, dict(enumerate(x[row])))
            for cell, vector in wanted.items():
                assert torch.allclose(y[row, cell], vector, rtol=0, atol=EXACT), cell
    assert state is None


@settings(max_examples=25, deadline=None, derandomize=True)
@given(plane=st.sampled_from(PLANES), data=st.data())
def test_it_is_its_equation_where_cells_are_empty(plane: tuple[tuple[int, int], int, int], data: st.DataObject) -> None:
    mixer, cells = built(*plane), plane[0][0] * plane[0][1]
    positions = data.draw(st.lists(st.integers(0, cells - 1), min_size=1, max_size=8, unique=True))
    x = torch.randn(1, len(positions) + 2, WIDTH, dtype=torch.float64)
    x[:, -2:] = float("nan")
    order = torch.tensor([[*range(len(positions)), -1, -1]])
    where = Where(order, torch.tensor([[*positions, 0, 0]]))
    with torch.no_grad():
        y, _ = mixer(x, where)
        wanted = equation(mixer, {cell: x[0, column] for column, cell in enumerate(positions)})
    for column, cell in enumerate(positions):
        assert torch.allclose(y[0, column], wanted[cell], rtol=0, atol=EXACT)


def test_stamps_that_tell_the_plane_are_believed() -> None:
    """Any image goes through weights that were made for another."""
    mixer, other = built((4, 4), 3, 1), built((5, 6), 3, 1)
    other.load_state_dict(mixer.state_dict())
    x = torch.randn(2, 30, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        assert torch.equal(mixer(x, Grid.of(2, 5, 6))[0], other(x, Where.run(2, 30))[0])


def test_tokens_in_any_order_are_laid_out_by_their_positions() -> None:
    mixer = built((4, 5), 2, 1)
    x, shuffled = torch.randn(2, 20, WIDTH, dtype=torch.float64), torch.randperm(20)
    where = Where(torch.arange(20).expand(2, 20), shuffled.expand(2, 20))
    with torch.no_grad():
        whole, _ = mixer(x, Where.run(2, 20))
        y, _ = mixer(x[:, shuffled], where)
    assert torch.allclose(y, whole[:, shuffled], rtol=0, atol=EXACT)


def test_a_token_is_influenced_by_its_window_and_nothing_else() -> None:
    mixer = built((5, 6), 2, 1)
    x = torch.randn(1, 30, WIDTH, dtype=torch.float64, requires_grad=True)
    y, _ = mixer(x, Where.run(1, 30))
    for cell in range(30):
        (slope,) = torch.autograd.grad(y[0, cell].square().sum(), x, retain_graph=True)
        felt = set(slope[0].abs().amax(1).nonzero().flatten().tolist())
        assert felt == {r * 6 + c for r, c in neighbours(mixer, cell) if r < 5 and c < 6}


@pytest.mark.parametrize("sample", ShiftedWindow.Config.samples(), ids=repr)
def test_laws_hold_on_other_inputs(sample: ShiftedWindow.Config) -> None:
    for law in LAWS:
        finding = law(sample.build(24), Case.make(24, rows=2, tokens=9, seed=5))
        assert finding.holds, finding


def test_gradients_are_finite_beside_empty_cells() -> None:
    mixer = built((5, 5), 2, 1)
    x = torch.randn(1, 3, WIDTH, dtype=torch.float64, requires_grad=True)
    y, _ = mixer(x, Where(torch.tensor([[0, 1, -1]]), torch.tensor([[0, 24, 0]])))
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert not x.grad[0, 2].any()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in mixer.parameters())


def test_weights_are_shown_window_by_window() -> None:
    mixer = built((4, 6), 2, 1)
    x = torch.randn(3, 24, WIDTH, dtype=torch.float64)
    with look(mixer) as seen, torch.no_grad():
        mixer(x, Where.run(3, 24))
    (weights,) = seen["weights"]
    assert weights.shape == (3 * 6, HEADS, 4, 4)
    assert torch.allclose(weights.sum(-1), torch.ones((), dtype=torch.float64))
    assert weights[5, 0, 0, 3] == 0  # the last window holds four corners, which are strangers to one another


def test_impossible_planes_are_refused() -> None:
    with pytest.raises(ConfigError, match="a shift of 3 moves a window of 3 by itself"):
        ShiftedWindow.Config(window=3, shift=3)
    mixer = built((4, 4), 2, 1)
    with pytest.raises(InputError, match="position 19 is outside 0 to 15, all that a plane of 4x4 cells covers"):
        mixer(torch.zeros(1, 20, WIDTH, dtype=torch.float64), Where.run(1, 20))
    with pytest.raises(CannotStream, match="ShiftedWindow looks any number of tokens ahead"):
        mixer.start(1)
