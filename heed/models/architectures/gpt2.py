"""GPT-2 (Radford et al. 2019): a pre-norm decoder with learned positions and a tied head.

In a recipe it is a table of few numbers: kind = "gpt2", width = 256, depth = 6; or one of the published models:
kind = "gpt2", size = "medium".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from ...core.config import Parts, Share, Size
from ...mixers import Attention
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import LayerNorm
from ...parts.positions import Learned
from ..decoder import Decoder
from ..plan import Published, published


class GPT2(Published):
    """A GPT-2 in few numbers, or one of the four that were published: small, medium, large or xl (Radford 2019).

        x = E[token] + P[position];   x ← x + part(norm(x)), attention and feed-forward in turn;   logits = E norm(x)

    With GPT-2's vocabulary of 50,257 tokens they have 124, 355, 774 and 1558 million parameters. Costs O(n²·d), as
    plain attention does.
    """

    paper: ClassVar[str] = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners"

    tokens: ClassVar[int] = 50257

    kind: Literal["gpt2"] = "gpt2"
    size: Literal["small", "medium", "large", "xl"] | None = None  # instead of width, depth and heads
    width: Size = 128
    depth: Parts = 4
    heads: Size = 4
    length: Size = 1024  # positions
    dropout: Share = 0.1

    _sizes = published(
        small={"width": 768, "depth": 12, "heads": 12},
        medium={"width": 1024, "depth": 24, "heads": 16},
        large={"width": 1280, "depth": 36, "heads": 20},
        xl={"width": 1600, "depth": 48, "heads": 25},
    )

    def sized(self, vocabulary: int) -> Decoder.Config:
        return Decoder.Config(
            vocabulary=vocabulary,
            width=self.width,
            depth=self.depth,
            mixer=Attention.Config(heads=self.heads, dropout=self.dropout),
            feedforward=FeedForward.Config(activation="gelu_tanh"),
            norm=LayerNorm(eps=1e-5),
            dropout=self.dropout,
            position=Learned.Config(length=self.length),
        )
