"""Fourier mixing of FNet (Lee-Thorp et al. 2021): a Fourier transform in the place of attention, without weights."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from ..core.contract import Mixer, MixerConfig, Reach, Where
from ..core.spec import Spec

Nothing: TypeAlias = "tuple[()]"


class Fourier(Mixer[Nothing]):
    """A Fourier transform over channels and tokens, of which the real part is kept; there are no weights.

        y_kc = Re Σ_j Σ_b x_jb exp( -2πi ( j·k / n + b·c / D ) )

    Lee-Thorp et al. 2021 (FNet). n is the length of the row itself, so that a text means the same beside any other: its
    padding is not transformed. There is nothing to learn and nothing to look at. Costs O(n·D·log(n·D)) time and O(n·D)
    memory over n tokens; looks ahead, so it remembers nothing.
    """

    class Config(MixerConfig):
        paper: ClassVar[str] = "Lee-Thorp et al. 2021, FNet: Mixing Tokens with Fourier Transforms, arXiv 2105.03824"

        kind: Literal["fourier"] = "fourier"

        def build(self, width: int) -> Fourier:
            return Fourier()

    def __init__(self) -> None:
        super().__init__()
        self.reach = Reach(None, None)

    def spec(self) -> Spec:
        return ()

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        if not where.span.padded:
            return transformed(x), state
        lengths = where.real.sum(1)
        y = torch.zeros_like(x)
        for length in {*lengths.tolist()}:
            if length:  # rows of one length together
                rows = (lengths == length).nonzero().flatten()
                y[rows, :length] = transformed(x[rows, :length])
        return y, state


def transformed(x: Tensor) -> Tensor:
    """The real part of the transform over tokens and channels, from half of its channels. [B, N, D]

    That of a real signal at (-k, -c) is the conjugate of that at (k, c), so the other half holds nothing new.
    """
    width = x.shape[2]
    wide = x.to(torch.promote_types(x.dtype, torch.float32))  # there is no transform of shorter numbers everywhere
    half = torch.fft.fft(torch.fft.rfft(wide, dim=2), dim=1).real  # channels 0 .. D/2
    mirrored = torch.cat((half[:, :1], half[:, 1:].flip(1)), 1)[..., 1 : (width + 1) // 2].flip(2)
    return torch.cat((half, mirrored), 2).to(x.dtype)
