"""MPT (MosaicML 2023): ALiBi, no biases anywhere, queries, keys and values perhaps cut off."""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict, Field

from ...core.config import Flag, Number, Positive, Size, Text, Theirs
from ...core.errors import ConfigError
from ...mixers import Attention
from ...models import Decoder
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import LayerNorm
from ...parts.positions import Alibi
from ..formats.safetensors import Tensors
from ..rename import Fused, Same, Table
from .decoders import Generative


class Looking(Theirs):
    """attn_config. What it claims beyond this, such as qk_ln, shows in the tensors if it is so."""

    clip_qkv: Number | None = None  # 0 does not cut either
    softmax_scale: Positive | None = None
    alibi: Flag = True
    rope: Flag = False
    prefix_lm: Flag = False


class Mpt(Generative):
    """MPT 7B, 30B and what was trained in their shape, as the reference library computes it."""

    types: ClassVar[tuple[str, ...]] = ("mpt",)
    paper: ClassVar[str] = "MosaicML 2023, Introducing MPT-7B: A New Standard for Open-Source, Commercially Usable LLMs"
    stem: ClassVar[str] = "transformer."

    model_config = ConfigDict(populate_by_name=True)  # sizes go by either name

    vocab_size: Size = 50368
    d_model: Size = Field(2048, validation_alias="hidden_size")
    n_layers: Size = Field(24, validation_alias="num_hidden_layers")
    n_heads: Size = Field(16, validation_alias="num_attention_heads")
    layer_norm_epsilon: Positive = 1e-5
    norm_type: Text = "low_precision_layernorm"
    learned_pos_emb: Flag = True
    attn_config: Looking | None = None
    logit_scale: Number | Text | None = None
    tie_word_embeddings: Flag = True

    @property
    def layers(self) -> int:
        return self.n_layers

    def ours(self, tensors: Tensors) -> Decoder.Config:
        looking = self.attn_config or Looking()
        self._must_be_known(looking)
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.d_model,
            depth=self.n_layers,
            mixer=Attention.Config(
                heads=self.n_heads,
                bias=False,
                scale=looking.softmax_scale,
                clip=looking.clip_qkv or None,
                position=Alibi.Config(),
            ),
            feedforward=FeedForward.Config(hidden=self._hidden(tensors), activation="gelu", bias=False),
            norm=LayerNorm(eps=self.layer_norm_epsilon, bias=False),
            tied=self.tie_word_embeddings or self.headless(tensors),
            heads=self.asked(tensors),
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = self.prefix(tensors)
        layer, block = f"{theirs}blocks.{{i}}", "stack.blocks.{i}"
        parts = tuple(f"{block}.mixer.{what}.weight" for what in ("query", "key", "value"))
        return (
            Same(f"{theirs}wte.weight", "embeddings.table.weight"),
            Fused(f"{layer}.attn.Wqkv.weight", parts),
            Same(f"{layer}.attn.out_proj.weight", f"{block}.mixer.out.weight"),
            Same(f"{layer}.ffn.up_proj.weight", f"{block}.feedforward.up.weight"),
            Same(f"{layer}.ffn.down_proj.weight", f"{block}.feedforward.down.weight"),
            Same(f"{layer}.norm_1.weight", f"{block}.wiring.norms.0.weight"),
            Same(f"{layer}.norm_2.weight", f"{block}.wiring.norms.1.weight"),
            Same(f"{theirs}norm_f.weight", "stack.ends.final.weight"),
            Same("lm_head.weight", "head.weight"),
            *self.answers(tensors),
        )

    def _hidden(self, tensors: Tensors) -> int | None:
        """Hidden channels. The reference has four times the width, whatever expansion_ratio says: the tensor knows."""
        up = f"{self.prefix(tensors)}blocks.0.ffn.up_proj.weight"
        shape = tensors.like(up).shape if up in tensors else ()
        return shape[0] if len(shape) == 2 else None

    def _must_be_known(self, looking: Looking) -> None:
        """Refuse what changes the numbers but leaves no trace in the tensors, and what the reference passes over."""
        for strange, what in (
            (looking.prefix_lm, "prefix_lm, whose prompt looks both ways"),
            (looking.rope, "rope"),
            (not looking.alibi and not self.learned_pos_emb, "no position code at all"),
            (self.logit_scale is not None, f"a logit_scale of {self.logit_scale}"),
            ("rms" in self.norm_type, f"the norm {self.norm_type}"),
        ):
            if strange:
                raise ConfigError(f"it has {what}: heed reads MPT with ALiBi, layer norms and causal attention only")
