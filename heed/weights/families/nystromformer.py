"""Nyströmformer (Xiong et al. 2021): BERT whose attention goes by way of landmarks."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Count, Flag, Positive, Size
from ...core.contract import MixerConfig
from ...mixers import Nystrom
from ...parts.positions import AddedConfig, Learned
from ..formats.safetensors import Tensors
from ..rename import Same, Table
from .base import Act, prefix
from .encoders import BERTS, Bertlike
from .found import Found, spans, tagged

OFFSET = 2  # rows before that of position 0


class Chosen(Bertlike):
    """What Nyströmformer and YOSO share: positions after two idle rows, a convolution, the heads of RoFormer."""

    @property
    def position(self) -> AddedConfig | None:
        return Learned.Config(length=self.max_position_embeddings, offset=OFFSET)

    def names(self, tensors: Tensors) -> Table:
        layer = f"{prefix(tensors, self.stem)}encoder.layer.{{i}}.attention.self.conv.weight"
        return *super().names(tensors), Same(layer, "stack.blocks.{i}.mixer.convolution.weight")

    def heads(self, tensors: Tensors) -> tuple[Found, ...]:
        classified = "classifier.out_proj" if "classifier.dense.weight" in tensors else None
        chosen = "pre_classifier.weight" in tensors  # one of several answers
        return (
            *self.masked(tensors, BERTS, self.hidden_act),
            *(self.pooled(tensors, "pre_classifier", "classifier", "relu") if chosen else ()),
            *self.pooled(tensors, "classifier.dense", classified, self.hidden_act),
            *(() if chosen else tagged(tensors, "classifier")),
            *spans(tensors),
        )


class Nystromformer(Chosen):
    """Nyströmformer. Where there are as many landmarks as tokens, its attention is exact, for texts of any length.

    The reference divides its first guess of an inverse by the largest column sum of a whole batch; loaded, a row is
    divided by its own, as there in a batch of one.
    """

    types: ClassVar[tuple[str, ...]] = ("nystromformer",)
    paper: ClassVar[str] = "Xiong et al. 2021, arXiv 2102.03902"
    stem: ClassVar[str] = "nystromformer."

    vocab_size: Size = 30000
    hidden_act: Act = "gelu_tanh"
    max_position_embeddings: Size = 510
    layer_norm_eps: Positive = 1e-5
    segment_means_seq_len: Size = 64
    num_landmarks: Size = 64
    conv_kernel_size: Count | None = 65
    inv_coeff_init_option: Flag = False

    @property
    def exact(self) -> bool:
        """Whether every token is a landmark."""
        return self.num_landmarks == self.segment_means_seq_len

    @property
    def mixer(self) -> MixerConfig:
        return Nystrom.Config(
            heads=self.num_attention_heads,
            landmarks=max(self.num_landmarks, self.max_position_embeddings) if self.exact else self.num_landmarks,
            kernel=self.conv_kernel_size or 0,
            coefficient="head" if self.inv_coeff_init_option else "row",
        )
