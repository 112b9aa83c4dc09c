"""Mistral (Jiang et al. 2023): Llama with a window."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Size
from ...parts.masks import Mask
from .skeleton import Skeleton, window


class Mistral(Skeleton):
    """Mistral 7B, and what was trained in its shape. Later ones see everything: their `sliding_window` is null."""

    types: ClassVar[tuple[str, ...]] = ("mistral",)
    paper: ClassVar[str] = "Jiang et al. 2023, arXiv 2310.06825"

    intermediate_size: Size = 14336
    num_key_value_heads: Size | None = 8
    max_position_embeddings: Size = 4096 * 32
    sliding_window: Size | None = 4096

    def mask(self, layer: int) -> Mask:
        return window(self.sliding_window)
