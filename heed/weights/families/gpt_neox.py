"""GPT-NeoX (Black et al. 2022): attention and feed-forward side by side, each below its own norm; part of a head turns.

Pythia and RedPajama are of this shape, too.
"""

from __future__ import annotations

from typing import ClassVar

from ...core.config import Flag, Fraction, Positive, Size
from ...core.errors import ConfigError
from ...mixers import Attention
from ...models import Decoder
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import LayerNorm
from ...parts.positions import AnyRelative, NoPosition
from ...parts.positions.waves import Base
from ...parts.residual.wiring import Parallel, PreNorm
from ..formats.safetensors import Tensors
from ..rename import Ignored, Same, Table, both
from ..rules import grouped
from .base import Act
from .rope import RopeParameters, Rotary


class GPTNeoX(Rotary):
    """GPT-NeoX 20B, Pythia and what was trained in their shape."""

    types: ClassVar[tuple[str, ...]] = ("gpt_neox",)
    paper: ClassVar[str] = "Black et al. 2022, GPT-NeoX-20B, arXiv 2204.06745"
    stem: ClassVar[str] = "gpt_neox."

    vocab_size: Size = 50432
    hidden_size: Size = 6144
    num_hidden_layers: Size = 44
    num_attention_heads: Size = 64
    intermediate_size: Size = 24576
    hidden_act: Act = "gelu"
    layer_norm_eps: Positive = 1e-5
    rotary_pct: Fraction = 0.25
    rotary_emb_base: Base = 10000.0
    use_parallel_residual: Flag = True
    attention_bias: Flag = True
    tie_word_embeddings: Flag = False

    @property
    def layers(self) -> int:
        return self.num_hidden_layers

    def ours(self, tensors: Tensors) -> Decoder.Config:
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.hidden_size,
            depth=self.num_hidden_layers,
            mixer=Attention.Config(heads=self.num_attention_heads, bias=self.attention_bias, position=self._position),
            feedforward=FeedForward.Config(hidden=self.intermediate_size, activation=self.hidden_act),
            norm=LayerNorm(eps=self.layer_norm_eps),
            wiring=Parallel(own_norms=True) if self.use_parallel_residual else PreNorm(),
            tied=self.tie_word_embeddings or self.headless(tensors),
            heads=self.asked(tensors),
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = self.prefix(tensors)
        layer, block = f"{theirs}layers.{{i}}", "stack.blocks.{i}"
        parts = tuple(f"{block}.mixer.{what}" for what in ("query", "key", "value"))
        return (
            Same(f"{theirs}embed_in.weight", "embeddings.table.weight"),
            *grouped(f"{layer}.attention.query_key_value", parts, self.num_attention_heads, (1, 1, 1)),
            *both(f"{layer}.attention.dense", f"{block}.mixer.out"),
            *both(f"{layer}.mlp.dense_h_to_4h", f"{block}.feedforward.up"),
            *both(f"{layer}.mlp.dense_4h_to_h", f"{block}.feedforward.down"),
            *both(f"{layer}.input_layernorm", f"{block}.wiring.norms.0"),
            *both(f"{layer}.post_attention_layernorm", f"{block}.wiring.norms.1"),
            *both(f"{theirs}final_layer_norm", "stack.ends.final"),
            Same(self.lm_head(tensors), "head.weight"),
            *self.answers(tensors),
            Ignored(f"{layer}.attention.bias"),  # the causal mask, in old files
            Ignored(f"{layer}.attention.masked_bias"),
            Ignored(f"{layer}.attention.rotary_emb.inv_freq"),
        )

    @property
    def rotation(self) -> RopeParameters:
        """Older configs call the base rotary_emb_base and the share that turns rotary_pct."""
        found = self.rope_scaling or self.rope_parameters or RopeParameters()
        return found.model_copy(
            update={
                "rope_theta": found.rope_theta or self.rotary_emb_base,
                "partial_rotary_factor": found.partial_rotary_factor or self.rotary_pct,
            }
        )

    def lm_head(self, tensors: Tensors) -> str:
        return "lm_head.weight" if "lm_head.weight" in tensors else "embed_out.weight"

    @property
    def _position(self) -> AnyRelative:
        """A rotation of n = ⌊share · size⌋ channels or, where n is odd, of one more; its speeds are base^(-2c/n)."""
        rope, size = self.rope(), Attention.Config(heads=self.num_attention_heads).size(self.hidden_size)
        named = int(size * rope.share)
        turned = named + named % 2
        if turned > size:
            raise ConfigError(f"all of a head turns, in pairs of channels, but it has {size}; use an even size")
        if not turned:
            return NoPosition.Config()
        try:
            base = rope.base ** (turned / named)  # base^(-2c/n) in the words of a rotation of `turned` channels
        except OverflowError:
            raise ConfigError(f"the base {rope.base} of the rotation is too large") from None
        return rope.model_copy(update={"share": turned / size, "base": base})
