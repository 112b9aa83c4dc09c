"""Operands of instructions, one record per operation: `kernels/source/step.h` names the same fields in the same order.

Whole numbers go into `number` of an instruction, floats into `real`, tensors into `table`, in the order in which the
record names them. What an operation does with them stands in `source/step.cpp`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import ClassVar

from torch import Tensor

from ..kernels.abi import Operation


@dataclass(frozen=True)
class Operands:
    """What one operation is told, beside its registers and its matrix."""

    operation: ClassVar[Operation]

    @classmethod
    def named(cls, kind: str) -> list[str]:
        """The fields of one kind: "int", "float" or "Tensor"."""
        return [field.name for field in fields(cls) if str(field.type).partition(" ")[0] == kind]

    def values(self, kind: str) -> Iterator[object]:
        """What these fields hold."""
        return (getattr(self, name) for name in self.named(kind))


@dataclass(frozen=True)
class Embed(Operands):
    """to = scale · row of the matrix."""

    operation = Operation.EMBED
    scale: float


@dataclass(frozen=True)
class Place(Operands):
    """to += codes[position + offset]."""

    operation = Operation.PLACE
    offset: int = 0
    places: int = 0  # that have a code
    codes: Tensor | None = None  # none: the runner makes them for as many places as are needed


@dataclass(frozen=True)
class Norm(Operands):
    """to = (more + gain) · (from - mean) / deviation + shift, for groups of channels."""

    operation = Operation.NORM
    groups: int
    width: int
    uncentred: int  # 1: the mean is not taken off (RMSNorm)
    more: int  # than its weight is the gain
    eps: float
    gain: Tensor | None
    shift: Tensor | None = None


@dataclass(frozen=True)
class Linear(Operands):
    """to = activation(matrix from), set, added to old · to, or multiplied with to."""

    operation = Operation.LINEAR
    activation: int
    mode: int
    quantised: int  # 1: the instruction before has quantised the same numbers in the same way
    old: float


@dataclass(frozen=True)
class Waves(Operands):
    """to = cosines and sines of position times frequency."""

    operation = Operation.WAVES
    count: int
    amplitude: float
    frequency: Tensor  # float64


@dataclass(frozen=True)
class Turn(Operands):
    """Heads in `to` are rotated by the waves in `from`."""

    operation = Operation.TURN
    heads: int
    size: int
    half: int
    pairs: int  # 1: neighbouring channels are one plane; else a channel and the one `half` farther


@dataclass(frozen=True)
class Attend(Operands):
    """to = softmax attention of the queries in `from` to a KV cache and to `key` and `value`."""

    operation = Operation.ATTEND
    cache: int
    heads: int
    kv_heads: int
    size: int
    value_size: int
    back: int  # how far back tokens see; -1: any distance
    scale: float
    cap: float
    slopes: Tensor | None = None


@dataclass(frozen=True)
class Clamp(Operands):
    """to is cut off at ±bound."""

    operation = Operation.CLAMP
    bound: float


@dataclass(frozen=True)
class Add(Operands):
    """to = old · to + new · from."""

    operation = Operation.ADD
    old: float
    new: float


@dataclass(frozen=True)
class Shift(Operands):
    """to = the token before, and a share of what is new in this one."""

    operation = Operation.SHIFT
    cell: int
    share: Tensor


@dataclass(frozen=True)
class Keep(Operands):
    """The last token of every row goes into a cell."""

    operation = Operation.KEEP
    cell: int


@dataclass(frozen=True)
class Wkv(Operands):
    """to = RWKV's weighted means of `value` by `key`."""

    operation = Operation.WKV
    above: int
    below: int
    level: int
    decay: Tensor
    bonus: Tensor


@dataclass(frozen=True)
class Retain(Operands):
    """to = retention of the queries in `from`, with `key` and `value`."""

    operation = Operation.RETAIN
    cell: int
    heads: int
    size: int
    value_size: int
    scale: float
    gamma: Tensor


OPERANDS: tuple[type[Operands], ...] = (
    *(Embed, Place, Norm, Linear, Waves, Turn, Attend, Clamp, Add, Shift, Keep, Wkv, Retain),
)
