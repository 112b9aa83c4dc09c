"""T5 (Raffel et al. 2020): an encoder-decoder with relative position buckets, RMS norms and no biases.

In a recipe it is a table of few numbers: kind = "t5", width = 256, depth = 4; or one of the published models:
kind = "t5", size = "base".
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from ...core.config import Parts, Share, Size
from ...mixers import Attention, Cross
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import RMSNorm
from ...parts.masks import Causal, Whole
from ...parts.positions import Buckets
from ..decoder import Decoder
from ..encoder import Encoder
from ..plan import Published, published
from ..seq2seq import Seq2seq


class T5(Published):
    """A T5 in few numbers, or one of the five that were published: small, base, large, 3b or 11b (Raffel 2020).

        y_i = W_o Σ_j softmax_j(q_i·k_j + b[bucket(j - i)]) v_j;   x ← x + part(norm(x));   logits = E norm(x) / √width

    The layers of a side share one table b; source, target and head share one table E of embeddings. With T5's 32,128
    tokens the smaller three have 60, 223 and 738 million parameters. Costs O(n²·d), as plain attention does.
    """

    paper: ClassVar[str] = "Raffel et al. 2020, Exploring the Limits of Transfer Learning, arXiv 1910.10683"

    tokens: ClassVar[int] = 32128

    kind: Literal["t5"] = "t5"
    size: Literal["small", "base", "large", "3b", "11b"] | None = None  # instead of the five numbers below
    width: Size = 128
    depth: Parts = 2  # of each side
    heads: Size = 4
    head_size: Size = 32  # channels of a head
    hidden: Size = 256  # of the feed-forward
    buckets: Size = 32  # of distances that are told apart
    distance: Size = 128  # from which on all are alike
    dropout: Share = 0.1

    _sizes = published(
        **{
            "small": {"width": 512, "depth": 6, "heads": 8, "head_size": 64, "hidden": 2048},
            "base": {"width": 768, "depth": 12, "heads": 12, "head_size": 64, "hidden": 3072},
            "large": {"width": 1024, "depth": 24, "heads": 16, "head_size": 64, "hidden": 4096},
            "3b": {"width": 1024, "depth": 24, "heads": 32, "head_size": 128, "hidden": 16384},
            "11b": {"width": 1024, "depth": 24, "heads": 128, "head_size": 128, "hidden": 65536},
        }
    )

    def sized(self, vocabulary: int) -> Seq2seq.Config:
        common: dict[str, Any] = {
            "vocabulary": vocabulary,
            "width": self.width,
            "depth": self.depth,
            "feedforward": FeedForward.Config(hidden=self.hidden, bias=False, dropout=self.dropout),
            "norm": RMSNorm(eps=1e-6),
            "dropout": self.dropout,
            "one_position": True,
        }
        heads: dict[str, Any] = {"heads": self.heads, "head_size": self.head_size, "bias": False, "scale": 1.0}
        heads["dropout"] = self.dropout
        back, both = (
            Buckets.Config(buckets=self.buckets, distance=self.distance, both_ways=both_ways)
            for both_ways in (False, True)
        )
        encoder = Encoder.Config(mixer=Attention.Config(**heads, mask=Whole(), position=both), **common)
        decoder = Decoder.Config(
            mixer=Attention.Config(**heads, mask=Causal(), position=back),
            cross=Cross.Config(**heads),
            head_scale=self.width**-0.5,
            **common,
        )
        return Seq2seq.Config(encoder=encoder, decoder=decoder, shared=True)
