"""RETRO (Borgeaud et al. 2022) as RETRO-pytorch computes it: a decoder, and the encoder of its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ....core.config import Count, Flag, Positive, Size, Theirs
from ....core.contract import Where
from ....core.errors import WeightsError
from ....core.state import Seen
from ....mixers import Attention, ChunkedCross, Cross
from ....models.variants.retro import NeighbourEncoder, Retro, neighbours
from ....parts.feedforward import FeedForward
from ....parts.inputs.tokens import Narrow
from ....parts.layers.norms import GatedNorm, LayerNorm, NormConfig, RMSNorm
from ....parts.positions import Learned, Rope
from ....parts.residual.wiring import DeepNorm, PreNorm, WiringConfig
from ...formats.folder import CONFIG, INPUTS, Folder
from ...rename import Computed, Rule, Same, Table, both, restore
from ..inputs import Outputs, must_hold, sequence, understood

SMALLEST = 1e-16  # its norm divides by at least 1e-8


class RetroPytorch(Theirs):
    """The arguments of its constructor; `heads` is one that it passes over. Layers are counted from 1."""

    num_tokens: Size = 28996
    max_seq_len: Size = 2048
    enc_dim: Size = 896
    enc_depth: Size = 2
    enc_cross_attn_layers: tuple[Count, ...] | None = None
    dec_depth: Size = 12
    dec_cross_attn_layers: tuple[Count, ...] | None = (1, 3, 6, 9)
    dec_dim: Size = 768
    dim_head: Size = 64
    min_dim_head: Size = 32  # channels of a head that turn
    chunk_size: Size = 64
    pad_id: Count = 0
    enc_scale_residual: Positive | None = None
    dec_scale_residual: Positive | None = None
    gated_rmsnorm: Flag = False
    use_deepnet: Flag = False
    null_kv: Literal[True] = True

    @property
    def norm(self) -> NormConfig:
        """The one norm that is used throughout."""
        if self.gated_rmsnorm:
            return GatedNorm(eps=SMALLEST)
        return LayerNorm() if self.use_deepnet else RMSNorm(eps=SMALLEST)

    @property
    def position(self) -> Rope.Config:
        """The rotation of all its attentions."""
        return Rope.Config(share=min(self.dim_head, self.min_dim_head) / self.dim_head)

    @property
    def wirings(self) -> tuple[WiringConfig, WiringConfig]:
        """Of the encoder and of the decoder."""
        if not self.use_deepnet:
            return PreNorm(), PreNorm()
        encoder, decoder = DeepNorm.encoder(self.enc_depth, self.dec_depth), DeepNorm.decoder(self.dec_depth)
        return (
            encoder.model_copy(update={"alpha": self.enc_scale_residual or encoder.alpha}),
            decoder.model_copy(update={"alpha": self.dec_scale_residual or decoder.alpha}),
        )

    @property
    def crossed(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Layers of the encoder and of the decoder with a cross-attention, counted from 0; others may be named."""
        sides = ((self.enc_cross_attn_layers, self.enc_depth), (self.dec_cross_attn_layers, self.dec_depth))
        encoder, decoder = (
            tuple(layer for layer in range(depth) if named is None or layer + 1 in named) for named, depth in sides
        )
        return encoder, decoder

    def ours(self, heads: int, found: int, length: int) -> Retro.Config:
        """The same as a heed model that is given so many neighbours of such a length for every chunk."""
        sizes: dict[str, Any] = {"heads": heads, "head_size": self.dim_head, "bias": False, "out_bias": True}
        encoder_wiring, decoder_wiring = self.wirings
        crossed, looking = self.crossed
        return Retro.Config(
            vocabulary=self.num_tokens,
            width=self.dec_dim,
            depth=self.dec_depth,
            mixer=Attention.Config(**sizes, position=self.position),
            crossed=looking,
            chunked=ChunkedCross.Config(
                **sizes,
                chunk=self.chunk_size,
                neighbours=found,
                length=length,
                position=self.position,
                turned_first=True,
            ),
            encoder=NeighbourEncoder.Config(
                depth=self.enc_depth,
                attention=Cross.Config(**sizes),
                position=self.position,
                crossed=crossed,
                norm=self.norm,
                wiring=encoder_wiring,
            ),
            feedforward=FeedForward.Config(activation="gelu"),
            norm=self.norm,
            wiring=decoder_wiring,
            position=Learned.Config(length=self.max_seq_len),
            narrow=None if self.enc_dim == self.dec_dim else Narrow(size=self.enc_dim, after="sum"),
            tied=False,
            head_bias=True,
        )

    def names(self, heads: int) -> Table:
        """The rename table, layer by layer."""
        turned = min(self.dim_head, self.min_dim_head)
        speed = 1.0 / 10000 ** (torch.arange(0, turned, 2).float() / turned)
        crossed, looking = self.crossed
        table: Table = (
            Same("token_emb.weight", "embeddings.table.weight"),
            Same("pos_emb.weight", "embeddings.position.table"),
            *both("to_decoder_model_dim", "embeddings.narrow"),
            *both("to_logits", "head"),
            *both("encoder.project_out", "encoder.out"),
            *self._norm("encoder.norm_out", "encoder.ends.final"),
            *self._norm("decoder.norm_out", "stack.ends.final"),
            *(Computed(f"{side}.rotary_pos_emb.inv_freq", "head.weight", speed) for side in ("encoder", "decoder")),
        )
        for layer in range(self.enc_depth):
            norms = [f"wiring.norms.{number}" for number in range(3)]
            parts = ["itself", "cross", "feedforward"]
            kept = [0, 1, 2] if layer in crossed else [0, 2]
            for norm, part in enumerate(kept):
                theirs, ours = f"encoder.layers.{layer}.{part}", f"encoder.layers.{layer}"
                table += (
                    *self._norm(f"{theirs}.norm", f"{ours}.{norms[norm]}"),
                    *_part(theirs, f"{ours}.{parts[part]}"),
                )
        for layer in range(self.dec_depth):
            theirs, ours = f"decoder.layers.{layer}", f"stack.blocks.{layer}"
            looks = layer in looking
            table += (*self._norm(f"{theirs}.0.norm", f"{ours}.wiring.norms.0"), *_part(f"{theirs}.0", f"{ours}.mixer"))
            last = "after.norms.0" if looks else "wiring.norms.1"
            table += (*self._norm(f"{theirs}.2.norm", f"{ours}.{last}"), *_part(f"{theirs}.2", f"{ours}.feedforward"))
            if looks:
                cross = f"{theirs}.1.fn.cross_attn"
                table += (
                    *self._norm(f"{theirs}.1.norm", f"{ours}.crossing.norms.0"),
                    *_attention(cross, f"{ours}.cross"),
                    Heads(f"{cross}.null_k", f"{ours}.cross.null_key", heads),
                    Heads(f"{cross}.null_v", f"{ours}.cross.null_value", heads),
                )
        return table

    def _norm(self, theirs: str, ours: str) -> tuple[Same, ...]:
        if self.gated_rmsnorm:
            return Same(f"{theirs}.gamma", f"{ours}.weight"), Same(f"{theirs}.weight", f"{ours}.gate")
        return both(theirs, ours) if self.use_deepnet else (Same(f"{theirs}.gamma", f"{ours}.weight"),)


