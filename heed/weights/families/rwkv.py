"""RWKV-4 (Peng et al. 2023), under the names of transformers or of its authors."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Strict

from ...core.config import Flag, Positive, Size
from ...mixers import Rwkv as TimeMix
from ...models import Decoder
from ...parts.feedforward import ChannelMix
from ...parts.layers.norms import LayerNorm
from ...parts.residual.wiring import Rescaled
from ..formats.safetensors import Tensors
from ..rename import Same, Table, both
from ..rules import Framed
from .base import Family, alone, prefix
from .skeleton import must_hold

# What transformers calls it, and what its authors do.
TRANSFORMERS = {"embedding": "embeddings", "first": "pre_ln", "mixer": "attention", "feedforward": "feed_forward"}
TRANSFORMERS |= {"key": "time_mix_key", "value": "time_mix_value", "receptance": "time_mix_receptance"}
AUTHORS = {"embedding": "emb", "first": "ln0", "mixer": "att", "feedforward": "ffn"}
AUTHORS |= {"key": "time_mix_k", "value": "time_mix_v", "receptance": "time_mix_r"}


class Rwkv(Family):
    """RWKV-4 Pile, Raven and World, as transformers converted them, or as their authors named their tensors."""

    types: ClassVar[tuple[str, ...]] = ("rwkv",)
    paper: ClassVar[str] = "Peng et al. 2023, RWKV: Reinventing RNNs for the Transformer Era, arXiv 2305.13048"

    vocab_size: Size = 50277
    hidden_size: Size = 4096
    num_hidden_layers: Size = 32
    attention_hidden_size: Size | None = None
    intermediate_size: Size | None = None
    layer_norm_epsilon: Positive = 1e-5  # of all norms but the last
    rescale_every: Annotated[int, Strict()] = 6  # 0 or less: never
    tie_word_embeddings: Flag = False

    @property
    def layers(self) -> int:
        return self.num_hidden_layers

    def ours(self, tensors: Tensors) -> Decoder.Config:
        inner = self.intermediate_size or 4 * self.hidden_size
        must_hold(tensors, self.attention_hidden_size or 1, inner)
        norm = LayerNorm(eps=self.layer_norm_epsilon)
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.hidden_size,
            depth=self.num_hidden_layers,
            mixer=TimeMix.Config(hidden=self.attention_hidden_size),
            feedforward=ChannelMix.Config(hidden=inner),
            norm=norm,
            embedding_norm=norm,
            wiring=Rescaled(every=self.rescale_every if self.rescale_every > 0 else None),
            tied=self.tie_word_embeddings or alone(tensors, "rwkv.", "head.weight"),
        )

    def names(self, tensors: Tensors) -> Table:
        named = AUTHORS if "emb.weight" in tensors else TRANSFORMERS
        theirs = prefix(tensors, "rwkv.")
        layer, block = f"{theirs}blocks.{{i}}", "stack.blocks.{i}"
        mixer, feedforward = (f"{layer}.{named[part]}" for part in ("mixer", "feedforward"))
        linears = {"receptance": "receptance", "key": "key", "value": "value"}
        return (
            Same(f"{theirs}{named['embedding']}.weight", "embeddings.table.weight"),
            *both(f"{theirs}blocks.0.{named['first']}", "embeddings.norm"),
            *(Same(f"{mixer}.{name}.weight", f"{block}.mixer.{name}.weight") for name in linears),
            Same(f"{mixer}.output.weight", f"{block}.mixer.out.weight"),
            *(Framed(f"{mixer}.{named[name]}", f"{block}.mixer.mix_{name}", 2) for name in linears),
            Same(f"{mixer}.time_decay", f"{block}.mixer.decay"),
            Same(f"{mixer}.time_first", f"{block}.mixer.bonus"),
            *(Same(f"{feedforward}.{name}.weight", f"{block}.feedforward.{name}.weight") for name in linears),
            *(
                Framed(f"{feedforward}.{named[name]}", f"{block}.feedforward.mix_{name}", 2)
                for name in ("key", "receptance")
            ),
            *both(f"{layer}.ln1", f"{block}.wiring.norms.0"),
            *both(f"{layer}.ln2", f"{block}.wiring.norms.1"),
            *both(f"{theirs}ln_out", "stack.ends.final"),
            Same("head.weight", "head.weight"),
        )
