"""What a Reformer gives: its rotations may be an input, and texts are filled up together, padding included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from ...core.errors import ConfigError, WeightsError
from ...mixers import Attention, Hashed, Ringed
from ...models import Decoder, Encoder
from ...parts.chunks import Chunks
from ...parts.hashing import drawn, even
from ..families.reformer import Reformer
from ..feed import Outputs, Padded, sequence, streams
from ..folder import INPUTS, Folder
from . import decoder, encoder
from .shared import must_read

ROTATIONS = "random_rotations"


def outputs(model: Decoder | Encoder, family: Reformer, folder: Folder) -> Outputs:
    """As of a decoder or an encoder. `hidden_states` are those of the second stream, which the attention reads.

    A continuation is made only where no layer hashes: the reference sorts old tokens by bucket once and puts a new one
    beside what it finds, which is not what one call over the whole text gives.
    """
    must_read(folder, "num_hashes", "position_ids")
    tokens = sequence(folder, "input_ids")
    padded = Padded.showing(folder, "attention_mask", tokens, family.places)
    with _closed(model, family, tokens.shape[1]), _filled(model, tokens.shape[1]):
        _hash(model, family, folder, tokens.shape[1])
        outcome = decoder.outputs if isinstance(model, Decoder) else encoder.outputs
        made = outcome(model, family, folder)  # type: ignore[operator]  # each takes its own shape
        where = padded.where
        depths = streams(model.stack, model.front(padded.front(tokens), where), where)
    second = {f"hidden_states.{depth}": padded.back(x.chunk(2, -1)[1]) for depth, x in enumerate(depths)}
    return {name: x for name, x in made.items() if not name.startswith("attentions.")} | second


@contextmanager
def _closed(model: Decoder | Encoder, family: Reformer, tokens: int) -> Iterator[None]:
    """While this lasts, local layers of a decoder are rings where the text has so few chunks that it matters.

    In the reference a chunk whose neighbour would lie beyond the whole ring sees itself once more instead.
    """
    local = [block for block in model.stack.layers if isinstance(block.mixer, Attention)]
    before = [block.mixer for block in local]
    if -(-tokens // family.step) * family.step <= family.local_num_chunks_before * family.local_attn_chunk_length:
        for block in local:
            ring = family.ring().build(family.hidden_size)
            for name in ("query", "key", "value", "out"):
                setattr(ring, name, getattr(block.mixer, name))
            block.mixer = ring.eval()
    try:
        yield
    finally:
        for block, mixer in zip(local, before, strict=True):
            block.mixer = mixer


@contextmanager
def _filled(model: Decoder | Encoder, tokens: int) -> Iterator[None]:
    """While this lasts, every row is as long as the batch, as in the reference."""
    rings = [part for part in model.stack.modules() if isinstance(part, Hashed | Ringed) and part.chunks is not None]
    before = [part.chunks for part in rings]
    for part, chunks in zip(rings, before, strict=True):
        part.chunks = Chunks(**{**dict(chunks or ()), "filled": tokens})
    try:
        yield
    finally:
        for part, chunks in zip(rings, before, strict=True):
            part.chunks = chunks  # type: ignore[assignment]  # what it was


def _hash(model: Decoder | Encoder, family: Reformer, folder: Folder, tokens: int) -> None:
    """Rotations that were recorded, or those of the seed for as many buckets as a text of this length has."""
    mixers = [block.mixer for block in model.stack.layers if isinstance(block.mixer, Hashed)]
    factors = even(family.buckets_at(-(-tokens // family.step) * family.step))
    for number, mixer in enumerate(mixers):
        name = f"{ROTATIONS}.{number}"
        if name not in folder.inputs and family.hash_seed is None and tokens > family.lsh_attn_chunk_length:
            raise WeightsError(
                f"{folder.path / INPUTS}: hash_seed is not set, so the reference drew its rotations anew; record them "
                f"as {name}"
            )
        shape = int(mixer.heads), int(mixer.head_size), int(mixer.rounds), sum(factors) // 2
        given = folder.inputs.get(name)
        try:
            mixer.turn(drawn(mixer.seed, *shape) if given is None else given, factors)
        except ConfigError as error:
            raise WeightsError(f"{folder.path / INPUTS}: {name}: {error}") from None