@dataclass(frozen=True)
class Heads(Rule):
    """Theirs is one row of all heads' channels, ours has the heads as rows."""

    ours: str
    heads: int

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.ours,)

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return (theirs.reshape(self.heads, -1),)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        return ours[0].flatten()


def _part(theirs: str, ours: str) -> Table:
    if ours.endswith("feedforward"):
        return (*both(f"{theirs}.fn.ff.0", f"{ours}.up"), *both(f"{theirs}.fn.ff.3", f"{ours}.down"))
    return _attention(f"{theirs}.fn", ours)


def _attention(theirs: str, ours: str) -> Table:
    names = {"to_q": "query", "to_k": "key", "to_v": "value"}
    inner = (Same(f"{theirs}.{name}.weight", f"{ours}.{part}.weight") for name, part in names.items())
    return (*inner, *both(f"{theirs}.to_out", f"{ours}.out"))


def heads_of(folder: Folder, theirs: RetroPytorch) -> int:
    """How many heads there are: the constructor takes a number, but makes 8; the tensors tell."""
    name = "decoder.layers.0.0.fn.to_q.weight"
    rows = folder.weights.like(name).shape[0] if name in folder.weights else 0
    if not rows or rows % theirs.dim_head:
        raise WeightsError(f"{folder.path}: {name} must have rows for whole heads of {theirs.dim_head}, it has {rows}")
    return int(rows) // theirs.dim_head


