"""Infini-attention (Munkhdalai et al. 2024) in the layout of lucidrains' infini-transformer-pytorch.

Its gate is the reverse of the paper's, its first segment has no gate at all, and a reading divides at least by 1e-10.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from ....core.config import Flag, Positive, Share, Size, Theirs
from ....core.contract import Where
from ....core.errors import WeightsError
from ....mixers import Infini
from ....mixers.infini import Remembered
from ....models.block import States
from ....models.decoder import Decoder
from ....parts.feedforward import Gated
from ....parts.layers.norms import RMSNorm
from ....parts.positions import Rope, frequencies
from ....parts.residual.wiring import PreNorm
from ...formats.folder import Folder
from ...rename import Computed, Fused, Same, Table, both, restore
from ..greedy import continued, ids
from ..inputs import Outputs, must_hold, understood
from ..shapes.shared import mean_loss, must_read

BASE = 10000.0  # of the rotation
SMALLEST = 1e-12  # a stream is divided at least by this length


class InfiniTransformer(Theirs):
    """The arguments of InfiniTransformer and of its wrapper; the defaults are theirs."""

    num_tokens: Size
    dim: Size
    depth: Size
    dim_head: Size = 128
    heads: Size = 8
    attn_dropout: Share = 0.0
    ff_mult: Positive = 4.0
    ff_dropout: Share = 0.0
    use_mem_delta_rule: Flag = False
    segment_length: Size = 512

    def ours(self) -> Decoder.Config:
        """The same as a heed model."""
        hidden = int(self.ff_mult * self.dim * 2 / 3)
        if hidden < 1:
            raise WeightsError(f"ff_mult {self.ff_mult} leaves a feed-forward of width {self.dim} no hidden channel")
        return Decoder.Config(
            vocabulary=self.num_tokens,
            width=self.dim,
            depth=self.depth,
            mixer=Infini.Config(
                heads=self.heads,
                head_size=self.dim_head,
                bias=False,
                dropout=self.attn_dropout,
                segment=self.segment_length,
                update="delta" if self.use_mem_delta_rule else "linear",
                position=Rope.Config(layout="pairs"),
                gates="local",
                ungated_first=True,
                floor=1e-10,
            ),
            feedforward=Gated.Config(hidden=hidden, activation="gelu", bias=True, dropout=self.ff_dropout),
            norm=RMSNorm(eps=SMALLEST**2 / self.dim),
            wiring=PreNorm(),
            tied=False,
            head_bias=True,
        )

    def names(self) -> Table:
        """Their tensors, and ours."""
        theirs, ours = "layers.{i}", "stack.blocks.{i}"
        speeds = torch.tensor(frequencies(self.dim_head // 2, BASE), dtype=torch.float64)
        return (
            Same("token_emb.weight", "embeddings.table.weight"),
            Same(f"{theirs}.0.norm.gamma", f"{ours}.wiring.norms.0.weight"),
            Fused(f"{theirs}.0.to_qkv.weight", tuple(f"{ours}.mixer.{part}.weight" for part in PARTS)),
            Same(f"{theirs}.0.to_out.weight", f"{ours}.mixer.out.weight"),
            Same(f"{theirs}.0.fastweight_mem.head_gates", f"{ours}.mixer.gate"),
            Computed(f"{theirs}.0.rotary_emb.freqs", f"{ours}.mixer.gate", speeds),
            Same(f"{theirs}.1.norm.gamma", f"{ours}.wiring.norms.1.weight"),
            *(Fused(f"{theirs}.1.proj_in.{kind}", _halves(ours, kind)) for kind in ("weight", "bias")),
            *both(f"{theirs}.1.proj_out", f"{ours}.feedforward.down"),
            Same("norm.gamma", "stack.ends.final.weight"),
            *both("to_logits", "head"),
        )


PARTS = ("query", "key", "value")


def _halves(ours: str, kind: str) -> tuple[str, str]:
    return f"{ours}.feedforward.up.{kind}", f"{ours}.feedforward.gate.{kind}"


def model(folder: Folder) -> Decoder:
    """The model in a folder of the family `infini`."""
    theirs = understood(folder, InfiniTransformer)
    must_hold(folder, theirs.dim, theirs.depth)
    return restore(lambda: theirs.ours().build(), folder, theirs.names())


def outputs(folder: Folder) -> Outputs:
    """Logits at every token; what each layer remembers after every segment, a short last one counted in, as `kv_mem`
    and `k_norm` by segment and layer; a greedy continuation, which may begin before the last token; and a mean loss.
    """
    must_read(folder, "attention_mask", "position_ids", "labels")
    decoder, tokens = model(folder), ids(folder, "input_ids")
    made = _by_segments(decoder, tokens, understood(folder, InfiniTransformer).segment_length)
    if tokens.shape[1] > 1:
        made["loss_mean_ce"] = mean_loss(made["logits"][:, :-1], tokens[:, 1:])
    return made | continued(folder, decoder, tokens)


def _by_segments(decoder: Decoder, tokens: Tensor, length: int) -> Outputs:
    """One call per segment, and a look at what is remembered after each."""
    rows, made, logits = tokens.shape[0], dict[str, Tensor](), list[Tensor]()
    state: States = decoder.start(rows)
    for number, piece in enumerate(torch.split(tokens, length, 1)):
        step_logits, after = decoder(piece, Where.run(rows, piece.shape[1], start=number * length), state)
        assert after is not None  # a state came in, so one comes out
        state = after
        logits.append(step_logits)
        for layer, (block, held) in enumerate(zip(decoder.stack.layers, state, strict=True)):
            mixer, remembered = cast(Infini, block.mixer), cast(Remembered, cast(States, held)[0])
            made[f"kv_mem.{number}.{layer}"], made[f"k_norm.{number}.{layer}"] = mixer.closed(remembered)
    return made | {"logits": torch.cat(logits, 1)}
