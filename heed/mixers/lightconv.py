"""Lightweight convolution (Wu et al. 2019): few softmax-normalised kernels, each shared by many channels."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from ..core.contract import MixerConfig
from ..parts.convolution.lightweight import Lightweight, LightweightConfig, taps
from ..parts.convolution.sliding import Line, depthwise


class LightConv(Lightweight):
    """A depthwise convolution with softmax-normalised kernels that the channels of a head share, between two
    projections.

        y_i = W_o [ Σ_k softmax_k(w_h)_k v_(i - (K - 1 - k)) ]_h,   v = GLU(W_i x)

    Wu et al. 2019. Centred kernels see v_(i + k - K // 2). Costs O(n·(K + d)·d) time over n tokens with H·K numbers for
    all kernels; remembers v of the last K - 1 tokens.
    """

    class Config(LightweightConfig):
        paper: ClassVar[str] = "Wu et al. 2019, Pay Less Attention with Lightweight and Dynamic Convolutions"

        kind: Literal["lightconv"] = "lightconv"

        def build(self, width: int) -> LightConv:
            return LightConv(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return (
                *(cls(), cls(kernel=1), cls(kernel=9, heads=2), cls(kernel=4, heads=24, projection="plain")),
                *(cls(kernel=30, projection="none"), cls(softmax=False, dropout=0.5), cls(causal=False)),
                *(cls(kernel=5, causal=False, filled=9), cls(kernel=15, causal=False, filled=20, projection="plain")),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__(config, width)
        self.taps = taps(config.heads, config.kernel)

    def slid(self, value: Tensor, line: Line, over: Tensor) -> Tensor:
        kernels = self.normed(self.taps)
        self.kernels(lambda: kernels)
        return depthwise(over, kernels)
