"""Whisper (Radford et al. 2022): an encoder over a log-mel spectrogram, and a decoder that writes what is said.

In a recipe it is a table of few numbers: kind = "whisper", width = 128, depth = 2; or one of the published models:
kind = "whisper", size = "tiny".
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ...core.config import Parts, Share, Size
from ...mixers import Attention, Cross
from ...parts.feedforward import FeedForward
from ...parts.inputs.audio import Mels
from ...parts.masks import Whole
from ...parts.positions import Learned
from ..decoder import Decoder
from ..plan import Published, published
from ..seq2seq import Seq2seq
from .audio import AudioEncoder


class Whisper(Published):
    """A Whisper in few numbers, or one that was published: tiny, base, small, medium or large (Radford 2022, table 1).

        x = gelu(conv(gelu(conv mel))) + P;   x ← x + part(norm(x));   p(y_t) = softmax(E norm(h_t)), h looks at x

    The second convolution has a stride of two. With Whisper's 51,865 tokens they have 38, 73, 242, 764 and 1,543
    million parameters. Costs O(n²·d) over n frames, as plain attention does.
    """

    paper: ClassVar[str] = "Radford et al. 2022, Robust Speech Recognition via Large-Scale Weak Supervision"
    tokens: ClassVar[int] = 51865

    kind: Literal["whisper"] = "whisper"
    size: Literal["tiny", "base", "small", "medium", "large"] | None = None  # instead of width, depth and heads
    width: Size = 128
    depth: Parts = 2  # of each side
    heads: Size = 4
    bins: Size = 80  # of the mel spectrogram
    frames: Size = 1500  # of the stream, half of those of the spectrogram, at most
    longest: Size = 448  # tokens of a text, at most
    dropout: Share = 0.0

    _sizes = published(
        tiny={"width": 384, "depth": 4, "heads": 6},
        base={"width": 512, "depth": 6, "heads": 8},
        small={"width": 768, "depth": 12, "heads": 12},
        medium={"width": 1024, "depth": 24, "heads": 16},
        large={"width": 1280, "depth": 32, "heads": 20},
    )

    def sized(self, vocabulary: int) -> Seq2seq.Config:
        common: dict[str, Any] = {
            "width": self.width,
            "depth": self.depth,
            "feedforward": FeedForward.Config(hidden=4 * self.width, activation="gelu", dropout=self.dropout),
            "dropout": self.dropout,
        }
        heads: dict[str, Any] = {"heads": self.heads, "key_bias": False, "dropout": self.dropout}
        encoder = AudioEncoder.Config(
            embeddings=Mels.Config(bins=self.bins, position=Learned.Config(length=self.frames)),
            mixer=Attention.Config(**heads, mask=Whole()),
            **common,
        )
        decoder = Decoder.Config(
            vocabulary=vocabulary,
            mixer=Attention.Config(**heads),
            cross=Cross.Config(**heads),
            position=Learned.Config(length=self.longest),
            **common,
        )
        return Seq2seq.Config(encoder=encoder, decoder=decoder)
