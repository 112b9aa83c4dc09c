"""Vision Transformer (Dosovitskiy et al. 2021): a pre-norm encoder over the patches of an image, and a classifier.

In a recipe it is a table of few numbers: kind = "vit", image = [28, 28], patch = [7, 7]; or one of the published
models: kind = "vit", size = "base".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from ...core.config import Parts, Share, Size
from ...mixers import Attention
from ...parts.feedforward import FeedForward
from ...parts.inputs.patches import PatchEmbeddings
from ...parts.inputs.stem import Stem
from ...parts.layers.norms import LayerNorm
from ...parts.masks import Whole
from ...parts.outputs.heads import Pooled
from ..multimodal.vision import VisionEncoder
from ..plan import Published, published


class ViT(Published):
    """A ViT in few numbers, or one of those that were published: tiny, small, base or large (Dosovitskiy 2021).

        x = [mark; W·patch] + P[place];   x ← x + part(norm(x)), attention and feed-forward in turn;   logits = W' x_0

    Tiny and small are DeiT's (Touvron et al. 2021). With patches of 16 × 16 of an image of 224 × 224 and 1,000 classes
    they have 6, 22, 87 and 304 million parameters. Costs O(n²·d) over n patches, as plain attention does.
    """

    paper: ClassVar[str] = "Dosovitskiy et al. 2021, An Image is Worth 16x16 Words, arXiv 2010.11929"
    tokens: ClassVar[int] = 0  # an image has no vocabulary

    kind: Literal["vit"] = "vit"
    size: Literal["tiny", "small", "base", "large"] | None = None  # instead of width, depth and heads
    width: Size = 128
    depth: Parts = 4
    heads: Size = 4
    image: tuple[Size, Size] = (224, 224)  # height and width in pixels
    patch: tuple[Size, Size] = (16, 16)  # height and width of a patch in pixels
    channels: Size = 3  # of a pixel
    labels: Size = 1000  # classes
    stem: Stem | None = None  # convolutions before the patches are cut: for little data (Xiao et al. 2021)
    dropout: Share = 0.0

    _sizes = published(
        tiny={"width": 192, "depth": 12, "heads": 3},
        small={"width": 384, "depth": 12, "heads": 6},
        base={"width": 768, "depth": 12, "heads": 12},
        large={"width": 1024, "depth": 24, "heads": 16},
    )

    def sized(self, vocabulary: int) -> VisionEncoder.Config:
        return VisionEncoder.Config(
            embeddings=PatchEmbeddings.Config(
                image=self.image, patch=self.patch, channels=self.channels, stem=self.stem
            ),
            width=self.width,
            depth=self.depth,
            mixer=Attention.Config(heads=self.heads, mask=Whole(), dropout=self.dropout),
            feedforward=FeedForward.Config(hidden=4 * self.width, activation="gelu"),
            norm=LayerNorm(eps=1e-6),
            dropout=self.dropout,
            heads=Pooled.Config(labels=self.labels),
        )
