"""What hands type wrongly is told in heed's words: lists, other lengths, other dtypes, nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import heed
from heed.core.contract import Where
from heed.core.errors import InputError
from heed.mixers import MIXERS
from heed.models import Decoder

Q = torch.randn(2, 5, 4, 8)
IDS = torch.tensor([[1, 2, 3]])


def model() -> Any:
    return Decoder.Config(width=16, depth=1, vocabulary=10).build()


def conv() -> Any:
    return MIXERS.named["lightconv"]().build(16)  # it reads no mask that would notice


CASES: dict[str, tuple[Callable[[], object], str]] = {
    "positions of another length": (lambda: Where(torch.arange(3)[None], torch.arange(5)[None]), "one for each token"),
    "stamps without rows": (lambda: Where(torch.arange(3), torch.arange(3)), "one for each token"),
    "stamps in floats": (lambda: Where(torch.zeros(1, 3), torch.zeros(1, 3)), "whole numbers"),
    "stamps in lists": (lambda: Where([[0, 1]], [[0, 1]]), "order and position are tensors"),  # type: ignore[arg-type]
    "fewer than no tokens": (lambda: Where.run(1, -3), "0 or more rows and tokens"),
    "half a token": (lambda: Where.run(1, 2.5), "0 or more rows and tokens"),  # type: ignore[arg-type]
    "a where that is longer": (lambda: conv()(torch.randn(1, 3, 16), Where.run(1, 5)), "Where.run.1, 3. would fit"),
    "a where that is shorter": (lambda: conv()(torch.randn(1, 3, 16), Where.run(1, 2)), "would fit"),
    "a where of other rows": (lambda: conv()(torch.randn(1, 3, 16), Where.run(2, 3)), "would fit"),
    "a list": (lambda: model()([1, 2, 3]), "takes a tensor, not list"),
    "a list and a where": (lambda: model()([[1, 2, 3]], Where.run(1, 3)), "takes a tensor, not list"),
    "a text": (lambda: model()("abc"), "takes a tensor, not str"),
    "nothing": (lambda: model()(None), "takes a tensor, not NoneType"),
    "ids in floats": (lambda: model()(IDS.float()), "integer ids"),
    "flags": (lambda: model()(IDS.bool()), "integer ids"),
    "negative ids": (lambda: model()(-IDS), "vocabulary has 10"),
    "ids above the vocabulary": (lambda: model()(IDS + 100), "vocabulary has 10"),
    "another dtype": (lambda: heed.attend(Q, Q.double(), Q), "one floating-point dtype"),
    "another dtype of values": (lambda: heed.attend(Q.half(), Q.half(), Q), "one floating-point dtype"),
    "whole numbers": (lambda: heed.attend(Q.long(), Q.long(), Q.long()), "floating-point"),
    "no key heads": (lambda: heed.attend(Q, Q[:, :, :0], Q[:, :, :0]), "at least one head"),
    "no heads": (lambda: heed.attend(Q[:, :, :0], Q[:, :, :0], Q[:, :, :0]), "at least one head"),
    "no channels": (lambda: heed.attend(Q[..., :0], Q[..., :0], Q), "at least one channel"),
    "lists": (lambda: heed.attend([1], [2], [3]), "query is a list"),  # type: ignore[arg-type]
    "another device": (lambda: heed.attend(Q, Q.to("meta"), Q), "bring them together"),
    "all dropped": (lambda: heed.attend(Q, Q, Q, dropout=2.0), "a share from 0 to 1"),
    "other rows": (lambda: heed.attend(Q, Q[:1], Q[:1]), "rows must be equal"),
}


@pytest.mark.parametrize("name", CASES)
def test_misuse_is_told(name: str) -> None:
    call, words = CASES[name]
    with pytest.raises(InputError, match=words):
        call()


def test_nothing_of_something_is_no_error() -> None:
    assert model()(IDS[:0])[0].shape == (0, 3, 10)
    assert model()(IDS[:, :0])[0].shape == (1, 0, 10)
    assert heed.attend(Q[:0], Q[:0], Q[:0]).shape == (0, 5, 4, 8)
    assert not heed.attend(Q, Q[:, :0], Q[:, :0]).any()
