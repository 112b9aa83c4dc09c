"""What a BigBird gives as its reference runs it: over the width of the batch, filled up to whole blocks.

A row of heed has its own last block. The reference lays blocks over all columns, padding too, which is hidden
(`HiddenBigBird`); hidden states and weights are told of the columns that it adds as well. In training (`training_mode`)
it draws blocks anew in every layer, from numpy's generator seeded with the number of the layer: they are drawn again
here, or read where they were written down.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.random import RandomState
from torch import Tensor
from torch.nn import functional as F

from ....core.errors import WeightsError
from ....mixers import BigBird as Sparse
from ....models import Encoder
from ....parts.attention.sdpa import masked_softmax
from ...families.base import read
from ...families.big_bird import AROUND, BigBird
from ...formats.folder import CONFIG, OUTPUTS, Folder
from ..hidden import with_weights_of
from ..inputs import Outputs, sequence
from . import encoder
from .shared import widened

OLD = (1024, 3072, 4096)  # lengths for which blocks are drawn as the first checkpoints were trained
OLD_LAST = 1024  # and up to which token
TOLD = ("last_hidden_state", "logits", "prediction_logits")  # of the columns given; a text's logits have none


def outputs(family: BigBird, folder: Folder) -> Outputs:
    """As of any encoder."""
    tokens = sequence(folder, "input_ids")
    length, size = tokens.shape[1], family.block_size
    full = family.attention_type == "original_full" or length <= family.full * size
    if folder.config.get("training_mode"):
        _must_not_drop(folder, *(("attention_probs_dropout_prob",) if full else ()))
    if full:
        return encoder.outputs(_opened(folder, "original_full"), family, folder)
    model = _opened(folder, "block_sparse")
    width = -(-length // size) * size
    drawn = _drawn(family, folder, width)
    mixers = [mixer for block in model.stack.layers for mixer in [block.mixer] if isinstance(mixer, Sparse)]
    made: Outputs = {}
    if folder.config.get("training_mode"):
        made |= {f"rand_attn.{layer}": ids for layer, ids in enumerate(_planned(family, width))}
        for block, mixer, ids in zip(model.stack.layers, mixers, drawn, strict=True):
            config = mixer.config.model_copy(update={"repeats_first": False})
            block.mixer = with_weights_of(mixer, Redrawn, ids=ids, config=config)
    wide = widened(folder, width, family.pad_token_id or 0)
    made |= encoder.outputs(model, family, wide)
    cut = [name for name in (*TOLD, f"hidden_states.{family.layers}") if name in made and made[name].dim() > 2]
    made |= {name: made[name][:, :length] for name in cut}
    shown = wide.inputs["attention_mask"].bool()
    for layer, (mixer, ids) in enumerate(zip(mixers, drawn, strict=True)):
        if folder.wants(f"attentions.{layer}"):
            made[f"attentions.{layer}"] = _weights(mixer, made[f"hidden_states.{layer}"], shown, ids)
    return made


def _opened(folder: Folder, kind: str) -> Encoder:
    """The model with this kind of attention, whatever its config says."""
    checkpoint = folder.checkpoint
    model = read(BigBird, replace(checkpoint, config=checkpoint.config | {"attention_type": kind})).model
    assert isinstance(model, Encoder)  # which is what a BigBird is
    return model


class Redrawn(Sparse):
    """With random blocks that are given, [H, m - 2, r], instead of its own."""

    ids: Tensor

    def drawn(self, count: int) -> Tensor:
        return F.pad(self.ids, (0, 0, 1, 1), value=-1)


def _must_not_drop(folder: Folder, *weights: str) -> None:
    """Sparse attention drops no weights."""
    drops = [name for name in ("hidden_dropout_prob", "classifier_dropout", *weights) if folder.config.get(name)]
    if drops:
        raise WeightsError(
            f"{folder.path / CONFIG} has training_mode and {' and '.join(drops)}, and what was dropped cannot be "
            "known; record it with a dropout of 0"
        )


def _drawn(family: BigBird, folder: Folder, width: int) -> list[Tensor]:
    """The random blocks of every layer: block 0 unless it was training. [H, m - 2, r]"""
    shape = (family.num_attention_heads, width // family.block_size - 2, family.num_random_blocks)
    if not folder.config.get("training_mode"):
        return [torch.zeros(shape, dtype=torch.long)] * family.layers
    names = [f"rand_attn.{layer}" for layer in range(family.layers)]
    if not all(name in (folder.wanted or ()) for name in names):
        return _planned(family, width)
    given = [folder.extra(name) for name in names]
    for name, ids in zip(names, given, strict=True):
        if ids.shape != shape or ids.is_floating_point() or bool(((ids < 0) | (ids >= shape[1] + 2)).any()):
            raise WeightsError(
                f"{folder.path / OUTPUTS}: {name} must hold numbers of {shape[1] + 2} blocks in the shape "
                f"{list(shape)}, it has {ids.dtype} in {list(ids.shape)}"
            )
    return [ids.long() for ids in given]


def _planned(family: BigBird, width: int) -> list[Tensor]:
    """What the reference draws in each of its layers."""
    plan = _old_plan if width in OLD else _plan
    return [torch.from_numpy(plan(family, width, RandomState(layer))).long() for layer in range(family.layers)]


def _plan(family: BigBird, width: int, draw: RandomState) -> np.ndarray:
    """Of the first blocks, as many as would be too few to be sparse, those that a block does not see.

    The last of these never is drawn, as if it were the end; neither are its neighbour by the second block, and the
    second by that neighbour. [H, m - 2, r]
    """
    heads, random, blocks = family.num_attention_heads, family.num_random_blocks, width // family.block_size
    end = AROUND + 2 * random
    found = np.zeros((heads, blocks, random), dtype=np.int64)
    for block in range(1, blocks):
        seen = {block - 1, block, block + 1, 0, end - 1}
        seen |= {end - 2} if block == 1 else {1} if block == end - 2 else set()
        for head in range(heads):
            mixed = draw.permutation(np.arange(end, dtype=np.int32))
            found[head, block] = [choice for choice in mixed if choice not in seen][:random]
    return found[:, 1:-1]


def _old_plan(family: BigBird, width: int, draw: RandomState) -> np.ndarray:
    """Of the blocks among the first 1024 tokens, over as many rows as there are positions. [H, m - 2, r]"""
    heads, random, size = family.num_attention_heads, family.num_random_blocks, family.block_size
    blocks = family.max_position_embeddings // size
    middle = np.arange(1, blocks - 1, dtype=np.int32)
    last = OLD_LAST // size - 1 if 2 * size < OLD_LAST else blocks - 1
    found = np.zeros((heads, blocks - 2, random), dtype=np.int64)
    for head in range(heads):
        for block in range(1, blocks - 1):
            begin = block - 2
            if block <= 2:
                free = middle[block + 1 : last]
            elif block >= blocks - 3 or begin > last:
                free = middle[:last]
            elif block + 1 == last:
                free = middle[:begin]
            else:
                free = np.concatenate((middle[:begin], middle[block + 1 : last]))
            found[head, block - 1] = draw.permutation(free)[:random]
    return found[:, : width // size - 2]


def _weights(mixer: Sparse, x: Tensor, shown: Tensor, drawn: Tensor) -> Tensor:
    """The weights as the reference lists them: of a block that counts several times, one of them. [B, H, T, T]

    A hidden token asks, too, though its answer is blanked: no random blocks and, unless its block is next to an end,
    none of its window. Random blocks are listed last, so what it takes from a block that is random, too, is lost.
    """
    size, blocks = mixer.config.block, x.shape[1] // mixer.config.block
    place = torch.arange(blocks)
    ends = (place == 0) | (place == blocks - 1)
    fixed = ((place - place[:, None]).abs() <= 1) | ends | ends[:, None]  # [m, m]
    random = torch.zeros(len(drawn), blocks, blocks, dtype=torch.long)
    random[:, 1:-1].scatter_add_(2, drawn, torch.ones_like(drawn))
    beside = ends | ends.roll(1) | ends.roll(-1)
    asked = fixed & (ends | beside[:, None])  # by hidden tokens

    def spread(pairs: Tensor) -> Tensor:
        return pairs.repeat_interleave(size, -2).repeat_interleave(size, -1)[None]

    score = torch.einsum("bthd,bnhd->bhtn", mixer.queries(x), mixer.keys(x)) * mixer.scale
    times, keys, queries = spread(fixed + random), shown[:, None, None], shown[:, None, :, None]
    weight = masked_softmax(score + times.clamp(min=1).to(score.dtype).log(), (times > 0) & keys)
    hidden = masked_softmax(score, spread(asked) & keys).masked_fill(spread(random) > 0, 0)
    return torch.where(queries, weight / times.clamp(min=1), hidden)
