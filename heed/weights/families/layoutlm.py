"""LayoutLM (Xu et al. 2020): BERT over tokens that know where on a page they stand."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Size
from ...models import Encoder
from ..formats.safetensors import Tensors
from ..rename import Same, Table
from .base import prefix
from .bert import Bert


class LayoutLM(Bert):
    """LayoutLM: six more embeddings per token, of the edges, the height and the width of its box."""

    types: ClassVar[tuple[str, ...]] = ("layoutlm",)
    paper: ClassVar[str] = "Xu et al. 2020, arXiv 1912.13318"
    stem: ClassVar[str] = "layoutlm."
    decodes: ClassVar[bool] = False

    max_2d_position_embeddings: Size = 1024

    def encoder(self, tensors: Tensors) -> Encoder.Config:
        return super().encoder(tensors).model_copy(update={"boxes": self.max_2d_position_embeddings})

    def names(self, tensors: Tensors) -> Table:
        theirs = f"{prefix(tensors, self.stem)}embeddings"
        tables = {"x": "x", "y": "y", "h": "height", "w": "width"}
        boxes = (
            Same(f"{theirs}.{name}_position_embeddings.weight", f"embeddings.box.{ours}.weight")
            for name, ours in tables.items()
        )
        return *super().names(tensors), *boxes
