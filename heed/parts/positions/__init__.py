"""Position codes: how a model knows where a token stands. One table, three ways: add, rotate, score."""

from __future__ import annotations

from typing import Annotated

from ...core.config import OneOf
from .added import Binary, Integer, Learned, Sinusoid, Unit
from .axial import Axial
from .base import AddedConfig, Adds, How, NoPosition, PositionConfig, Relates, RelativeConfig
from .rotary import Rope, XPos
from .scaling import SCALINGS, AnyScaling, Dynamic, Linear, Llama3, LongRope, Scaling, Yarn
from .scored import Alibi, Buckets, Relative, slopes
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
)
POSITIONS: tuple[type[PositionConfig], ...] = ADDED + RELATIVE
AnyAdded = Annotated[AddedConfig, OneOf(lambda: ADDED)]
AnyRelative = Annotated[RelativeConfig, OneOf(lambda: RELATIVE)]

__all__ = [
    "ADDED",
    "POSITIONS",
    "RELATIVE",
    "SCALINGS",
    "AddedConfig",
    "Adds",
    "Alibi",
    "AnyAdded",
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
    "Sinusoid",
    "Unit",
    "XPos",
    "Yarn",
    "frequencies",
    "slopes",
]
