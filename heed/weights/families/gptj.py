"""GPT-J (Wang & Komatsuzaki 2021): attention and feed-forward side by side below one norm, a rotation in pairs."""

from __future__ import annotations

from typing import ClassVar

from pydantic import ConfigDict, Field

from ...core.config import Flag, Positive, Size
from ...core.errors import ConfigError
from ...mixers import Attention
from ...models import Decoder
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import LayerNorm
from ...parts.positions import Rope
from ...parts.residual.wiring import Parallel
from ..formats.safetensors import Tensors
from ..rename import Ignored, Same, Table, both
from .base import Act
from .decoders import Generative


class GPTJ(Generative):
    """GPT-J 6B and what was trained in its shape."""

    types: ClassVar[tuple[str, ...]] = ("gptj",)
    paper: ClassVar[str] = "Wang & Komatsuzaki 2021, GPT-J-6B: A 6 Billion Parameter Autoregressive Language Model"
    stem: ClassVar[str] = "transformer."
    typed: ClassVar[bool] = True

    model_config = ConfigDict(populate_by_name=True)  # sizes go by either name

    vocab_size: Size = 50400
    n_embd: Size = Field(4096, validation_alias="hidden_size")
    n_layer: Size = Field(28, validation_alias="num_hidden_layers")
    n_head: Size = Field(16, validation_alias="num_attention_heads")
    n_inner: Size | None = None
    rotary_dim: Size | None = 64  # None: the whole head turns
    activation_function: Act = "gelu_tanh"
    layer_norm_epsilon: Positive = 1e-5
    tie_word_embeddings: Flag = False

    @property
    def layers(self) -> int:
        return self.n_layer

    def ours(self, tensors: Tensors) -> Decoder.Config:
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.n_embd,
            depth=self.n_layer,
            mixer=Attention.Config(
                heads=self.n_head, bias=False, position=Rope.Config(layout="pairs", share=self._turned)
            ),
            feedforward=FeedForward.Config(hidden=self.n_inner, activation=self.activation_function),
            norm=LayerNorm(eps=self.layer_norm_epsilon),
            wiring=Parallel(),
            tied=self.tie_word_embeddings or self.headless(tensors),
            head_bias=not self.headless(tensors),
            heads=self.asked(tensors),
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = self.prefix(tensors)
        layer, block = f"{theirs}h.{{i}}", "stack.blocks.{i}"
        return (
            Same(f"{theirs}wte.weight", "embeddings.table.weight"),
            Same(f"{layer}.attn.q_proj.weight", f"{block}.mixer.query.weight"),
            Same(f"{layer}.attn.k_proj.weight", f"{block}.mixer.key.weight"),
            Same(f"{layer}.attn.v_proj.weight", f"{block}.mixer.value.weight"),
            Same(f"{layer}.attn.out_proj.weight", f"{block}.mixer.out.weight"),
            *both(f"{layer}.mlp.fc_in", f"{block}.feedforward.up"),
            *both(f"{layer}.mlp.fc_out", f"{block}.feedforward.down"),
            *both(f"{layer}.ln_1", f"{block}.wiring.norms.0"),
            *both(f"{theirs}ln_f", "stack.ends.final"),
            *both("lm_head", "head"),
            *self.answers(tensors),
            Ignored(f"{layer}.attn.bias"),  # the causal mask, in old files
            Ignored(f"{layer}.attn.masked_bias"),
        )

    @property
    def _turned(self) -> float:
        """The share of a head that turns."""
        size = Attention.Config(heads=self.n_head).size(self.n_embd)
        if self.rotary_dim is not None and self.rotary_dim > size:
            raise ConfigError(f"rotary_dim is {self.rotary_dim}, but a head has only {size} channels")
        return 1.0 if self.rotary_dim is None else self.rotary_dim / size
