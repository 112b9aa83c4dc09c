"""What a LongT5 gives: what T5 gives, but the weights of its encoder block by block, as its reference holds them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ....mixers import TransientGlobal
from ....models import Encoder, Seq2seq
from ...families.longt5 import LongT5
from ...formats.folder import Folder
from ..inputs import Outputs, Padded, sequence
from . import encoder, seq2seq
from .shared import Depths


def outputs(model: Encoder | Seq2seq, family: LongT5, folder: Folder) -> Outputs:
    """All that an encoder-decoder gives, or an encoder, with weights [B, blocks, H, size, 3·size + summaries].

    A block is `local_radius` + 1 tokens, put beside itself and its neighbours; behind these stand the summaries.
    """
    if isinstance(model, Seq2seq):
        made, reader, side = seq2seq.outputs(model, family, folder), model.encoder, "encoder_"
        assert isinstance(reader, Encoder)  # seq2seq.outputs has seen to it
    else:
        made, reader, side = encoder.outputs(model, family, folder), model, ""
    tokens = sequence(folder, "input_ids")
    padded = Padded.showing(folder, "attention_mask", tokens, family.places)
    depths = Depths.of(reader.stack, reader.embeddings(padded.aligned(tokens), padded.where), padded.where)
    for layer, (block, weights) in enumerate(zip(reader.stack.layers, depths.weights, strict=True)):
        mixer = block.mixer if isinstance(block.mixer, TransientGlobal) else None
        made[f"{side}attentions.{layer}"] = _in_blocks(weights, padded, family, mixer)
    return made


def _in_blocks(weights: Tensor, padded: Padded, family: LongT5, mixer: TransientGlobal | None) -> Tensor:
    """[B, H, T, T + G], of tokens that were moved to the front, as their reference holds it."""
    real, size = padded.real, family.local_radius + 1
    tokens = real.shape[1]
    near = _cut(padded.pairs_back(weights[..., :tokens]), size)  # [B, n, H, size, 3·size]
    shown = torch.unflatten(F.pad(real, (0, -tokens % size)), 1, (-1, size))[:, :, None, :, None]
    if mixer is None:
        return near.masked_fill(~shown, 1 / (3 * size))  # a hidden token looks at everything alike
    many = tokens // family.global_block_size
    far = padded.back(weights[..., tokens:].transpose(1, 2)).transpose(1, 2)  # [B, H, T, G]
    far = F.pad(far, (0, many - far.shape[3], 0, -tokens % size))
    far = torch.unflatten(far, 2, (-1, size)).transpose(1, 2)
    near, far = near.masked_fill(~shown, 0), torch.where(shown, far, 0)
    return torch.cat((near, far), -1) + (~shown) * _hidden(padded, family, mixer, near.dtype)


def _hidden(padded: Padded, family: LongT5, mixer: TransientGlobal, dtype: torch.dtype) -> Tensor:
    """What tokens look at that are hidden, or that fill the last block. [B, n, H, size, 3·size + G]

    The former see the summaries that do not count in their row, or else everything alike; the latter all summaries.
    """
    size, tokens = family.local_radius + 1, padded.real.shape[1]
    many, heads = tokens // family.global_block_size, mixer.heads
    last = mixer.blocks(padded.where).amax(1)  # [B]
    number = torch.arange(many)
    spare = (number > last[:, None])[:, None]  # [B, 1, G]
    score = mixer.position.far.table[mixer.position.far.bucket(number + 1)].T.to(dtype)  # [H, G]
    far = score.expand(len(last), heads, -1).masked_fill(~spare, float("-inf")).softmax(-1)
    far = F.pad(far, (3 * size, 0))
    alike = torch.full_like(far, 1 / (3 * size + many))
    hidden = torch.where(spare.any(-1, keepdim=True), far, alike)[:, :, None].expand(-1, -1, tokens, -1)
    beyond = torch.full_like(alike, 1 / many if many else 1 / (3 * size))
    beyond[..., : 3 * size if many else 0] = 0
    beyond = beyond[:, :, None].expand(-1, -1, -tokens % size, -1)
    return torch.unflatten(torch.cat((hidden, beyond), 2), 2, (-1, size)).transpose(1, 2)


def _cut(weights: Tensor, size: int) -> Tensor:
    """Every block beside itself and its neighbours. [B, H, T, T] -> [B, n, H, size, 3·size]"""
    lacking = -weights.shape[2] % size
    wide = F.pad(weights, (size, size + lacking, 0, lacking))
    wide = torch.unflatten(wide, 2, (-1, size))  # [B, H, n, size, (n + 2)·size]
    windows = wide.unfold(4, 3 * size, size)  # [B, H, n, size, n, 3·size]
    return windows.diagonal(dim1=2, dim2=4).permute(0, 4, 1, 2, 3)
