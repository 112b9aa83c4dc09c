"""Longformer (Beltagy et al. 2020): RoBERTa with a sliding window, and a few tokens with global attention."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Count, Size
from ...core.errors import ConfigError
from ...mixers import Longformer as Mixer
from ...models import Encoder
from ..formats.safetensors import Tensors
from ..rename import Table, both
from .base import prefix
from .roberta import Roberta
from .skeleton import tiled

PROJECTIONS = ("query_global", "key_global", "value_global")


class Longformer(Roberta):
    """Longformer with any of its heads or none. The classifier of texts marks the first token of every text.

    Other tokens are marked by the caller (`where.give(marked=...)`). A replay marks the question of a span head
    as the reference does: all that stands before the first of three `sep_token_id`.
    """

    types: ClassVar[tuple[str, ...]] = ("longformer",)
    paper: ClassVar[str] = "Beltagy et al. 2020, arXiv 2004.05150"
    decodes: ClassVar[bool] = False
    stem: ClassVar[str] = "longformer."

    vocab_size: Size = 30522
    attention_window: Size | tuple[Size, ...] = 512
    sep_token_id: Count | None = 2

    @property
    def windows(self) -> tuple[int, ...]:
        """The window of every layer."""
        given = self.attention_window
        windows = (given,) * self.num_hidden_layers if isinstance(given, int) else given
        if len(windows) != self.num_hidden_layers:
            raise ConfigError(f"attention_window names {len(windows)} layers, but there are {self.num_hidden_layers}")
        return windows

    def encoder(self, tensors: Tensors) -> Encoder.Config:
        marks = (0,) if marks_first(tensors) else ()
        heads = self.num_attention_heads
        mixers = tuple(Mixer.Config(heads=heads, window=window, marks=marks) for window in self.windows)
        return super().encoder(tensors).model_copy(update={"mixer": tiled(mixers)})

    def names(self, tensors: Tensors) -> Table:
        layer, ours = f"{prefix(tensors, self.stem)}encoder.layer.{{i}}.attention.self", "stack.blocks.{i}.mixer"
        further = (rule for what in PROJECTIONS for rule in both(f"{layer}.{what}", f"{ours}.{what}"))
        return *super().names(tensors), *further


def marks_first(tensors: Tensors) -> bool:
    """Whether this is a classifier of texts, which marks the first token by itself."""
    return "classifier.dense.weight" in tensors
