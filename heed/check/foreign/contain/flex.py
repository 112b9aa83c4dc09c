"""torch's flex_attention on a processor, with gradients: written out, because its own has none there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from .restore import replaced

HOME = "torch.nn.attention.flex_attention"


@contextmanager
def flexing() -> Iterator[None]:
    """Where the target's code has imported it, its scores, its weights and its gradients can be seen."""
    home = sys.modules.get(HOME)
    if home is None:
        yield
        return
    with replaced(home, flex_attention_hop=attended, _validate_device=_any_device):
        yield


def _any_device(query: Tensor, key: Tensor, value: Tensor) -> None:
    """What is written out runs everywhere."""


def attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor],
    block_mask: Sequence[Any],
    scale: float,
    options: object = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The output [B, H, T, D], and of each query the logarithm of its sum and its largest score."""
    groups = query.shape[1] // key.shape[1]
    key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
    score = query @ key.mT * scale  # [B, H, T, S]
    sizes = enumerate(score.shape)
    place = [torch.arange(size).reshape([-1 if axis == other else 1 for other in range(4)]) for axis, size in sizes]
    score = score_mod(score, *place).expand_as(score)
    score = score.masked_fill(~block_mask[-1](*place).bool(), -torch.inf)
    return score.softmax(-1).nan_to_num(0.0) @ value, score.logsumexp(-1), score.amax(-1)
