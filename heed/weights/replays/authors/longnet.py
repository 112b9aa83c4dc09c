"""LongNet (Ding et al. 2023): torchscale's Decoder and Encoder with dilated attention.

The reference knows no padding here: padding masks are passed over, but for embeddings, which the encoder multiplies by
zero at padding. So all columns of a batch are tokens.
"""

from __future__ import annotations

from ast import literal_eval
from typing import Annotated, Literal, TypeAlias

from annotated_types import MinLen
from pydantic import BeforeValidator

from ....core.config import Size
from ....core.contract import MixerConfig, Where
from ....core.errors import WeightsError
from ....mixers import Dilated
from ....models.decoder import Decoder
from ....models.encoder import Encoder
from ....parts.masks import Causal, Whole
from ...formats.folder import CONFIG, Folder
from ..inputs import Outputs, Padded, sequence
from . import torchscale
from .torchscale import Side, TorchscaleConfig, corrected, depths, one_by_one, side_of


def _listed(value: object) -> object:
    """ "[8, 16]", as the command line has it."""
    if not isinstance(value, str):
        return value
    try:
        found = literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"{value!r} is not a list of numbers, such as [2048, 4096]") from None
    return found if isinstance(found, tuple | list) else (found,)


Sizes: TypeAlias = Annotated[tuple[Size, ...], MinLen(1), BeforeValidator(_listed)]


class LongNet(TorchscaleConfig):
    """LongNetDecoder or LongNetEncoder."""

    segment_length: Sizes
    dilated_ratio: Sizes
    seq_parallel: Literal[False] = False  # keys of other processes
    rel_pos_buckets: Literal[0] = 0  # torchscale has no relative positions beside dilated attention

    def mixer(self, side: Side) -> MixerConfig:
        return Dilated.Config(
            heads=self.attention_heads,
            segments=self.segment_length,
            dilations=self.dilated_ratio,
            mask=Causal() if side == "decoder" else Whole(),
            position=self.relation(),
            norm=self.inner,
            detached=True,
            filled=side == "encoder",
        )


def model(folder: Folder) -> Decoder | Encoder:
    """The model in a folder of the family `longnet`."""
    return torchscale.model(folder, LongNet)


def outputs(folder: Folder) -> Outputs:
    """Family `longnet`: the stream at every depth, what comes out at the end, and the first attention alone."""
    side = side_of(folder)
    tokens = sequence(folder, "prev_output_tokens" if side == "decoder" else "src_tokens")
    _must_align(folder, tokens.shape[1])
    backbone = model(folder)
    where = Where.run(*tokens.shape)
    x = backbone.embeddings(tokens, where)
    if side == "encoder":
        x = x * Padded.hiding(folder, "encoder_padding_mask", tokens).real[..., None]
    inner, last = depths(backbone, x, where)
    stem = "inner_states" if side == "decoder" else "encoder_states"
    made = {f"{stem}.{depth}": x for depth, x in enumerate(inner)}
    if "attn0_input" in (folder.wanted or ()):
        alone = folder.extra("attn0_input")
        made["attn0_input"] = alone
        made["attn0_output"] = backbone.stack.layers[0].mixer(alone, Where.run(*alone.shape[:2]))[0]
    if side == "encoder":
        return made | {"encoder_out": last}
    made["logits" if isinstance(backbone, Decoder) else "features"] = last
    if isinstance(backbone, Decoder) and folder.wants("logits_incremental"):
        made["logits_incremental"] = one_by_one(backbone, tokens, where)
    return made


def _must_align(folder: Folder, length: int) -> None:
    """Raise where the reference loses track: it fills segments up to whole steps, and does not take that out again."""
    theirs = corrected(folder, LongNet)
    for segment, step in zip(theirs.segment_length, theirs.dilated_ratio, strict=False):
        if segment < length and segment % step:
            raise WeightsError(
                f"{folder.path / CONFIG}: segments of {segment} tokens are no whole number of steps of {step}; over "
                f"{length} tokens torchscale gives what belongs to one token to a later one, which heed does not; use "
                f"a segment_length that is a multiple of its dilated_ratio, or at most {segment} tokens"
            )
