"""Transformer-XL (Dai et al. 2019), in the layout of transformers up to 4.35 and in that of its authors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import torch
from annotated_types import Le
from pydantic import Strict, model_validator
from torch import Tensor

from ...core.config import Count, Flag, Positive, Size
from ...core.errors import ConfigError
from ...mixers import TransformerXLAttention
from ...models import AdaptiveDecoder, Decoder
from ...parts.feedforward import FeedForward
from ...parts.inputs.adaptive import Adaptive
from ...parts.layers.norms import LayerNorm
from ...parts.positions import Relative
from ...parts.residual.wiring import PostNorm, PreNorm
from ..formats.safetensors import Tensors
from ..rename import Computed, Fused, Rule, Same, Table, both
from .base import Family, prefix

Off: TypeAlias = Annotated[int, Strict(), Le(0)]
Limit: TypeAlias = Annotated[int, Strict()]  # 0 or less: none
AUTHORS = {  # defaults of MemTransformerLM, where its authors' differ from those of transformers
    "cutoffs": [],
    "div_val": 1,
    "same_length": False,
    "clamp_len": -1,
    "tie_projs": [False],
    "untie_r": False,
}


@dataclass(frozen=True)
class Flipped(Rule):
    """Theirs has our rows in reverse: the authors count clusters from the last."""

    ours: str

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.ours,)

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return (theirs.flip(0),)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        return ours[0].flip(0)


@dataclass(frozen=True)
class Copied(Same):
    """The same tensor, which becomes another one of ours, too."""

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return (theirs.clone(),)


class TransfoXL(Family):
    """Transformer-XL, as trained on WikiText-103, and what was trained in its shape.

    A config with `n_token` is in the layout of its authors. There the memory is empty before the first token; in that
    of transformers it holds zeros, which are seen. A call of theirs is a segment, however long; here segments have
    `tgt_len` tokens (128, as it was trained), counted from the first.
    """

    types: ClassVar[tuple[str, ...]] = ("transfo-xl",)
    paper: ClassVar[str] = "Dai et al. 2019, Transformer-XL, arXiv 1901.02860"

    vocab_size: Size = 267735
    n_token: Size | None = None
    cutoffs: tuple[Size, ...] = (20000, 40000, 200000)
    d_model: Size = 1024
    d_embed: Size | None = 1024
    n_head: Size = 16
    d_head: Size = 64
    d_inner: Size = 4096
    div_val: Size = 4
    pre_lnorm: Flag = False
    n_layer: Size = 18
    mem_len: Count = 1600
    tgt_len: Size = 128
    ext_len: Literal[0] = 0
    clamp_len: Limit = 1000
    same_length: Flag = True
    proj_share_all_but_first: Flag = True
    tie_projs: tuple[Flag, ...] | None = None
    tie_weight: Flag = True
    tie_word_embeddings: Flag = True
    attn_type: Literal[0] = 0  # the others are not the paper's
    sample_softmax: Off = -1
    untie_r: Flag = True  # every layer has u and v of its own
    layer_norm_epsilon: Positive = 1e-5

    @model_validator(mode="before")
    @classmethod
    def _authors_defaults(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "n_token" not in data:
            return data
        given = {
            name: value for name, value in data.items() if (name, value) not in (("d_embed", -1), ("tgt_len", None))
        }
        return {**AUTHORS, "vocab_size": data["n_token"], "d_embed": None, **given}

    @property
    def layers(self) -> int:
        return self.n_layer

    @property
    def zeros(self) -> bool:
        """Whether the memory holds zeros before the first token."""
        return self.n_token is None and self.mem_len > 0

    @property
    def adaptive(self) -> Adaptive | None:
        """The clusters of the vocabulary; None: an ordinary one."""
        shared = (False, *(self.proj_share_all_but_first for _ in self.cutoffs))
        tied = shared if self.tie_projs is None else self.tie_projs
        clusters = Adaptive(
            cutoffs=self.cutoffs, shrink=self.div_val, size=self.d_embed, tied=tied[: len(self.cutoffs) + 1]
        )
        return clusters if clusters.cutoffs or clusters.projected(self.d_model) else None

    def ours(self, tensors: Tensors) -> Decoder.Config:
        if "score.weight" in tensors:
            raise ConfigError("it classifies texts; heed reads Transformer-XL as a language model")
        if "crit.out_layers.0.bias" not in tensors:
            raise ConfigError("it has no head (crit.*): save the language model, not its backbone alone")
        common: dict[str, Any] = {
            "vocabulary": self.vocab_size,
            "width": self.d_model,
            "depth": self.n_layer,
            "mixer": self._mixer,
            "feedforward": FeedForward.Config(hidden=self.d_inner),
            "norm": LayerNorm(eps=self.layer_norm_epsilon),
            "wiring": PreNorm(final=False) if self.pre_lnorm else PostNorm(),
            "scaled": True,
            "one_position": not self.untie_r,
            "tied": self.tie_weight and self.tie_word_embeddings,
            "head_bias": True,
        }
        if self.adaptive is None:
            return Decoder.Config(**common)
        return AdaptiveDecoder.Config(**common, adaptive=self.adaptive)

    @property
    def _mixer(self) -> TransformerXLAttention.Config:
        return TransformerXLAttention.Config(
            heads=self.n_head,
            head_size=self.d_head,
            length=self.tgt_len,
            memory=self.mem_len,
            same_length=self.same_length,
            # Zeros that were normed are the norm's bias.
            begins=("learned" if self.pre_lnorm else "zeros") if self.zeros else "empty",
            position=Relative.Config(clamp=self.clamp_len if self.clamp_len > 0 else None, width=self.d_model),
        )

    def names(self, tensors: Tensors) -> Table:
        theirs = prefix(tensors, "transformer.")
        layer, block = f"{theirs}layers.{{i}}", "stack.blocks.{i}"
        attention, net, mixer = f"{layer}.dec_attn", f"{layer}.pos_ff", f"{block}.mixer"
        waves = 1 / 10000 ** (torch.arange(0.0, self.d_model, 2.0) / self.d_model)
        return (
            *self._vocabulary(theirs),
            Fused(f"{attention}.qkv_net.weight", tuple(f"{mixer}.{what}.weight" for what in ("query", "key", "value"))),
            Same(f"{attention}.o_net.weight", f"{mixer}.out.weight"),
            Same(f"{attention}.r_net.weight", f"{mixer}.position.distance.weight"),
            *(() if self.untie_r else _biases(theirs, "stack.blocks.0.mixer.position")),
            *_biases(f"{attention}.", f"{mixer}.position"),
            Copied(f"{attention}.layer_norm.bias", f"{mixer}.before"),
            *both(f"{attention}.layer_norm", f"{block}.wiring.norms.0"),
            *both(f"{net}.CoreNet.0", f"{block}.feedforward.up"),
            *both(f"{net}.CoreNet.3", f"{block}.feedforward.down"),
            *both(f"{net}.layer_norm", f"{block}.wiring.norms.1"),
            Computed(f"{theirs}pos_emb.inv_freq", "stack.blocks.0.mixer.out.weight", waves),
        )

    def _vocabulary(self, theirs: str) -> Table:
        """Embeddings and head."""
        table, scores = f"{theirs}word_emb.emb_layers", "crit.out_layers"
        if self.adaptive is None:
            return Same(f"{table}.0.weight", "embeddings.table.weight"), *both(f"{scores}.0", "head")
        rows = Same if self.n_token is None else Flipped
        return (
            Same(f"{table}.{{i}}.weight", "embeddings.table.tables.{i}.weight"),
            Same(f"{theirs}word_emb.emb_projs.{{i}}", "embeddings.table.widen.{i}"),
            Same(f"{scores}.{{i}}.weight", "head.weights.{i}"),
            Same(f"{scores}.{{i}}.bias", "head.biases.{i}"),
            Same("crit.out_projs.{i}", "head.narrow.{i}"),
            rows("crit.cluster_weight", "head.tails.weight"),
            rows("crit.cluster_bias", "head.tails.bias"),
        )


def _biases(theirs: str, ours: str) -> Table:
    return Same(f"{theirs}r_w_bias", f"{ours}.u"), Same(f"{theirs}r_r_bias", f"{ours}.v")
