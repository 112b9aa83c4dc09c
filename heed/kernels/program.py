"""A model as a program of few instructions: what it does with one token per row, in one call.

`Draft` collects instructions on named registers; `Running` performs them on rows with memories. What an instruction
means stands in `source/step.cpp`; that a program computes what its model computes is shown by running both.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..core.contract import Where
from ..core.errors import InputError
from ..core.stamps import Span
from ..core.state import Lent
from .abi import Instruction, Matrix, Memory, Mode, Operation, Register, Rounded, Step
from .build import library

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


class Unknown(Exception):
    """A part of the model that no instruction is known for."""


@dataclass
class Draft:
    """A program while it is written."""

    instructions: list[Instruction] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    kept: list[Tensor] = field(default_factory=list)  # what instructions point to
    sources: list[bool] = field(default_factory=list)  # of every memory: whether it is only read
    cells: int = 0  # memories of a fixed size
    widest: int = 1  # outputs of a matrix
    inputs: int = 1
    _turning: dict[tuple[tuple[float, ...], float], int] = field(default_factory=dict)
    _named: dict[tuple[str, int], int] = field(default_factory=dict)

    def register(self, name: str, width: int) -> int:
        """The register of this name and width, the same whenever it is asked for."""
        number = self._named.setdefault((name, width), len(self.widths))
        if number == len(self.widths):
            self.widths.append(width)
        return number

    def memory(self, *, source: bool = False) -> int:
        """The next memory of the state."""
        self.sources.append(source)
        return len(self.sources) - 1

    def cell(self) -> int:
        """The next memory of a fixed size."""
        self.cells += 1
        return self.cells - 1

    def keep(self, tensor: Tensor | None) -> int | None:
        """Where a tensor is; it stays there as long as the program."""
        if tensor is None:
            return None
        plain = tensor.detach()
        if not plain.is_contiguous() or plain.device.type != "cpu":
            raise Unknown("tensors in pieces, or not on the CPU")
        self.kept.append(plain)
        return plain.data_ptr()

    def add(
        self,
        operation: Operation,
        to: int,
        from_: int = -1,
        *,
        number: Sequence[int] = (),
        real: Sequence[float] = (),
        table: Sequence[Tensor | None] = (),
        matrix: Matrix | None = None,
    ) -> Instruction:
        """One more instruction."""
        made = Instruction(operation=int(operation), to=to, from_=from_, key=-1, value=-1)
        made.number[: len(number)] = list(number)
        made.real[: len(real)] = list(real)
        for place, tensor in enumerate(table):
            made.table[place] = self.keep(tensor)
        if matrix is not None:
            made.matrix = matrix
            self.widest, self.inputs = max(self.widest, matrix.rows), max(self.inputs, matrix.columns)
        self.instructions.append(made)
        return made

    def waves(self, frequency: Sequence[float], amplitude: float) -> int:
        """The register with cosines and sines of position times frequency; written once for all layers."""
        told = (tuple(frequency), amplitude)
        if told not in self._turning:
            width = 2 * len(frequency)
            to = self._turning[told] = self.register(f"waves {len(self._turning)}", width)
            table = torch.tensor(frequency, dtype=torch.float64)
            made = self.add(Operation.WAVES, to, number=(len(frequency),), real=(amplitude,), table=(table,))
            self.instructions.insert(0, self.instructions.pop())
            assert self.instructions[0] is made
        return self._turning[told]

    def linear(
        self, matrix: Matrix, to: int, from_: int, mode: Mode = Mode.SET, activation: str = "identity", old: float = 1.0
    ) -> None:
        """to = activation(matrix from), added to old · to or multiplied with to by the mode."""
        if activation not in ACTIVATIONS:
            raise Unknown(f"the activation {activation}")
        rounded = self._rounded_already(matrix, from_)
        number = (ACTIVATIONS.index(activation), int(mode), int(rounded))
        self.add(Operation.LINEAR, to, from_, number=number, real=(old,), matrix=matrix)

    def _rounded_already(self, matrix: Matrix, from_: int) -> bool:
        """Whether the instruction before has rounded the same numbers in the same way."""
        if not self.instructions or self.instructions[-1].operation != Operation.LINEAR:
            return False
        last = self.instructions[-1]
        return bool(
            last.from_ == from_ != last.to and last.matrix.kind == matrix.kind and last.matrix.columns == matrix.columns
        )


class Running:
    """A program at work on some rows."""

    def __init__(self, draft: Draft, rows: int, lent: Sequence[Lent], cells: Sequence[Tensor] = ()) -> None:
        if (len(lent), len(cells)) != (len(draft.sources), draft.cells):
            raise InputError(f"the state holds {len(lent)} logs and {len(cells)} cells, the program others")
        self.cells = [cell.clone(memory_format=torch.contiguous_format) for cell in cells]  # written to by every step
        self._draft, self._lent, self._rows = draft, list(lent), rows
        self._steps, self._begun = 0, [one.length for one in lent]
        self._span: Span | None = None
        arena = torch.empty(rows, sum(draft.widths))
        ends = torch.tensor(draft.widths).cumsum(0).tolist()
        begins = [(end - width) * rows for end, width in zip(ends, draft.widths, strict=True)]
        flat = arena.view(-1)
        self._registers = [flat[at : at + rows * width] for at, width in zip(begins, draft.widths, strict=True)]
        shorts = torch.empty(rows, draft.inputs, dtype=torch.int16)
        steps, sums, scratch = torch.empty(rows), torch.empty(rows, dtype=torch.int32), torch.empty(rows, draft.widest)
        self._kept = (shorts, steps, sums, scratch)
        instructions = (Instruction * len(draft.instructions))(*draft.instructions)
        registers = (Register * len(draft.widths))(
            *(Register(r.data_ptr(), width) for r, width in zip(self._registers, draft.widths, strict=True))
        )
        self._instructions = instructions
        self._tables: dict[Operation, Tensor] = {}  # kept as long as they are pointed to
        self._memories = (Memory * max(1, len(lent)))()
        for place in range(len(lent)):
            self._describe(place)
        at = shorts.data_ptr()
        self._step = Step(
            program=instructions,
            instructions=len(instructions),
            registers=registers,
            memories=self._memories,
            memory_count=len(lent),
            cells=(ctypes.c_void_p * max(1, len(self.cells)))(*(cell.data_ptr() for cell in self.cells)),
            rows=rows,
            rounded=Rounded(at, at, steps.data_ptr(), sums.data_ptr()),
            scratch=scratch.data_ptr(),
        )

    def value(self, register: int) -> Tensor:
        """What a register holds, until the next step. [rows, width]"""
        return self._registers[register].view(self._rows, -1)

    def step(self, tokens: Tensor, where: Where) -> None:
        """One more token in every row."""
        compiled = library()
        assert compiled is not None
        self._make_room(1)
        tokens, order = tokens.contiguous(), where.order.contiguous()
        position = order if where.position is where.order else where.position.contiguous()
        step = self._step
        step.tokens, step.order, step.position = tokens.data_ptr(), order.data_ptr(), position.data_ptr()
        step.threads = torch.get_num_threads()
        if compiled.heed_step(ctypes.byref(step)):
            raise InputError(f"a token from {int(tokens.min())} to {int(tokens.max())} is not in the vocabulary")
        self._passed(where.span, 1)

    def write(self, tokens: Tensor, where: Where, count: int, scores: int) -> tuple[Tensor, Tensor]:
        """This token in every row, then the likeliest by the register `scores`, count in all; those that were chosen,
        the last of which is not written, and their log p. [R] -> [count, R] twice
        """
        compiled = library()
        assert compiled is not None
        self._make_room(count)
        three = [t.clone(memory_format=torch.contiguous_format) for t in (tokens, where.order, where.position)]
        chosen, logp = torch.empty(count, self._rows, dtype=torch.long), torch.empty(count, self._rows)
        self._step.threads = torch.get_num_threads()
        at = [t.data_ptr() for t in (*three, chosen, logp)]
        if compiled.heed_write(ctypes.byref(self._step), count, scores, *at):
            raise InputError(f"a token from {int(tokens.min())} to {int(tokens.max())} is not in the vocabulary")
        self._passed(where.span, count)
        return chosen, logp

    def _passed(self, now: Span, count: int) -> None:
        """So many tokens were written, the first of which has this span."""
        self._steps += count
        alike, last = now.first == now.last, now.last + count - 1
        if self._span is None:
            self._span = Span(now.first, last, run=alike, padded=False)
        else:
            run = self._span.run and alike and now.first == self._span.last + 1
            self._span = Span(min(self._span.first, now.first), last, run=run, padded=False)

    def _make_room(self, count: int) -> None:
        """The kernel writes wherever it is told to: there must be a column for every token."""
        for place, lent in enumerate(self._lent):
            if not self._draft.sources[place]:
                before, lent.length = lent.room, self._memories[place].length
                lent.fit(count)
                if lent.room != before:
                    self._describe(place)

    def point(self, operation: Operation, table: Tensor) -> None:
        """The instructions of this kind read another table from now on."""
        self._tables[operation] = table
        for instruction in self._instructions:
            if instruction.operation == operation:
                instruction.table[0] = table.data_ptr()

    def returned(self) -> list[Lent]:
        """What is remembered by now; nothing more may be written."""
        for place, lent in enumerate(self._lent):
            if self._span is not None and not self._draft.sources[place]:
                self._settle(place)
            assert lent.length == self._memories[place].length
        return self._lent

    def _settle(self, place: int) -> None:
        lent, memory = self._lent[place], self._memories[place]
        assert self._span is not None
        lent.length = self._begun[place]
        lent.written(self._span, self._steps)
        lent.free = None if memory.free < 0 else memory.free

    def _describe(self, place: int) -> None:
        lent, memory = self._lent[place], self._memories[place]
        order, position, key, value = lent.held
        memory.order, memory.position = order.data_ptr(), position.data_ptr()
        memory.key, memory.value, memory.room = key.data_ptr(), value.data_ptr(), lent.room
        memory.length, memory.cap = lent.length, -1 if lent.cap is None else lent.cap
        memory.free = -1 if lent.free is None else lent.free
        memory.holes = int(lent.span.padded or not lent.span.run)
        memory.source = int(self._draft.sources[place])
