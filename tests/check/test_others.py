"""What belongs to attention without being it; heed's own mixers; and what cannot be checked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from heed.check import CannotCheck, check
from heed.core.config import kind_of
from heed.core.contract import MixerConfig
from heed.core.errors import ConfigError
from heed.mixers import MIXERS

GOLDEN = Path(__file__).parents[1] / "golden"


def sinusoids(length: int, d_model: int) -> Tensor:
    angle = torch.arange(length)[:, None] * 10000 ** (-torch.arange(0, d_model, 2) / d_model)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1)


def slopes(heads: int) -> list[float]:
    power = 2 ** math.floor(math.log2(heads))
    rest = [2 ** (-4 * (2 * h + 1) / power) for h in range(heads - power)]
    return [2 ** (-8 * (h + 1) / power) for h in range(power)] + rest


def causal_mask(n: int) -> Tensor:
    return torch.ones(n, n).tril()


def rel_shift(x: Tensor) -> Tensor:
    rows, heads, tokens, width = x.shape
    return torch.nn.functional.pad(x, (1, 0)).view(rows, heads, width + 1, tokens)[:, :, 1:].reshape(x.shape)


def rotate_half(x: Tensor) -> Tensor:
    one, other = x.chunk(2, -1)
    return torch.cat((-other, one), -1)


def apply_rotary(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


class FeedForward(nn.Sequential):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__(nn.Linear(d_model, d_ff), nn.GELU(), nn.Linear(d_ff, d_model))


RIGHT = (sinusoids, slopes, causal_mask, rel_shift, apply_rotary, FeedForward, nn.LayerNorm, nn.RMSNorm)


@pytest.mark.parametrize("target", RIGHT, ids=lambda target: target.__name__)
def test_what_is_right_is_left_alone(target: Any) -> None:
    report = check(target)
    assert report.ok, str(report)
    assert any(outcome.status == "pass" for outcome in report.outcomes), str(report)


@pytest.mark.parametrize("config", MIXERS, ids=kind_of)
def test_mixers_of_heed(config: type[MixerConfig]) -> None:
    report = check(config.samples()[0].build(24))
    assert report.ok, str(report)


@pytest.mark.parametrize("name", ["gpt2/lm", "llama/lm", "bloom/lm", "bert/pretraining", "bart/seq2seq"])
def test_folders_of_checkpoints(name: str) -> None:
    report = check(GOLDEN / name)
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("target", "spec", "words"),
    [
        ("nowhere.py:Attention", {}, "there is no file nowhere.py"),
        ("no_such_module:Attention", {}, "there is no module no_such_module"),
        ("torch.nn:MultiHeadAttention", {}, "did you mean 'MultiheadAttention'"),
        ("torch.nn", {}, "names no class or function"),
        (nn.MultiheadAttention, {"init": {"width": 3}}, "takes no width"),
        (nn.MultiheadAttention, {"only": ["futur"]}, "there is no probe 'futur'"),
        (nn.Conv2d, {"init": {"in_channels": 3, "out_channels": 4, "kernel_size": 3}}, "could not be called"),
    ],
)
def test_what_cannot_be_checked_says_why(target: Any, spec: dict[str, Any], words: str) -> None:
    with pytest.raises(CannotCheck, match=words):
        check(target, **spec)


def test_a_misspelt_declaration() -> None:
    with pytest.raises(ConfigError, match="did you mean"):
        check(nn.MultiheadAttention, causl=True)
