"""Reformer (Kitaev et al. 2020): attention within hash buckets and within chunks, on two reversible streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm, prod
from typing import Any, ClassVar, Literal

from torch import Tensor

from ...core.config import Count, Flag, Positive, Seed, Size
from ...core.contract import MixerConfig
from ...core.errors import ConfigError
from ...mixers import Attention, Local, Lsh
from ...models import Decoder, Encoder
from ...models.backbone import TokenBackbone
from ...parts.feedforward import FeedForward
from ...parts.layers.norms import LayerNorm
from ...parts.masks import Causal, Segments
from ...parts.outputs.heads import Masked, Pooled
from ...parts.positions import AddedConfig, Axial, Learned
from ...parts.residual.wiring import Reversible
from ...parts.segments.chunks import Chunks
from ..formats.safetensors import Tensors
from ..rename import Rule, Same, Table, both
from .base import Act, prefix
from .encoders import OneSided, kept, norms
from .found import Found, classes, spans

HEAD = "lm_head.decoder.weight"


class Reformer(OneSided):
    """Reformer. Hashing is chunked as in the reference, so it needs whole sequences; local layers of decoders stream.

    Where `num_buckets` is not set, it follows from the longest text here, from the first text there. Where `hash_seed`
    is not set, the rotations are those of seed 0 here, and new ones at every call there.
    """

    types: ClassVar[tuple[str, ...]] = ("reformer",)
    paper: ClassVar[str] = "Kitaev et al. 2020, arXiv 2001.04451"
    stem: ClassVar[str] = "reformer."

    vocab_size: Size = 320
    attention_head_size: Size = 64
    attn_layers: tuple[Literal["local", "lsh"], ...] = ("local", "lsh", "local", "lsh", "local", "lsh")
    axial_pos_embds: Flag = True
    axial_pos_shape: tuple[Size, ...] = (64, 64)
    axial_pos_embds_dim: tuple[Size, ...] = (64, 192)
    feed_forward_size: Size = 512
    hash_seed: Seed | None = None
    hidden_act: Act = "relu"
    hidden_size: Size = 256
    is_decoder: Flag = False
    layer_norm_eps: Positive = 1e-12
    local_num_chunks_before: Count = 1
    local_num_chunks_after: Count = 0
    local_attn_chunk_length: Size = 64
    lsh_attn_chunk_length: Size = 64
    lsh_num_chunks_before: Count = 1
    lsh_num_chunks_after: Count = 0
    max_position_embeddings: Size = 4096
    num_attention_heads: Size = 12
    num_buckets: Size | tuple[Size, ...] | None = None
    num_hashes: Size = 1
    pad_token_id: Count | None = 0

    @property
    def layers(self) -> int:
        return len(self.attn_layers)

    @property
    def norm(self) -> LayerNorm:
        return LayerNorm(eps=self.layer_norm_eps)

    @property
    def chunks(self) -> set[int]:
        """How long chunks are, of all kinds of layers."""
        lengths = {"local": self.local_attn_chunk_length, "lsh": self.lsh_attn_chunk_length}
        return {lengths[kind] for kind in self.attn_layers}

    @property
    def step(self) -> int:
        """Texts are filled up to a multiple of this, so that all chunks are full."""
        return lcm(*self.chunks)

    def filled(self, length: int) -> int:
        """How long a text of so many tokens is then; one of less than a chunk is left as it is."""
        return length if length <= min(self.chunks) else -(-length // self.step) * self.step

    def buckets_at(self, length: int) -> int | tuple[int, ...]:
        """How many buckets there are for texts of this length, which is a multiple of the chunks'."""
        if self.num_buckets is not None:
            return self.num_buckets
        chunk = self.lsh_attn_chunk_length
        power = max((2 * (length // chunk)).bit_length() - 1, 1)
        most = 2 * max(int((self.max_position_embeddings // chunk) ** 0.5), chunk)
        return 2**power if 2**power <= most else (2 ** (power // 2), 2 ** (power - power // 2))

    def ours(self, tensors: Tensors) -> TokenBackbone.Config:
        if not self.attn_layers:
            raise ConfigError("attn_layers is empty; a Reformer has at least one layer")
        backbone: dict[str, Any] = {
            "vocabulary": self.vocab_size,
            "width": self.hidden_size,
            "depth": self.layers,
            "mixer": tuple(self._mixer(kind) for kind in self.attn_layers),
            "feedforward": FeedForward.Config(hidden=self.feed_forward_size, activation=self.hidden_act),
            "norm": self.norm,
            "wiring": Reversible(joined="beside"),
            "position": self._position(),
        }
        if self._writes(tensors):
            return Decoder.Config(**backbone, tied=False)
        return Encoder.Config(**backbone, heads=self.asked(tensors))

    def heads(self, tensors: Tensors) -> tuple[Found, ...]:
        if self._writes(tensors):
            return ()
        found = list(spans(tensors))
        if HEAD in tensors:
            head = Masked.Config(vocabulary=self.vocab_size, size=2 * self.hidden_size, bias=False, tied=False)
            found.append(Found(head, (Same(HEAD, "heads.masked.scores.weight"),)))
        if "classifier.dense.weight" in tensors:
            labels = classes(tensors, "classifier.out_proj")
            pooled = Pooled.Config(activation="tanh", size=self.hidden_size, labels=labels)
            names = (
                both("classifier.dense", "heads.pooled.transform"),
                both("classifier.out_proj", "heads.pooled.scores"),
            )
            found.append(Found(pooled, (*names[0], *names[1])))
        return tuple(found)

    def names(self, tensors: Tensors) -> Table:
        theirs = prefix(tensors, self.stem)
        place = f"{theirs}embeddings.position_embeddings"
        axes = range(len(self.axial_pos_shape)) if self.axial_pos_embds else ()
        layer, block = f"{theirs}encoder.layers.{{i}}", "stack.blocks.{i}"
        return (
            Same(f"{theirs}embeddings.word_embeddings.weight", "embeddings.table.weight"),
            Same(f"{place}.embedding.weight", "embeddings.position.table"),
            *(Axis(f"{place}.weights.{a}", f"embeddings.position.tables.{a}", a, len(axes)) for a in axes),
            *(rule for number, kind in enumerate(self.attn_layers) for rule in _projections(theirs, number, kind)),
            Same(f"{layer}.attention.output.dense.weight", f"{block}.mixer.out.weight"),
            *norms(f"{layer}.attention.layer_norm", f"{block}.wiring.norms.0"),
            *norms(f"{layer}.feed_forward.layer_norm", f"{block}.wiring.norms.1"),
            *both(f"{layer}.feed_forward.dense.dense", f"{block}.feedforward.up"),
            *both(f"{layer}.feed_forward.output.dense", f"{block}.feedforward.down"),
            *norms(f"{theirs}encoder.layer_norm", "stack.ends.final"),
            *((Same(HEAD, "head.weight"),) if self._writes(tensors) else self.answers(tensors)),
            *kept(tensors, "lm_head.bias"),  # which the reference has, but does not add
        )

    def _writes(self, tensors: Tensors) -> bool:
        return self.is_decoder and HEAD in tensors

    def _position(self) -> AddedConfig:
        if not self.axial_pos_embds:
            return Learned.Config(length=self.max_position_embeddings)
        return Axial.Config(shape=self.axial_pos_shape, sizes=self.axial_pos_embds_dim)

    def _mixer(self, kind: str) -> MixerConfig:
        heads, size = self.num_attention_heads, self.attention_head_size
        if kind == "lsh":
            chunks = Chunks(
                length=self.lsh_attn_chunk_length,
                before=self.lsh_num_chunks_before,
                after=self.lsh_num_chunks_after,
                multiple=self.step,
            )
            longest = prod(self.axial_pos_shape) if self.axial_pos_embds else self.max_position_embeddings
            return Lsh.Config(
                heads=heads,
                head_size=size,
                buckets=self.buckets_at(longest),
                rounds=self.num_hashes,
                causal=self.is_decoder,
                chunks=chunks,
                seed=self.hash_seed or 0,
            )
        length, before = self.local_attn_chunk_length, self.local_num_chunks_before
        if self.is_decoder and self.local_num_chunks_after == 0:  # no token looks ahead, so the ring is never closed
            mask = Causal() & Segments(length=length, memory=before * length)
            return Attention.Config(heads=heads, head_size=size, bias=False, mask=mask)
        return self.ring()

    def ring(self) -> Local.Config:
        """A local layer as the reference has it, with neighbours that stand around the text's ends."""
        chunks = Chunks(
            length=self.local_attn_chunk_length,
            before=self.local_num_chunks_before,
            after=self.local_num_chunks_after,
            multiple=self.step,
        )
        heads, size = self.num_attention_heads, self.attention_head_size
        return Local.Config(heads=heads, head_size=size, bias=False, chunks=chunks, causal=self.is_decoder)


@dataclass(frozen=True)
class Axis(Rule):
    """Theirs has an axis for each side of a board, all but one of length one; ours has that one alone."""

    ours: str
    axis: int
    axes: int

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.ours,)

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        if theirs.dim() != self.axes + 1:
            raise ValueError(f"{self.theirs} has {theirs.dim()} axes, needed are {self.axes + 1}")
        return (theirs.reshape(theirs.shape[self.axis], theirs.shape[-1]),)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        shape = [1] * self.axes
        shape[self.axis] = ours[0].shape[0]
        return ours[0].reshape(*shape, ours[0].shape[1])


def _projections(theirs: str, number: int, kind: str) -> tuple[Rule, ...]:
    layer, mixer = f"{theirs}encoder.layers.{number}.attention.self_attention", f"stack.blocks.{number}.mixer"
    names = {"query_key": "query", "value": "value"} if kind == "lsh" else {k: k for k in ("query", "key", "value")}
    return tuple(Same(f"{layer}.{name}.weight", f"{mixer}.{ours}.weight") for name, ours in names.items())
