"""A compiled program: instructions on named registers, which a kernel performs in one call.

`ProgramBuilder` collects instructions, which make a `Program`; an `Execution` runs it on rows with KV caches. What an
instruction means stands in `kernels/source/step.cpp`; that a program computes what its model computes is shown by
running both.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from ..kernels.abi import Instruction, Matrix, Mode, Operation
from ..kernels.hugepages import huge_pages
from . import operands
from .operands import Operands

ACTIVATIONS = (
    "identity",
    "relu",
    "gelu",
    "gelu_tanh",
    "gelu_sigmoid",
    "silu",
    "relu_squared",
    "sigmoid",
)  # as in step.h


class Uncompiled(Exception):
    """Why something runs as plain calls: the part, and what there is no instruction for."""

    def __init__(self, part: object, why: str) -> None:
        self.part = part if isinstance(part, str) else type(part).__name__
        self.why = why
        super().__init__(f"{self.part}: {why}")


def must(condition: bool, part: object, why: str) -> None:
    """Raise `Uncompiled` unless there is an instruction for this."""
    if not condition:
        raise Uncompiled(part, why)


@dataclass
class ProgramBuilder:
    """A program while it is written."""

    instructions: list[Instruction] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    kept: list[Tensor] = field(default_factory=list)  # what instructions point to
    sources: list[bool] = field(default_factory=list)  # of every KV cache: whether it is only read
    cells: int = 0  # states of a fixed size
    widest: int = 1  # outputs that are added to something, or multiplied with it
    inputs: int = 1  # of a matrix, at most
    _waves: dict[tuple[tuple[float, ...], float], int] = field(default_factory=dict)
    _named: dict[tuple[str, int], int] = field(default_factory=dict)

    def register(self, name: str, width: int) -> int:
        """The register of this name and width, the same whenever it is asked for."""
        number = self._named.setdefault((name, width), len(self.widths))
        if number == len(self.widths):
            self.widths.append(width)
        return number

    def cache(self, *, source: bool = False) -> int:
        """The next KV cache of the state."""
        self.sources.append(source)
        return len(self.sources) - 1

    def cell(self) -> int:
        """The next state of a fixed size."""
        self.cells += 1
        return self.cells - 1

    def keep(self, tensor: Tensor | None) -> int | None:
        """Where a tensor is; it stays there as long as the program."""
        if tensor is None:
            return None
        plain = tensor.detach()
        must(plain.is_contiguous() and plain.device.type == "cpu", "a tensor", "not contiguous, or not on the CPU")
        self.kept.append(plain)
        return plain.data_ptr()

    def _table(self, told: Operands, tensor: Tensor | None) -> int | None:
        wide = torch.float64 if isinstance(told, operands.Waves) else torch.float32
        must(tensor is None or tensor.dtype == wide, "a tensor", f"not {wide}")
        return self.keep(tensor)

    def add(
        self,
        told: Operands,
        to: int,
        from_: int = -1,
        *,
        key: int = -1,
        value: int = -1,
        matrix: Matrix | None = None,
    ) -> None:
        """One more instruction."""
        made = Instruction(operation=int(told.operation), to=to, from_=from_, key=key, value=value)
        for place, number in enumerate(told.values("int")):
            made.number[place] = number
        for place, real in enumerate(told.values("float")):
            made.real[place] = real
        for place, tensor in enumerate(told.values("Tensor")):
            made.table[place] = self._table(told, tensor)  # type: ignore[arg-type]
        if matrix is not None:
            made.matrix, self.inputs = matrix, max(self.inputs, matrix.columns)
        self.instructions.append(made)

    def waves(self, frequency: Sequence[float], amplitude: float) -> int:
        """The register with cosines and sines of position times frequency; written once for all layers."""
        told = (tuple(frequency), amplitude)
        if told not in self._waves:
            to = self._waves[told] = self.register(f"waves {len(self._waves)}", 2 * len(frequency))
            table = torch.tensor(frequency, dtype=torch.float64, device="cpu")
            self.add(operands.Waves(len(frequency), amplitude, table), to)
            self.instructions.insert(0, self.instructions.pop())
        return self._waves[told]

    def linear(
        self, matrix: Matrix, to: int, from_: int, mode: Mode = Mode.SET, activation: str = "identity", old: float = 1.0
    ) -> None:
        """to = activation(matrix from), added to old · to or multiplied with to by the mode."""
        must(activation in ACTIVATIONS, "feed-forward", f"the activation {activation} has no instruction")
        channels = self.widths[from_]
        must(matrix.columns == channels, "linear", f"a matrix of {matrix.columns} columns for {channels} channels")
        number = ACTIVATIONS.index(activation), int(mode), int(self._quantised_already(matrix, from_))
        self.widest = self.widest if mode is Mode.SET else max(self.widest, matrix.rows)
        self.add(operands.Linear(*number, old), to, from_, matrix=matrix)

    def _quantised_already(self, matrix: Matrix, from_: int) -> bool:
        """Whether the instruction before has quantised the same numbers in the same way."""
        if not self.instructions or self.instructions[-1].operation != Operation.LINEAR:
            return False
        last = self.instructions[-1]
        return bool(
            last.from_ == from_ != last.to and last.matrix.kind == matrix.kind and last.matrix.columns == matrix.columns
        )


@dataclass(frozen=True)
class Program:
    """A program that was written. It does not change, so that several threads may run it at once."""

    code: ctypes.Array[Instruction]
    widths: tuple[int, ...]  # of registers
    begins: tuple[int, ...]  # the sum of the widths before each, and of all
    kept: tuple[Tensor, ...]  # what instructions point to
    sources: tuple[bool, ...]
    cells: int
    widest: int
    inputs: int

    @classmethod
    def of(cls, builder: ProgramBuilder) -> Program:
        """What was written so far."""
        code = (Instruction * len(builder.instructions))(*builder.instructions)
        begins = tuple(accumulate(builder.widths, initial=0))
        held = tuple(builder.widths), begins, tuple(builder.kept), tuple(builder.sources)
        return cls(code, *held, builder.cells, builder.widest, builder.inputs)

    def settle(self) -> None:
        """Huge pages for all that is read: for a runner that reads it for every token."""
        huge_pages(self.kept, now=True)
