"""What a target is taken for: attention, or something else; and which of its axes are rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import heed
from heed.check import CannotCheck
from tests.check.test_branches import Heads, plain


class Across(nn.Module):
    """Neighbours are added: tokens meet, and nothing attends."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(x + x.roll(1, 1)).relu()


class Apart(Across):
    """Every token by itself."""

    def forward(self, x: Tensor) -> Tensor:
        return self.up(x).relu()


def test_what_does_not_attend_is_not_checked_as_attention() -> None:
    with pytest.raises(CannotCheck, match="there is no attention in Across"):
        heed.check(Across)
    assert heed.check(Apart).kind == "a feed-forward layer"


class Asks(nn.Module):
    """Six queries of its own look at the stream."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(6, dim))
        self.kv = nn.Linear(dim, 2 * dim)

    def forward(self, x: Tensor) -> Tensor:
        return plain(self.queries.expand(len(x), -1, -1), *self.kv(x).chunk(2, -1))


def test_queries_of_its_own_are_not_those_of_the_stream() -> None:
    report = heed.check(Asks)
    assert not report.slugs
    assert "queries of its own" in report.call
    assert "it gives 6 vector(s) for each row, not one for every token" in " ".join(report.unchecked)


class Tiles(Heads):
    """Tokens see their block of three; the number of tokens is a multiple of that."""

    def __init__(self, d_model: int, num_heads: int, window_size: int = 3) -> None:
        super().__init__(d_model, num_heads)
        self.window_size = window_size

    def forward(self, x: Tensor) -> Tensor:
        assert x.shape[1] % self.window_size == 0
        return Heads.forward(self, x.reshape(-1, self.window_size, x.shape[2])).reshape(x.shape)


def test_a_window_as_long_as_there_are_rows_is_no_confusion_of_both() -> None:
    assert heed.check(Tiles).ok


class Sensors(nn.Module):
    """x: (batch, time, features)"""

    def __init__(self, d_model: int, nhead: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, nhead)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class Steps(Sensors):
    """x: (time, batch, features)"""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


def test_a_source_that_says_rows_first_is_believed() -> None:
    assert heed.check(Sensors).slugs == ["batch-first-confusion"]
    assert heed.check(Steps).ok
