"""Marian (Junczys-Dowmunt et al. 2018) and Pegasus: BART's shape with sinusoids and no norm after the embeddings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from ...core.config import Count, Flag, Size
from ...parts.layers.norms import NormConfig
from ...parts.positions import Sinusoid
from ...parts.residual.wiring import PreNorm, WiringConfig
from ..formats.safetensors import Tensors
from ..rename import Computed, Table
from .bart import Bart
from .base import prefix

WAVES = Sinusoid.Config(layout="concatenated")


class Marian(Bart):
    """Marian: post-norm. Source and target may have vocabularies of their own."""

    types: ClassVar[tuple[str, ...]] = ("marian",)
    paper: ClassVar[str] = "Junczys-Dowmunt et al. 2018, arXiv 1804.00344"
    embedding_norm: ClassVar[NormConfig | None] = None

    vocab_size: Size = 58101
    decoder_vocab_size: Size | None = None
    share_encoder_decoder_embeddings: Flag = True
    pad_token_id: Count | None = 58100
    bos_token_id: Count | None = None
    decoder_start_token_id: Count | None = 58100

    @property
    def position(self) -> Sinusoid.Config:
        return WAVES

    def apart(self, tensors: Tensors, prefix: str = "") -> bool:
        return not self.share_encoder_decoder_embeddings or super().apart(tensors, prefix)

    def names(self, tensors: Tensors) -> Table:
        return *super().names(tensors), *self._waves(tensors)

    def _target_vocabulary(self) -> int:
        own = None if self.share_encoder_decoder_embeddings else self.decoder_vocab_size
        return own or self.vocab_size

    def _waves(self, tensors: Tensors) -> Iterator[Computed]:
        """The sinusoids, which some files hold."""
        for side in ("encoder", "decoder"):
            name = f"{prefix(tensors, 'model.')}{side}.embed_positions.weight"
            like = tensors.like(name) if name in tensors else torch.empty(0)
            if like.dim() == 2 and like.shape[1] == self.d_model and self.d_model % 2 == 0:
                waves = WAVES.build(self.d_model).code(torch.arange(like.shape[0]))
                yield Computed(name, f"{side}.embeddings.table.weight", waves.float().to(like.dtype))


class Pegasus(Marian):
    """Pegasus: pre-norm."""

    types: ClassVar[tuple[str, ...]] = ("pegasus",)
    paper: ClassVar[str] = "Zhang et al. 2020, arXiv 1912.08777"
    wiring: ClassVar[WiringConfig] = PreNorm()

    vocab_size: Size = 50265
    pad_token_id: Count | None = 0
    decoder_start_token_id: Count | None = 0
