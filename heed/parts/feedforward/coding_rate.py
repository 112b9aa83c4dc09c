"""How many bits a set of vectors takes: the coding rate, by which white-box transformers say what they compress."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

PRECISION = 0.1  # ε: how far a decoded vector may lie from its own, as the authors of CRATE measure


def coding_rate(x: Tensor, real: Tensor | None = None, *, precision: float = PRECISION) -> Tensor:
    """R(Z) = ½ log det( I + d / (N ε²) · Zᵀ Z ) for N vectors of d channels, in nats: few if they span little.

    Ma et al. 2007; Yu et al. 2023, eq. 2. Vectors that are not `real` [..., N] do not count. [..., N, d] -> [...]
    """
    size = x.shape[-1]
    if real is not None:
        x = x.masked_fill(~real[..., None], 0)
    count = torch.full(x.shape[:-2], x.shape[-2], device=x.device) if real is None else real.sum(-1)
    share = size / (count.clamp(min=1).to(x.dtype) * precision**2)
    spread = x.mT @ x * share[..., None, None]
    rate: Tensor = 0.5 * torch.linalg.slogdet(torch.eye(size, dtype=x.dtype, device=x.device) + spread).logabsdet
    return rate


def unit(x: Tensor) -> Tensor:
    """Vectors of length one: only their directions count. [..., d]"""
    return F.normalize(x, dim=-1)
