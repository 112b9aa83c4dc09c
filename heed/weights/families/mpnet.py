"""MPNet (Song et al. 2020): BERT with RoBERTa's positions and, beside them, T5's buckets of distances."""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Count, Size
from ...core.contract import MixerConfig
from ...core.errors import ConfigError
from ...mixers import Attention
from ...models import Encoder
from ...parts.masks import Whole
from ...parts.positions import Buckets
from ..formats.safetensors import Tensors
from ..rename import Same, Table, both
from .base import prefix
from .encoders import embedded, norms
from .roberta import Roberta

BUCKETS, DISTANCE = 32, 128  # their code knows no others


class MPNet(Roberta):
    """MPNet, which many sentence embeddings are made with. Its padding id is 1, whatever the config says."""

    types: ClassVar[tuple[str, ...]] = ("mpnet",)
    paper: ClassVar[str] = "Song et al. 2020, arXiv 2004.09297"
    stem: ClassVar[str] = "mpnet."
    decodes: ClassVar[bool] = False

    vocab_size: Size = 30527
    type_vocab_size: Count = 0
    relative_attention_num_buckets: Size = BUCKETS

    @property
    def uncounted(self) -> int:
        return 1

    @property
    def mixer(self) -> MixerConfig:
        code = Buckets.Config(buckets=BUCKETS, distance=DISTANCE, both_ways=True)
        return Attention.Config(heads=self.num_attention_heads, mask=Whole(), position=code)

    def encoder(self, tensors: Tensors) -> Encoder.Config:
        if self.relative_attention_num_buckets != BUCKETS:
            raise ConfigError(f"relative_attention_num_buckets is {self.relative_attention_num_buckets}, not {BUCKETS}")
        return super().encoder(tensors).model_copy(update={"one_position": True})

    def names(self, tensors: Tensors) -> Table:
        theirs = prefix(tensors, self.stem)
        layer, block = f"{theirs}encoder.layer.{{i}}", "stack.blocks.{i}"
        return (
            *embedded(f"{theirs}embeddings"),
            Same(f"{theirs}encoder.relative_attention_bias.weight", "stack.blocks.0.mixer.position.table"),
            *both(f"{layer}.attention.attn.q", f"{block}.mixer.query"),
            *both(f"{layer}.attention.attn.k", f"{block}.mixer.key"),
            *both(f"{layer}.attention.attn.v", f"{block}.mixer.value"),
            *both(f"{layer}.attention.attn.o", f"{block}.mixer.out"),
            *norms(f"{layer}.attention.LayerNorm", f"{block}.wiring.norms.0"),
            *both(f"{layer}.intermediate.dense", f"{block}.feedforward.up"),
            *both(f"{layer}.output.dense", f"{block}.feedforward.down"),
            *norms(f"{layer}.output.LayerNorm", f"{block}.wiring.norms.1"),
            *self.answers(tensors),
        )
