"""Position codes: how a model knows where a token stands. One table, three ways: add, rotate, score."""

from __future__ import annotations

from typing import Annotated

from ...core.config import OneOf
from .added import Binary, Integer, Learned, Sinusoid, Unit
from .axial import Axial
from .base import AddedConfig, Adds, How, NoPosition, PositionConfig, Relates, RelativeConfig, Takes
from .rotary import Rope, XPos
from .scaling import SCALINGS, AnyScaling, Dynamic, Linear, Llama3, LongRope, Scaling, Yarn
from .scored import Alibi, Buckets, Relative, slopes
from .shaw import Shaw, ShawValues
from .waves import frequencies

ADDED: tuple[type[AddedConfig], ...] = (
    Axial.Config,
    Learned.Config,
    Sinusoid.Config,
    Unit.Config,
    Integer.Config,
    Binary.Config,
)
RELATIVE: tuple[type[RelativeConfig], ...] = (
    NoPosition.Config,
    Rope.Config,
    XPos.Config,
    Alibi.Config,
    Buckets.Config,
    Relative.Config,
    Shaw.Config,
)
TAKEN: tuple[type[RelativeConfig], ...] = (ShawValues.Config,)  # where attention gives its weights away
POSITIONS: tuple[type[PositionConfig], ...] = ADDED + RELATIVE + TAKEN
AnyAdded = Annotated[AddedConfig, OneOf(lambda: ADDED)]
AnyPlace = Annotated[RelativeConfig, OneOf(lambda: RELATIVE + TAKEN)]
AnyRelative = Annotated[RelativeConfig, OneOf(lambda: RELATIVE)]

__all__ = [
    "ADDED",
    "POSITIONS",
    "RELATIVE",
    "SCALINGS",
    "TAKEN",
    "AddedConfig",
    "Adds",
    "Alibi",
    "AnyAdded",
    "AnyPlace",
    "AnyRelative",
    "AnyScaling",
    "Axial",
    "Binary",
    "Buckets",
    "Dynamic",
    "How",
    "Integer",
    "Learned",
    "Linear",
    "Llama3",
    "LongRope",
    "NoPosition",
    "PositionConfig",
    "Relates",
    "Relative",
    "RelativeConfig",
    "Rope",
    "Scaling",
    "Shaw",
    "ShawValues",
    "Sinusoid",
    "Takes",
    "Unit",
    "XPos",
    "Yarn",
    "frequencies",
    "slopes",
]
