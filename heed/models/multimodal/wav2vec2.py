"""wav2vec 2.0 (Baevski et al. 2020): an encoder over samples, of which convolutions make frames.

In a recipe it is a table of few numbers: kind = "wav2vec2", width = 128, depth = 4; or one of the published models:
kind = "wav2vec2", size = "base".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from ...core.config import Flag, Parts, Share, Size
from ...mixers import Attention
from ...parts.feedforward import FeedForward
from ...parts.inputs.audio import ConvolutionNorm, Waves
from ...parts.layers.norms import LayerNorm
from ...parts.masks import Whole
from ...parts.residual.wiring import PostNorm, PreNorm
from ..plan import Published, published
from .audio import AudioEncoder


class Wav2Vec2(Published):
    """A wav2vec 2.0 in few numbers, or one of the two that were published: base or large (Baevski 2020, sec. 4.2).

        z = convolutions of the samples, one frame for 320;   x = W norm(z);   x ← norm(x + act(conv x));   blocks

    Without a head they have 94 and 315 million parameters. `stable` puts norms before the parts (XLS-R, HuBERT large).
    Costs O(n²·d) over n frames, as plain attention does.
    """

    paper: ClassVar[str] = "Baevski et al. 2020, wav2vec 2.0: A Framework for Self-Supervised Learning of Speech"
    tokens: ClassVar[int] = 32

    kind: Literal["wav2vec2"] = "wav2vec2"
    size: Literal["base", "large"] | None = None  # instead of width, depth and heads
    width: Size = 128
    depth: Parts = 4
    heads: Size = 4
    channels: Size = 512  # of each convolution
    kernels: tuple[Size, ...] = (10, 3, 3, 3, 3, 2, 2)  # samples or frames that each convolution sees
    strides: tuple[Size, ...] = (5, 2, 2, 2, 2, 2, 2)  # of each convolution
    between: ConvolutionNorm = "group"  # over the time after the first convolution, or over channels after each
    around: Size = 128  # kernel of the convolution that tells the position
    groups: Size = 16  # of it
    stable: Flag = False  # norms stand before attention and feed-forward, not after them
    dropout: Share = 0.0

    _sizes = published(
        base={"width": 768, "depth": 12, "heads": 12},
        large={"width": 1024, "depth": 24, "heads": 16},
    )

    def sized(self, vocabulary: int) -> AudioEncoder.Config:
        embeddings = Waves.Config(
            channels=(self.channels,) * len(self.kernels),
            kernels=self.kernels,
            strides=self.strides,
            between=self.between,
            inner=LayerNorm(),
            around=self.around,
            groups=self.groups,
            norm=None if self.stable else LayerNorm(),
        )
        return AudioEncoder.Config(
            embeddings=embeddings,
            width=self.width,
            depth=self.depth,
            mixer=Attention.Config(heads=self.heads, mask=Whole(), dropout=self.dropout),
            feedforward=FeedForward.Config(hidden=4 * self.width, activation="gelu", dropout=self.dropout),
            norm=LayerNorm(),
            wiring=PreNorm() if self.stable else PostNorm(),
            dropout=self.dropout,
            vocabulary=vocabulary,
        )
