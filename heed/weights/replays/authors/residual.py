"""ResiDual (Xie et al. 2023) as its authors' layers compute it: an encoder and a decoder between embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ....core.config import Number, Positive, Size, Theirs
from ....core.state import Seen
from ....mixers import Attention, Cross
from ....models.stack import Stack
from ....parts.feedforward import FeedForward
from ....parts.masks import Causal, Whole
from ....parts.residual.wiring import ResiDual
from ...formats.folder import Folder
from ...rename import Table, both, restore
from ..inputs import Outputs, Padded, must_hold, sequence, streams, understood


def _layers(side: str, attention: dict[str, str]) -> Table:
    theirs, ours = f"{side}_layers.{{i}}", f"{side}.blocks.{{i}}"
    table: Table = (
        *both(f"{theirs}.fc1", f"{ours}.feedforward.up"),
        *both(f"{theirs}.fc2", f"{ours}.feedforward.down"),
        *both(f"{theirs}.final_layer_norm", f"{ours}.wiring.norms.{len(attention)}"),
        *both(f"{side}_layer_norm", f"{side}.ends.final"),
    )
    for index, (name, part) in enumerate(attention.items()):
        table += both(f"{theirs}.{name}_layer_norm", f"{ours}.wiring.norms.{index}")
        for what, projection in {"q": "query", "k": "key", "v": "value", "out": "out"}.items():
            table += both(f"{theirs}.{name}.{what}_proj", f"{ours}.{part}.{projection}")
    return table


NAMES: Table = (
    *_layers("encoder", {"self_attn": "mixer"}),
    *_layers("decoder", {"self_attn": "mixer", "encoder_attn": "cross"}),
)


class Residual(Theirs):
    """The numbers of both stacks."""

    d: Size
    heads: Size
    ffn: Size
    enc_layers: Size
    dec_layers: Size
    enc_alpha: Number = 1.0
    dec_alpha: Number = 1.0
    enc_res_input_norm_scale: Positive = 1.0
    dec_res_input_norm_scale: Positive = 1.0
    final_norm_eps: Positive = 1e-7

    def encoder(self) -> Stack.Config:
        """The encoder as a heed stack."""
        return Stack.Config(
            width=self.d,
            depth=self.enc_layers,
            mixer=Attention.Config(heads=self.heads, mask=Whole()),
            feedforward=FeedForward.Config(hidden=self.ffn),
            wiring=ResiDual(scale=self.enc_res_input_norm_scale, alpha=self.enc_alpha, eps=self.final_norm_eps),
        )

    def decoder(self) -> Stack.Config:
        """The decoder as a heed stack."""
        return Stack.Config(
            width=self.d,
            depth=self.dec_layers,
            mixer=Attention.Config(heads=self.heads, mask=Causal()),
            cross=Cross.Config(heads=self.heads),
            feedforward=FeedForward.Config(hidden=self.ffn),
            wiring=ResiDual(scale=self.dec_res_input_norm_scale, alpha=self.dec_alpha, eps=self.final_norm_eps),
        )


class Pair(nn.Module):
    """Two stacks without tokens."""

    def __init__(self, theirs: Residual) -> None:
        super().__init__()
        self.encoder, self.decoder = Stack(theirs.encoder()), Stack(theirs.decoder())


def model(folder: Folder) -> Pair:
    """The two stacks in a folder of the family `residual`."""
    theirs = understood(folder, Residual)
    must_hold(folder, theirs.d, theirs.enc_layers + theirs.dec_layers)
    return restore(lambda: Pair(theirs), folder, NAMES)


def outputs(folder: Folder) -> Outputs:
    """Family `residual`: both streams after every layer and what comes out at the end; time comes first."""
    pair, width = model(folder), understood(folder, Residual).d
    source, target = (sequence(folder, name, width) for name in ("src_embeds", "tgt_embeds"))
    hidden = Padded.hiding(folder, "encoder_padding_mask", source)
    inner = streams(pair.encoder, hidden.aligned(source), hidden.where)
    last = pair.encoder.ends.leave(inner[-1])
    made = {"encoder_out": hidden.back(last)} | _both("enc", [hidden.back(x) for x in inner[1:]])

    encoder_output = Seen.of(hidden.where, last)
    shown = Padded.of(torch.ones(target.shape[:2], dtype=torch.bool))
    inner = streams(pair.decoder, target, shown.where.give(encoder_output=encoder_output))
    made |= {"decoder_out": pair.decoder.ends.leave(inner[-1])} | _both("dec", inner[1:])
    return {name: tensor.transpose(0, 1).contiguous() for name, tensor in made.items()}


def _both(side: str, inner: list[Tensor]) -> Outputs:
    """The two streams, which ride side by side in the channels."""
    made: Outputs = {}
    for layer, x in enumerate(inner):
        made[f"{side}_x.{layer}"], made[f"{side}_res.{layer}"] = x.chunk(2, -1)
    return made
