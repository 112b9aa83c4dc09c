"""What a Reformer gives as its reference runs it: over the width of the batch, filled up to whole chunks.

A row of heed is as long as its own tokens. In the reference hidden tokens are part of the row: they ask, but are no
keys (`HiddenLsh`, `HiddenLocal`), and hidden states are told of the columns that it adds as well. Its rotations may be
an input.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ....core.contract import Mixer, Where
from ....core.errors import InputError, WeightsError
from ....core.state import Seen
from ....mixers import Attention, Local, Lsh
from ....models import Decoder, Encoder
from ....parts.attention.lsh import even
from ....parts.outputs.loss import NO_LABEL
from ...families.reformer import Reformer
from ...formats.folder import INPUTS, OUTPUTS, Folder
from ..greedy import generated, greedy
from ..hidden import HiddenLocal, HiddenLsh, mixers_swapped, with_weights_of
from ..inputs import Outputs, Padded, sequence, streams
from .encoder import answered
from .shared import mean_loss, must_read, widened

ROTATIONS = "random_rotations"


def outputs(model: Decoder | Encoder, family: Reformer, folder: Folder) -> Outputs:
    """As of a decoder or an encoder, but for weights. `hidden_states` are of the second stream, which attention reads.

    A continuation is made only where no layer hashes: the reference sorts old tokens by bucket once and puts a new one
    beside what it finds, which is not what one call over the whole text gives.
    """
    must_read(folder, "num_hashes", "position_ids")
    tokens = sequence(folder, "input_ids")
    length, width = tokens.shape[1], family.filled(tokens.shape[1])
    wide = widened(folder, width, family.pad_token_id or 0)
    shown = Padded.showing(wide, "attention_mask", wide.inputs["input_ids"]).real
    where = Where.run(*shown.shape)
    rotations = _rotations(model, family, folder, width)
    with mixers_swapped(model.stack, partial(_ring, family=family, shown=shown, rotations=rotations)):
        try:
            depths = streams(model.stack, model.embeddings(wide.inputs["input_ids"], where), where)
        except InputError as error:
            raise WeightsError(f"{folder.path / INPUTS}: {error}") from None
    last, shown, where = model.stack.ends.leave(depths[-1])[:, :length], shown[:, :length], Where.run(*tokens.shape)
    made = {f"hidden_states.{depth}": x.chunk(2, -1)[1] for depth, x in enumerate(depths)} | {"last_hidden_state": last}
    if isinstance(model, Encoder):
        return answered(model, folder, made, Seen.of(where, last), Padded.of(torch.ones_like(shown)), shown)
    made["logits"] = model.head(last)
    if "labels" in folder.inputs:
        labels = torch.nn.functional.pad(sequence(folder, "labels")[:, 1:], (0, 1), value=NO_LABEL)
        made["loss"] = mean_loss(made["logits"], labels)
    return made | _continued(model, family, folder, tokens)


def _continued(model: Decoder, family: Reformer, folder: Folder, tokens: Tensor) -> Outputs:
    """The reference hands no mask on when it generates: all tokens count."""
    stem, steps = generated(folder, tokens.shape[1])
    if not steps or (folder.wanted is None and not _continues(model, family)):
        return {}
    if not _continues(model, family):
        raise WeightsError(
            f"{folder.path / OUTPUTS} holds a continuation; where layers hash, or look back more than one chunk, the "
            "reference continues a text otherwise than it reads it as a whole, which heed does not; record one call"
        )
    written, logits = greedy(model, tokens, Where.run(*tokens.shape), steps)
    return {f"{stem}step_logits": logits, f"{stem}sequences": torch.cat((tokens, written), 1)}


def _continues(model: Decoder, family: Reformer) -> bool:
    return model.streams and family.local_num_chunks_before <= 1


def _ring(mixer: Mixer[Any], family: Reformer, shown: Tensor, rotations: Iterator[Tensor]) -> Mixer[Any]:
    """The same mixer, with the same weights, over rows that are as long as the batch; local layers are rings, too.

    That matters where a text has few chunks: one whose neighbour would lie beyond the whole ring sees itself once more.
    """
    width = shown.shape[1]
    if isinstance(mixer, Lsh):
        assert mixer.chunks is not None  # as the family builds it
        chunks, factors = mixer.chunks.model_copy(update={"filled": width}), even(family.buckets_at(width))
        return with_weights_of(mixer, HiddenLsh, shown=shown, chunks=chunks, factors=factors, rotation=next(rotations))
    local = mixer
    if isinstance(mixer, Attention):
        local = family.ring().build(family.hidden_size).eval()
        for name in ("query", "key", "value", "out"):
            setattr(local, name, getattr(mixer, name))
    assert isinstance(local, Local)  # there are no others in a Reformer
    return with_weights_of(local, HiddenLocal, shown=shown, chunks=local.chunks.model_copy(update={"filled": width}))


def _rotations(model: Decoder | Encoder, family: Reformer, folder: Folder, width: int) -> Iterator[Tensor]:
    """Rotations that were recorded, or those of the seed for as many buckets as a text of this width has."""
    mixers = [block.mixer for block in model.stack.layers if isinstance(block.mixer, Lsh)]
    for number, mixer in enumerate(mixers):
        name = f"{ROTATIONS}.{number}"
        if name not in folder.inputs and family.hash_seed is None and width > family.lsh_attn_chunk_length:
            raise WeightsError(
                f"{folder.path / INPUTS}: hash_seed is not set, so the reference drew its rotations anew; record them "
                f"as {name}"
            )
        shape = int(mixer.heads), int(mixer.head_size), int(mixer.rounds), sum(even(family.buckets_at(width))) // 2
        draw = torch.Generator().manual_seed(mixer.seed)
        given = folder.inputs.get(name)
        given = torch.randn(shape, generator=draw, dtype=folder.dtype) if given is None else given
        if given.shape != shape:
            raise WeightsError(
                f"{folder.path / INPUTS}: {name}: rotations of the shape {list(given.shape)} were given, needed is "
                f"{list(shape)}"
            )
        yield given
