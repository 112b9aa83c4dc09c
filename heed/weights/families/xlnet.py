"""XLNet (Yang et al. 2019): two-stream attention with relative positions and segments, post-norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator
from torch import Tensor

from ...core.config import Count, Flag, Positive, Size, Text
from ...core.errors import ConfigError
from ...mixers import TwoStream
from ...models import Shape, XLNetEncoder
from ...models import XLNet as XLNetWriter
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import LayerNorm
from ...parts.masks import Causal, Mask, Whole, Window
from ...parts.outputs.heads import HeadConfig, Pool, Pooled, Spans, Tagged
from ...parts.positions.scored import Relative
from ...parts.residual.wiring import PostNorm
from ..formats.safetensors import Tensors
from ..rename import Rule, Same, Table, both
from .base import Act, Family, prefix
from .encoders import norms
from .found import Found, classes

STEM = "transformer."
SUMMARY, CLASSES, TAGS, SPANS = "sequence_summary.summary", "logits_proj", "classifier", "qa_outputs"
BEAMS = ("start_logits.", "end_logits.", "answer_class.")  # of a head that searches over spans
POOLS: dict[str, Pool] = {"last": "last", "first": "first", "mean": "mean", "cls_index": "last"}


def _or_none(value: object) -> object:
    """An empty name stands for nothing."""
    return None if value == "" else value


def _limit(value: object) -> object:
    """-1 and 0 stand for no limit."""
    return None if isinstance(value, int) and not isinstance(value, bool) and value < 1 else value


Maybe: TypeAlias = Annotated[Act | None, BeforeValidator(_or_none)]
Limit: TypeAlias = Annotated[Size | None, BeforeValidator(_limit)]


class XLNet(Family):
    """XLNet. With a language model's head it writes, from left to right; with any other, or none, it reads both ways.

    How a checkpoint remembers (`mem_len`, `reuse_len`) and in which direction batches were read (`bi_data`) are matters
    of how it is called, not of its weights; a replay heeds them.
    """

    types: ClassVar[tuple[str, ...]] = ("xlnet",)
    paper: ClassVar[str] = "Yang et al. 2019, arXiv 1906.08237"

    vocab_size: Size = 32000
    d_model: Size = 1024
    n_layer: Size = 24
    n_head: Size = 16
    d_inner: Size = 4096
    d_head: Size | None = None
    ff_activation: Act = "gelu"
    attn_type: Literal["bi", "uni"] = "bi"
    layer_norm_eps: Positive = 1e-12
    mem_len: Count | None = 512
    reuse_len: Count | None = None
    bi_data: Flag = False
    clamp_len: Limit = None
    same_length: Flag = False
    summary_type: Text = "last"
    summary_use_proj: Flag = True
    summary_activation: Maybe = "tanh"
    tie_word_embeddings: Flag = True

    @property
    def layers(self) -> int:
        return self.n_layer

    @property
    def mask(self) -> Mask:
        """Who sees whom where no token looks ahead. `same_length` is a window as long as the memory."""
        if self.attn_type == "uni" and self.same_length and self.mem_len:
            return Window(back=self.mem_len)
        return Causal()

    def ours(self, tensors: Tensors) -> Shape:
        if self.d_head not in (None, self.d_model // self.n_head) or self.d_model % self.n_head:
            raise ConfigError(f"d_head is {self.d_head}; {self.n_head} heads must be as wide as d_model {self.d_model}")
        if any(name.startswith(BEAMS) for name in tensors):
            raise ConfigError(
                "its head searches over spans (XLNetForQuestionAnswering); heed reads the simple one, "
                "XLNetForQuestionAnsweringSimple"
            )
        writes = "lm_loss.bias" in tensors
        common: dict[str, Any] = {
            "vocabulary": self.vocab_size,
            "width": self.d_model,
            "depth": self.n_layer,
            "mixer": self._mixer(self.mask if writes or self.attn_type == "uni" else Whole()),
            "feedforward": FeedForward.Config(hidden=self.d_inner, activation=self.ff_activation),
            "norm": LayerNorm(eps=self.layer_norm_eps),
            "wiring": PostNorm(),
        }
        if writes:
            return XLNetWriter.Config(**common, tied=self.tie_word_embeddings)
        return XLNetEncoder.Config(**common, heads=tuple(found.head for found in self._heads(tensors)) or None)

    def names(self, tensors: Tensors) -> Table:
        theirs, heads = prefix(tensors, STEM), self.n_head
        layer, block = f"{theirs}layer.{{i}}", "stack.blocks.{i}"
        attention, mixer = f"{layer}.rel_attn", f"{block}.mixer"
        return (
            Same(f"{theirs}word_embedding.weight", "embeddings.table.weight"),
            Lone(f"{theirs}mask_emb", "mask"),
            *(ByHeads(f"{attention}.{name}", f"{mixer}.{ours}.weight", heads) for name, ours in PROJECTIONS.items()),
            OutOfHeads(f"{attention}.o", f"{mixer}.out.weight", heads),
            *(Same(f"{attention}.{name}", f"{mixer}.{ours}") for name, ours in BIASES.items()),
            *norms(f"{attention}.layer_norm", f"{block}.wiring.norms.0"),
            *both(f"{layer}.ff.layer_1", f"{block}.feedforward.up"),
            *both(f"{layer}.ff.layer_2", f"{block}.feedforward.down"),
            *norms(f"{layer}.ff.layer_norm", f"{block}.wiring.norms.1"),
            *both("lm_loss", "head"),
            *(rule for found in self._heads(tensors) for rule in found.names),
        )

    def _mixer(self, mask: Mask) -> TwoStream.Config:
        position = Relative.Config(clamp=self.clamp_len, both_ways=True)
        return TwoStream.Config(heads=self.n_head, mask=mask, segments=True, position=position)

    def _heads(self, tensors: Tensors) -> tuple[Found, ...]:
        """The heads whose tensors are there."""
        found = list[Found]()
        if f"{CLASSES}.weight" in tensors:
            found.append(self._summary(tensors))
        if f"{TAGS}.weight" in tensors:
            found.append(_found(Tagged.Config(labels=classes(tensors, TAGS)), TAGS, "tagged"))
        if f"{SPANS}.weight" in tensors:
            found.append(_found(Spans.Config(), SPANS, "spans"))
        return tuple(found)

    def _summary(self, tensors: Tensors) -> Found:
        """One answer per text, made of one of its tokens or of their mean."""
        if self.summary_type not in POOLS:
            raise ConfigError(f"summary_type is {self.summary_type!r}; heed knows {', '.join(POOLS)}")
        activation = self.summary_activation
        if activation is not None and not self.summary_use_proj:
            raise ConfigError(
                f"summary_activation {activation} without summary_use_proj bends a vector that was not projected, "
                "which heed does not do; leave one of them out"
            )
        if self.summary_use_proj:
            activation = activation or "identity"
        head = Pooled.Config(pool=POOLS[self.summary_type], activation=activation, labels=classes(tensors, CLASSES))
        projected = both(SUMMARY, "heads.pooled.transform") if self.summary_use_proj else ()
        return Found(head, (*projected, *both(CLASSES, "heads.pooled.scores")))


PROJECTIONS = {"q": "query", "k": "key", "v": "value", "r": "position.distance"}
BIASES = {
    "r_w_bias": "position.u",
    "r_r_bias": "position.v",
    "r_s_bias": "segment_bias",
    "seg_embed": "segment",
}


@dataclass(frozen=True)
class ByHeads(Rule):
    """Theirs is [width, heads, size], ours is the [heads·size, width] of a layer that makes heads."""

    ours: str
    heads: int

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.ours,)

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return (_flat(theirs, self.heads).T,)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        return ours[0].T.reshape(ours[0].shape[1], self.heads, -1)


@dataclass(frozen=True)
class OutOfHeads(ByHeads):
    """Theirs is [width, heads, size], ours is the [width, heads·size] of a layer that takes heads."""

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return (_flat(theirs, self.heads),)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        return ours[0].reshape(ours[0].shape[0], self.heads, -1)


@dataclass(frozen=True)
class Lone(Rule):
    """Theirs is [1, 1, width], ours is [width]."""

    ours: str

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.ours,)

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return (theirs[0, 0],)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        return ours[0][None, None]


def _flat(theirs: Tensor, heads: int) -> Tensor:
    if theirs.dim() != 3 or theirs.shape[1] != heads:
        raise ValueError(f"{list(theirs.shape)} has not {heads} heads")
    return theirs.flatten(1)


def _found(head: HeadConfig, theirs: str, ours: str) -> Found:
    return Found(head, both(theirs, f"heads.{ours}.scores"))
