"""YOSO (Zeng et al. 2021): BERT whose attention is the chance to fall into the same bucket."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Count, Flag, Size
from ...core.contract import MixerConfig
from ...mixers import Yoso as YosoMixer
from .nystromformer import Chosen


class Yoso(Chosen):
    """YOSO. With `use_expectation` chances are computed; without, they are drawn: heed draws them from a seed."""

    types: ClassVar[tuple[str, ...]] = ("yoso",)
    paper: ClassVar[str] = "Zeng et al. 2021, arXiv 2111.09714"
    stem: ClassVar[str] = "yoso."

    vocab_size: Size = 50265
    max_position_embeddings: Size = 4096
    type_vocab_size: Count = 1
    use_expectation: Flag = True
    hash_code_len: Size = 9
    num_hash: Size = 64
    conv_window: Count | None = None

    @property
    def mixer(self) -> MixerConfig:
        return YosoMixer.Config(
            heads=self.num_attention_heads,
            bits=self.hash_code_len,
            hashes=None if self.use_expectation else self.num_hash,
            kernel=self.conv_window or 0,
        )
