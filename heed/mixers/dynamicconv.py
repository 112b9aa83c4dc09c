"""Dynamic convolution (Wu et al. 2019): every token predicts the kernel that it is convolved with."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor, nn

from ..core.contract import MixerConfig
from ..parts.convolution.lightweight import Lightweight, LightweightConfig
from ..parts.convolution.sliding import Line, dynamic


class DynamicConv(Lightweight):
    """A depthwise convolution whose softmax-normalised kernels every token predicts from itself, one per head.

        y_i = W_o [ Σ_k softmax_k(W_h v_i)_k v_(i - (K - 1 - k)) ]_h,   v = GLU(W_i x)

    Wu et al. 2019. Attention compares a token with each neighbour; here a token knows only itself, so a kernel is
    linear in what it sees. Centred kernels see v_(i + k - K // 2). Costs O(n·(H·K + d)·d) time over n tokens; remembers
    v of the last K - 1 tokens.
    """

    class Config(LightweightConfig):
        paper: ClassVar[str] = "Wu et al. 2019, Pay Less Attention with Lightweight and Dynamic Convolutions"

        kind: Literal["dynamicconv"] = "dynamicconv"

        def build(self, width: int) -> DynamicConv:
            return DynamicConv(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(kernel=1), cls(kernel=9, heads=2), cls(kernel=4, heads=24, projection="plain")),
                *(cls(kernel=30, projection="none"), cls(softmax=False, dropout=0.5), cls(causal=False)),
                *(cls(kernel=5, causal=False, filled=9), cls(kernel=15, causal=False, filled=20, projection="plain")),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.taps = nn.Linear(width, config.heads * config.kernel, bias=False)

    def slid(self, value: Tensor, line: Line, over: Tensor) -> Tensor:
        kernels = self.normed(self.taps(value).unflatten(2, (self.heads, self.kernel)))  # [B, T, H, K]
        self.kernels(lambda: kernels)
        return dynamic(over, line.spread(kernels))
