"""RoFormer (Su et al. 2021): BERT with rotary positions instead of added ones."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ...core.config import Flag, Size
from ...core.contract import MixerConfig
from ...mixers import Attention
from ...parts.inputs.tokens import Narrow
from ...parts.positions import AddedConfig, Rope, frequencies
from ..formats.safetensors import Tensors
from ..rename import Computed, Table, both
from .base import prefix
from .encoders import BERTS, Bertlike
from .found import Found, spans, tagged

BASE = 10000.0
NEAR = 4e-3  # what bfloat16 leaves of a sine


class RoFormer(Bertlike):
    """RoFormer: neighbouring channels of queries and keys turn, those of values if `rotary_value` says so."""

    types: ClassVar[tuple[str, ...]] = ("roformer",)
    paper: ClassVar[str] = "Su et al. 2021, arXiv 2104.09864"
    stem: ClassVar[str] = "roformer."
    decodes: ClassVar[bool] = True

    vocab_size: Size = 50000
    embedding_size: Size | None = None  # as wide as the stream
    max_position_embeddings: Size = 1536
    rotary_value: Flag = False

    @property
    def mixer(self) -> MixerConfig:
        code = Rope.Config(layout="pairs", base=BASE, values=self.rotary_value)
        return Attention.Config(heads=self.num_attention_heads, mask=self.mask, position=code)

    @property
    def position(self) -> AddedConfig | None:
        return None

    @property
    def narrow(self) -> Narrow | None:
        return None if self.embedding_size in (None, self.hidden_size) else Narrow(size=self.embedding_size)

    def names(self, tensors: Tensors) -> Table:
        theirs = prefix(tensors, self.stem)
        waves = f"{theirs}encoder.embed_positions.weight"
        stored = (Computed(waves, "embeddings.table.weight", _waves(tensors[waves])),) if waves in tensors else ()
        return *super().names(tensors), *both(f"{theirs}embeddings_project", "embeddings.narrow"), *stored

    def heads(self, tensors: Tensors) -> tuple[Found, ...]:
        classified = "classifier.out_proj" if "classifier.dense.weight" in tensors else None
        return (
            *self.masked(tensors, BERTS, self.hidden_act),
            *self.pooled(tensors, "classifier.dense", classified, self.hidden_act),
            *tagged(tensors, "classifier"),
            *spans(tensors),
        )


def _waves(stored: Tensor) -> Tensor:
    """The sines and cosines that a file holds: as they are stored, if they are those that heed computes."""
    stored = stored.flatten(1) if stored.dim() > 1 else stored[None]
    place, size = torch.arange(stored.shape[0]), stored.shape[-1]
    angle = place.double()[:, None] * torch.tensor(frequencies(size // 2, BASE), dtype=torch.float64)
    exact = torch.cat((angle.sin(), angle.cos()), -1)
    near = exact.shape == stored.shape and torch.allclose(stored.double(), exact, rtol=0.0, atol=NEAR)
    return stored if near else exact
