"""Value convolution: approximate attention plus a depthwise convolution of the values (Nyströmformer, YOSO)."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator
from torch import Tensor, nn

from ...core.config import Count
from ...core.contract import Reach, Where
from ...core.spec import Spec
from ..attention.multihead import Headed, HeadedConfig

Nothing: TypeAlias = "tuple[()]"


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


class ConvolvedConfig(HeadedConfig):
    """Attention with heads, and the kernel of the convolution beside it."""

    kernel: Kernel = 0  # of the convolution; 0: there is none


class Convolved(Headed[Nothing]):
    """y = W_o ( attended(q, k, v) + w * v ), w a convolution along the tokens. Looks ahead, so it remembers nothing."""

    def __init__(self, config: ConvolvedConfig, width: int) -> None:
        super().__init__(config, width)
        self.convolution = Beside.some(self.heads, config.kernel)
        self.reach = Reach(None, None)

    def spec(self) -> Spec:
        return ()

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        x = where.blank(x)
        query, key = self.queries(x), self.each_head(self.keys(x))
        value = self.each_head(where.blank(self.values(x)))
        y = self.attended(query, key, value, where)
        y = y if self.convolution is None else y + self.convolution(value)
        return self.merge(where.blank(y)), state

    @abstractmethod
    def attended(self, query: Tensor, key: Tensor, value: Tensor, where: Where) -> Tensor:
        """What the attention gives; values are zero at padding. [B, T, H, d] three times -> [B, T, H, d]"""
