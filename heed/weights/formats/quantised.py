"""Quantised checkpoints: heed's own layout, which no other library reads.

config.json         model_type "heed"; the model and its edits, typed; beside them the config that the checkpoint had
model.safetensors   every tensor under the name it has in the model: codes and scales in the place of matrices
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, TypeAlias

from ...core.config import Config, Data, OneOf
from ...core.errors import ConfigError, WeightsError
from ...models import ENCODERS_OF_CLIP, MODELS, MULTIMODAL, Shape
from ..edits import Edit, Quantised, SomeEdits, edit
from ..edits.quantised import is_quantised
from ..families.base import Family, Opened, must_hold
from ..outline import EACH
from ..rename import restore
from . import native as own
from .checkpoint import OWN, Checkpoint

SOURCE = "source"

AnyShape: TypeAlias = Annotated[Shape, OneOf(lambda: MODELS + MULTIMODAL + ENCODERS_OF_CLIP)]


class Told(Config):
    """The model and its edits, as config.json holds them."""

    model: AnyShape
    edits: SomeEdits


def quantised(opened: Opened, change: Quantised) -> Opened:
    """The same checkpoint with its matrices quantised, laid out as heed writes it."""
    edit(opened.model, change)
    if not any(map(is_quantised, opened.model.modules())):
        raise WeightsError(
            f"{change.bits} quantises nothing of this model: it has no plain matrix and no table of tokens"
        )
    return laid_out(replace(opened, edits=(*opened.edits, change)))


def laid_out(opened: Opened) -> Opened:
    """A quantised checkpoint as it is to be written."""
    edits: tuple[Edit, ...] = opened.edits
    told = Told(model=opened.shape, edits=edits).dump()
    config = {"model_type": OWN, **told, SOURCE: opened.config}
    return replace(opened, table=own.names(opened.model), config=config, dtypes={})


def theirs(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint that this one was made of, as far as its config tells."""
    found = checkpoint.config.get(SOURCE)
    if not isinstance(found, dict):
        raise WeightsError(
            f"{checkpoint.place}: its config must hold that of the checkpoint it was made of ({SOURCE}), it has "
            f"{found!r}; write it anew: heed convert PATH OUT --quantise int8"
        )
    return replace(checkpoint, config=found)


def read(kind: type[Family], config: Data, checkpoint: Checkpoint) -> Opened:
    """A quantised checkpoint, ready to use; `config` is that of the one it was made of."""
    try:
        family = kind.load(config)
        told = Told.load({name: value for name, value in checkpoint.config.items() if name in Told.model_fields})
        must_hold(told.model, checkpoint.tensors)
    except ConfigError as error:
        raise WeightsError(f"{checkpoint.place}: its config cannot be used: {error}") from None
    model = restore(
        lambda: edit(told.model.build(), *told.edits),
        checkpoint,
        lambda model: own.names(model, checkpoint.tensors),
        EACH,
    )
    return Opened(family, model, (), config, {}, told.model, told.edits)  # no table: there is no way back
