"""Mixers and models called as other libraries call theirs: the error says what to write, and that works."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
import torch

from heed.core.contract import Mixer
from heed.core.errors import ConfigError
from heed.mixers import Attention, Fourier, Gru, Mamba
from heed.models import Decoder

CALLS: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "Attention.Config(heads=8).build(64)": (Attention, (64, 8), {}),
    "Attention.Config(heads=4).build(32)": (Attention, (), {"embed_dim": 32, "num_heads": 4}),
    "Mamba.Config().build(64)": (Mamba, (64,), {}),
    "Gru.Config().build(16)": (Gru, (16, 32), {}),
    "Decoder.Config(vocabulary=100, width=64, depth=2).build()": (
        Decoder,
        (),
        {"vocab_size": 100, "width": 64, "num_layers": 2},
    ),
}


@pytest.mark.parametrize("right", CALLS)
def test_the_error_says_what_to_write_and_that_works(right: str) -> None:
    owner, given, named = CALLS[right]
    with pytest.raises(
        ConfigError, match=re.escape(f"{owner.__name__} is built from its configuration; write {right}")
    ):
        owner(*given, **named)
    assert isinstance(eval(right, {owner.__name__: owner}), owner)


def test_what_is_missing_is_left_to_fill_in() -> None:
    with pytest.raises(ConfigError, match=re.escape("Decoder.Config(width=64, depth=...).build()")):
        Decoder(64, 8)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=re.escape("Attention.Config(heads=8).build(width)")):
        Attention(heads=8)  # type: ignore[call-arg]


def test_what_takes_no_configuration_is_left_alone() -> None:
    """A mixer of one's own may be built from anything; and no copy is built from a configuration."""

    class Own(Fourier):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.own = torch.nn.Linear(width, width)

    assert isinstance(Own(8), Mixer)
    mixer = Attention.Config(heads=2).build(8)
    for other in (copy.copy(mixer), copy.deepcopy(mixer), pickle.loads(pickle.dumps(mixer))):
        assert torch.equal(other.query.weight, mixer.query.weight)