def model(folder: Folder, found: int, length: int) -> Retro:
    """The model in a folder of the family `retro`, for so many neighbours of such a length per chunk."""
    theirs = understood(folder, RetroPytorch)
    must_hold(folder, max(theirs.enc_dim, theirs.dec_dim), theirs.enc_depth + theirs.dec_depth)
    if not theirs.crossed[1]:
        raise WeightsError(
            f"{folder.path / CONFIG}: dec_cross_attn_layers {theirs.dec_cross_attn_layers} names none of the layers 1 "
            f"to {theirs.dec_depth}: such a model looks at no neighbours, and is not RETRO"
        )
    heads = heads_of(folder, theirs)
    return restore(lambda: theirs.ours(heads, found, length).build(), folder, theirs.names(heads))


def outputs(folder: Folder) -> Outputs:
    """Family `retro`: logits with and without neighbours, and the first chunked cross-attention alone."""
    theirs, tokens = understood(folder, RetroPytorch), sequence(folder, "seq")
    where = Where.run(*tokens.shape)
    if "retrieved" not in folder.inputs:
        return {"logits_no_retrieval": model(folder, 1, 1).unaided(tokens, where)}
    ids = _retrieved(folder, tokens, theirs.chunk_size)
    retro = model(folder, *ids.shape[2:])
    made = {"logits_no_retrieval": retro.unaided(tokens, where)} if folder.wants("logits_no_retrieval") else {}
    if folder.wants("logits"):
        made["logits"], _ = retro(tokens, where.give(neighbours=neighbours(ids, padding=theirs.pad_id)))
    if folder.wanted is not None and "cca_input" in folder.wanted:
        made |= _alone(folder, retro, neighbours(ids, padding=theirs.pad_id))
    return made


def _alone(folder: Folder, retro: Retro, stamps: Seen) -> Outputs:
    """The first chunked cross-attention, on a stream and on encoded neighbours that were written beside the outputs."""
    x, context = folder.extra("cca_input"), folder.extra("cca_context")
    if x.dim() != 3 or context.dim() != 5 or context.flatten(1, 3).shape[:2] != stamps.shape:
        raise WeightsError(
            f"{folder.path}: cca_input of {list(x.shape)} and cca_context of {list(context.shape)} are not about the "
            "neighbours in retrieved; needed are [rows, tokens, width] and [rows, chunks, neighbours, length, width]"
        )
    found = Seen(stamps.order, stamps.position, context.flatten(1, 3))
    y, _ = retro.stack.layers[retro.first].parts[1](x, Where.run(*x.shape[:2]).give(neighbours=found))
    return {"cca_input": x, "cca_context": context, "cca_output": y}


def _retrieved(folder: Folder, tokens: Tensor, chunk: int) -> Tensor:
    """The neighbours, of every whole chunk; [rows, chunks, length] if each has one."""
    ids, needed = folder.input("retrieved"), (tokens.shape[0], tokens.shape[1] // chunk)
    ids = ids.unsqueeze(2) if ids.dim() == 3 else ids
    if ids.dim() != 4 or tuple(ids.shape[:2]) != needed or not ids.shape[2] * ids.shape[3]:
        raise WeightsError(
            f"{folder.path / INPUTS}: retrieved has the shape {list(ids.shape)} beside {list(tokens.shape)} tokens in "
            f"chunks of {chunk}; needed is [{needed[0]}, {needed[1]}, neighbours, length]"
        )
    return ids
