"""Norms as instructions: LayerNorm, RMSNorm, RMSNorm with a gain from one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .. import operands
from ..program import must

if TYPE_CHECKING:
    from ...parts.layers.norms import FromOne
    from .emitter import Emitter


def layer_norm(e: Emitter, norm: nn.LayerNorm, source: int, target: int, groups: int) -> None:
    """Centred, with gain and shift."""
    _norm(e, norm, (source, target, groups), norm.eps, norm.weight, norm.bias)


def rms_norm(e: Emitter, norm: nn.RMSNorm, source: int, target: int, groups: int) -> None:
    """Not centred."""
    must(norm.eps is not None, norm, "eps is left to torch")
    _norm(e, norm, (source, target, groups), norm.eps or 0.0, norm.weight, None, uncentred=1)


def from_one(e: Emitter, norm: FromOne, source: int, target: int, groups: int) -> None:
    """Not centred, and the gain is one more than the weight."""
    _norm(e, norm, (source, target, groups), norm.eps, norm.weight, None, uncentred=1, more=1)


def _norm(
    e: Emitter,
    norm: nn.Module,
    registers: tuple[int, int, int],
    eps: float,
    gain: Tensor | None,
    shift: Tensor | None,
    uncentred: int = 0,
    more: int = 0,
) -> None:
    source, target, groups = registers
    width = e.builder.widths[source] // groups
    for tensor in (gain, shift):
        fits = tensor is None or (tensor.dtype == torch.float32 and tensor.numel() == width)
        must(fits, norm, f"weights other than {width} of float32")
    e.builder.add(operands.Norm(groups, width, uncentred, more, eps, gain, shift), target, source)
