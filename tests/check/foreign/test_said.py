"""What a source says in passing: which arguments are masks, where rows stand, and what ones mean."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heed.check.foreign.said import masks_in, rows_first, says_hidden
from heed.check.foreign.signature import Signature
from heed.check.foreign.words import Role


class Couche(nn.Module):
    """Names that no list of words holds."""

    def forward(self, phrases: Tensor, masque: Tensor | None = None, cache_de: Any = None, fenetre: int = 3) -> Tensor:
        proche = torch.arange(phrases.shape[1]) < fenetre
        scores = phrases @ phrases.mT
        scores = scores.masked_fill(~proche, float("-inf"))
        visible = None if masque is None else masque[:, None]
        if visible is not None:
            scores = scores.masked_fill(~visible, float("-inf"))
        return torch.where(cache_de, scores, 0.0).softmax(-1) @ phrases


def test_a_mask_is_what_is_used_as_one() -> None:
    assert {"masque", "cache_de"} <= masks_in(Couche.forward)
    roles = Signature.of(Couche()).roles
    assert roles["masque"] is Role.MASK
    assert roles["fenetre"] is not Role.MASK  # a number is none


def test_what_has_no_source_says_nothing() -> None:
    assert masks_in(torch.softmax) == frozenset()
    assert masks_in(len) == frozenset()
    assert rows_first(len) is None
    assert not says_hidden(len)


class Unpacked:
    def forward(self, x: Tensor) -> int:
        b, t, _ = x.shape
        return b * t


class Sized:
    def forward(self, x: Tensor) -> int:
        seq_len, bsz, _ = x.size()
        return seq_len * bsz


class Both:
    """Takes (batch, seq, dim) and turns it to (seq, batch, dim)."""


class Neither:
    """Takes a stream."""


@pytest.mark.parametrize(
    ("found", "told"), [(Unpacked, "(b, t"), (Unpacked(), "(b, t"), (Sized, None), (Both, None), (Neither, None)]
)
def test_where_rows_stand(found: Any, told: str | None) -> None:
    said = rows_first(found)
    assert said is None if told is None else said is not None and said.startswith(told)


class Marks:
    """mask: 1 marks padding"""


class Shows:
    """mask: 1 for tokens, 0 for padding"""


def test_what_ones_mean() -> None:
    assert says_hidden(Marks)
    assert not says_hidden(Shows)
