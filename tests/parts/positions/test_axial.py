"""Axial positions: rows and columns of a board, side by side."""

from __future__ import annotations

import pytest
import torch

from heed.core.errors import ConfigError, InputError
from heed.parts.positions import Axial


def test_a_place_is_a_row_and_a_column() -> None:
    code = Axial.Config(shape=(3, 5), sizes=(2, 4)).build(6)
    made = code.code(torch.arange(15)[None])[0]
    for place in range(15):
        row, column = place // 5, place % 5
        assert torch.equal(made[place], torch.cat((code.tables[0][row], code.tables[1][column])))
    assert code.longest == 15
    assert sum(table.numel() for table in code.parameters()) == 3 * 2 + 5 * 4


def test_three_axes_count_like_digits() -> None:
    code = Axial.Config(shape=(2, 3, 4), sizes=(1, 2, 3)).build(6)
    made = code.code(torch.tensor([[17]]))[0, 0]  # 17 = 1·12 + 1·4 + 1
    assert torch.equal(made, torch.cat([table[1] for table in code.tables]))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"2 \+ 4 channels, which are 6; the stream has 8"):
        Axial.Config(shape=(3, 5), sizes=(2, 4)).build(8)
    with pytest.raises(ConfigError, match="must name the same axes"):
        Axial.Config(shape=(3, 5), sizes=(6,))
    with pytest.raises(InputError, match="position 15 is outside 0 to 14, all that a board of 3x5 covers"):
        Axial.Config(shape=(3, 5), sizes=(2, 4)).build(6).code(torch.tensor([[15]]))
