"""Token shift: the last tokens of the call before, which a short convolution or RWKV's shift by one still sees."""

from __future__ import annotations

from typing import ClassVar, Self

import torch
from pydantic import model_validator
from torch import Tensor

from ...core.config import Count, Size
from ...core.contract import MixerConfig
from ...core.stamps import Stamps


class RwkvConfig(MixerConfig):
    """What RWKV's time mixing and channel mixing are both told: which layer it is."""

    paper: ClassVar[str] = "Peng et al. 2023, RWKV: Reinventing RNNs for the Transformer Era, arXiv 2305.13048"

    layer: Count = 0  # which layer it is, and of how many: for its first weights only
    layers: Size = 1  # how many there are

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if self.layer >= self.layers:
            raise ValueError(f"layer is {self.layer}, but there are {self.layers} layers, counted from 0")
        return self


def continued(x: Tensor, where: Stamps, tail: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens behind the `tail` of the last call, and the tail for the next: the last ones of each row, itself included.

    [B, T, D] and [B, W, D] give [B, W + T, D] and [B, W, D]. Before the first token a tail is zeros.
    """
    both, size = torch.cat((tail, x), 1), tail.shape[1]
    if not where.span.padded:
        return both, both[:, x.shape[1] :].clone()  # a view would keep all of it alive
    last = where.real.sum(1)[:, None] + torch.arange(size, device=x.device)  # padding stands at a row's end
    return both, both.take_along_dim(last[..., None], 1)
