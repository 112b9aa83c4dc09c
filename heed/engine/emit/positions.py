"""Position codes as instructions: those that turn queries and keys, those whose scores fall, those that are added."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .. import operands
from ..program import must

if TYPE_CHECKING:
    from ...parts.positions import Alibi, Learned, Rope
    from .emitter import Emitter


def none(e: Emitter, code: nn.Module, size: int, registers: Iterable[tuple[int, int]]) -> Tensor | None:
    """Nothing is turned."""
    return None


def rope(e: Emitter, code: Rope, size: int, registers: Iterable[tuple[int, int]]) -> Tensor | None:
    """Registers of so many heads are turned by their position."""
    must(not code.values and code.covers is None, code, "values are turned, or the code changes with the length")
    rotation = code.rotation
    waves, half = e.builder.waves(rotation.frequency, rotation.amplitude), len(rotation.frequency)
    for register, heads in registers:
        told = operands.Turn(heads, size, half, int(rotation.layout == "pairs"))
        e.builder.add(told, register, waves)
    return None


def alibi(e: Emitter, code: Alibi, size: int, registers: Iterable[tuple[int, int]]) -> Tensor | None:
    """Scores fall with the distance, by these slopes."""
    must(not code.rounded, code, "rounded as in bfloat16")
    return torch.tensor(code.slope, dtype=torch.float32, device="cpu") * code.scale


def learned(e: Emitter, code: Learned, stream: int) -> int:
    """A table of codes is read where it is. Gives how many places it has."""
    if code.table.dtype != torch.float32:
        return made(e, code, stream)
    e.builder.add(operands.Place(code.offset, len(code.table), code.table), stream)
    return code.length


def made(e: Emitter, code: nn.Module, stream: int) -> int:
    """Codes are made for as many places as are needed."""
    e.builder.add(operands.Place(), stream)
    return 0
