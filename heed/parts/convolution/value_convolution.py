"""A convolution of values along the sequence, beside an attention that is only an approximation of one."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator
from torch import Tensor, nn

from ...core.config import Count


def _odd(kernel: int) -> int:
    if kernel and kernel % 2 == 0:
        raise ValueError(f"a kernel of {kernel} tokens has no middle; use an odd number, or 0 for no convolution")
    return kernel


Kernel = Annotated[Count, AfterValidator(_odd)]  # tokens that a convolution sees; 0 = there is none


class Beside(nn.Conv2d):
    """Σ_o w_o v_{i+o}, with weights of each head that all its channels share. Beyond a row's ends there are zeros."""

    def __init__(self, heads: int, kernel: int) -> None:
        super().__init__(heads, heads, (kernel, 1), padding=(kernel // 2, 0), groups=heads, bias=False)

    @classmethod
    def some(cls, heads: int, kernel: int) -> Beside | None:
        """A convolution, if there is one."""
        return cls(heads, kernel) if kernel else None

    def forward(self, value: Tensor) -> Tensor:
        """Values that are zero at padding. [B, T, H, d] -> [B, T, H, d]"""
        return super().forward(value.transpose(1, 2)).transpose(1, 2)

    def __call__(self, value: Tensor) -> Tensor:
        made: Any = super().__call__(value)
        return made  # type: ignore[no-any-return]
