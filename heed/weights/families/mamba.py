"""Mamba (Gu & Dao 2023): selective state spaces, one after the other."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, Strict

from ...core.config import Flag, Positive, Size
from ...mixers import Mamba as Selective
from ...models import Decoder
from ...parts.feedforward import Absent
from ...parts.layers.norms import RMSNorm
from ..formats.safetensors import Tensors
from ..rename import Same, Table, both
from ..rules import Depthwise
from .base import Act, Family, alone, prefix
from .skeleton import must_hold


class Mamba(Family):
    """Mamba 130M to 2.8B, as transformers converted them, and what was trained in their shape."""

    types: ClassVar[tuple[str, ...]] = ("mamba",)
    paper: ClassVar[str] = "Gu & Dao 2023, Mamba: Linear-Time Sequence Modeling, arXiv 2312.00752"

    vocab_size: Size = 50280
    hidden_size: Size = 768
    num_hidden_layers: Size = 32
    state_size: Size = 16
    expand: Size = 2
    intermediate_size: Size | None = None  # None: expand · hidden_size
    conv_kernel: Size = 4
    use_bias: Flag = False
    use_conv_bias: Flag = True
    hidden_act: Act = "silu"  # after the convolution; the gate always has silu
    time_step_rank: Annotated[int, Strict(), Field(gt=0)] | Literal["auto"] = "auto"
    layer_norm_epsilon: Positive = 1e-5
    tie_word_embeddings: Flag = True

    @property
    def layers(self) -> int:
        return self.num_hidden_layers

    def ours(self, tensors: Tensors) -> Decoder.Config:
        inner = self.intermediate_size or self.expand * self.hidden_size
        rank = -(-self.hidden_size // 16) if self.time_step_rank == "auto" else self.time_step_rank
        must_hold(tensors, inner, self.state_size, rank, self.conv_kernel)
        return Decoder.Config(
            vocabulary=self.vocab_size,
            width=self.hidden_size,
            depth=self.num_hidden_layers,
            mixer=Selective.Config(
                hidden=inner,
                state=self.state_size,
                kernel=self.conv_kernel,
                rank=rank,
                activation=self.hidden_act,
                bias=self.use_bias,
                kernel_bias=self.use_conv_bias,
            ),
            feedforward=Absent.Config(),
            norm=RMSNorm(eps=self.layer_norm_epsilon),
            tied=self.tie_word_embeddings or alone(tensors, "backbone."),
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = prefix(tensors, "backbone.")
        layer, mixer = f"{theirs}layers.{{i}}", "stack.blocks.{i}.mixer"
        table = "embedding" if f"{theirs}embedding.weight" in tensors else "embeddings"  # the authors' name, or theirs
        return (
            Same(f"{theirs}{table}.weight", "embeddings.table.weight"),
            *both(f"{layer}.mixer.in_proj", f"{mixer}.input"),
            Depthwise(f"{layer}.mixer.conv1d.weight", f"{mixer}.kernel"),
            Same(f"{layer}.mixer.conv1d.bias", f"{mixer}.kernel_bias"),
            Same(f"{layer}.mixer.x_proj.weight", f"{mixer}.select.weight"),
            Same(f"{layer}.mixer.dt_proj.weight", f"{mixer}.step"),
            Same(f"{layer}.mixer.dt_proj.bias", f"{mixer}.step_bias"),
            Same(f"{layer}.mixer.A_log", f"{mixer}.decay"),
            Same(f"{layer}.mixer.D", f"{mixer}.skip"),
            *both(f"{layer}.mixer.out_proj", f"{mixer}.out"),
            Same(f"{layer}.norm.weight", "stack.blocks.{i}.wiring.norms.0.weight"),
            Same(f"{theirs}norm_f.weight", "stack.ends.final.weight"),
            Same("lm_head.weight", "head.weight"),
        )
