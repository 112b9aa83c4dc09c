"""Families of encoder-decoders: what their targets begin with, and what the decoder is fed to be taught labels."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ...core.config import Count, Flag
from ...core.errors import WeightsError
from ...models import Decoder
from ...parts.outputs.loss import NO_LABEL
from ..formats.safetensors import Tensors
from .base import Family


class SecondHalf(ABC):
    """A family whose models may be the decoder of an encoder-decoder that was put together of two."""

    @abstractmethod
    def second_half(self, tensors: Tensors) -> Decoder.Config:
        """As such a decoder, with a cross-attention."""


class TwoSided(Family):
    """A family that reads one sequence and writes another, which begins with a token of its own."""

    pad_token_id: Count | None = None
    bos_token_id: Count | None = None
    decoder_start_token_id: Count | None = None
    tie_word_embeddings: Flag = True

    @property
    def start(self) -> int:
        """The token that every target begins with."""
        start = self.bos_token_id if self.decoder_start_token_id is None else self.decoder_start_token_id
        if start is None:
            raise WeightsError("its config names no decoder_start_token_id, the token that every target begins with")
        return start

    @property
    def padding(self) -> int:
        """The token that stands where there is none."""
        if self.pad_token_id is None:
            raise WeightsError("its config names no pad_token_id, the token to read where there is no label")
        return self.pad_token_id

    def apart(self, tensors: Tensors, prefix: str = "") -> bool:
        """Whether source and target have tables of their own: where nothing is tied and both are stored."""
        tables = {f"{prefix}{side}.embed_tokens.weight" for side in ("encoder", "decoder")}
        return not self.tie_word_embeddings and tables <= tensors.keys()

    def shifted(self, labels: Tensor) -> Tensor:
        """What the decoder reads while it is asked for these labels: the start, then all of them but the last."""
        return torch.cat((torch.full_like(labels[:, :1], self.start), self.filled(labels)[:, :-1]), 1)

    def filled(self, labels: Tensor) -> Tensor:
        """Padding where there is no label."""
        return labels.masked_fill(labels == NO_LABEL, self.padding)
