"""A model as a program of few instructions: what it does with one token per row, in one call.

`Draft` collects instructions on named registers, which make a `Program`; `Running` performs it on rows with memories.
What an instruction means stands in `source/step.cpp`; that a program computes what its model computes is shown by
running both.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from ..core.contract import Where
from ..core.errors import InputError
from ..core.interfaces import Choice
from ..core.log import LogStorage
from .abi import Choice as Told
from .abi import Instruction, Matrix, Mode, Operation, Register, Rounded, Step
from .build import library
from .hugepages import huge_pages
from .kv_slots import Memories
from .linear import padded

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
    widest: int = 1  # outputs that are added to something, or multiplied with it
    inputs: int = 1  # of a matrix, at most
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
            made.matrix, self.inputs = matrix, max(self.inputs, matrix.columns)
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
        if matrix.columns != self.widths[from_]:
            raise Unknown(f"a matrix of {matrix.columns} columns for {self.widths[from_]} channels")
        rounded = self._rounded_already(matrix, from_)
        number = (ACTIVATIONS.index(activation), int(mode), int(rounded))
        self.widest = self.widest if mode is Mode.SET else max(self.widest, matrix.rows)
        self.add(Operation.LINEAR, to, from_, number=number, real=(old,), matrix=matrix)

    def _rounded_already(self, matrix: Matrix, from_: int) -> bool:
        """Whether the instruction before has rounded the same numbers in the same way."""
        if not self.instructions or self.instructions[-1].operation != Operation.LINEAR:
            return False
        last = self.instructions[-1]
        return bool(
            last.from_ == from_ != last.to and last.matrix.kind == matrix.kind and last.matrix.columns == matrix.columns
        )


@dataclass(frozen=True)
class Program:
    """A program that was written. It does not change, so that many may run it at once."""

    code: ctypes.Array[Instruction]
    widths: tuple[int, ...]  # of registers
    begins: tuple[int, ...]  # the sum of the widths before each, and of all
    kept: tuple[Tensor, ...]  # what instructions point to
    sources: tuple[bool, ...]
    cells: int
    widest: int
    inputs: int

    @classmethod
    def of(cls, draft: Draft) -> Program:
        """What was written so far."""
        code = (Instruction * len(draft.instructions))(*draft.instructions)
        begins = tuple(accumulate(draft.widths, initial=0))
        held = tuple(draft.widths), begins, tuple(draft.kept), tuple(draft.sources)
        return cls(code, *held, draft.cells, draft.widest, draft.inputs)

    def settle(self) -> None:
        """Large pages for all that is read: for who will read it again and again."""
        huge_pages(self.kept, now=True)


class Running:
    """A program at work on some rows."""

    def __init__(self, program: Program, rows: int, memories: Memories, cells: Sequence[Tensor] = ()) -> None:
        if len(cells) != program.cells:
            raise InputError(f"the state holds {len(cells)} cells, the program {program.cells}")
        self.cells = [cell.clone(memory_format=torch.contiguous_format) for cell in cells]  # written to by every step
        self._program, self._memories = program, memories
        self._rows = self._most = rows  # there is room for the most
        self._arena = torch.empty(rows * program.begins[-1])
        huge_pages((self._arena,), now=False)
        shorts = torch.empty(rows, padded(program.inputs), dtype=torch.int16)
        steps, sums = torch.empty(rows), torch.empty(rows, dtype=torch.int32)
        scratch = torch.empty(rows, program.widest)
        self._kept = (shorts, steps, sums, scratch)
        self._instructions = instructions = type(program.code).from_buffer_copy(program.code)
        at = self._arena.data_ptr()
        places = zip(program.begins, program.widths, strict=False)
        registers = (Register * len(program.widths))(
            *(Register(at + 4 * rows * begin, width) for begin, width in places)
        )
        self._tables: dict[Operation, Tensor] = {}  # kept as long as they are pointed to
        at = shorts.data_ptr()
        self._step = Step(
            program=instructions,
            instructions=len(instructions),
            registers=registers,
            memories=memories.structures,
            memory_count=memories.count,
            cells=_pointers(self.cells),
            rows=rows,
            rounded=Rounded(at, at, steps.data_ptr(), sums.data_ptr()),
            scratch=scratch.data_ptr(),
        )

    def value(self, register: int) -> Tensor:
        """What a register holds, until the next step. [rows, width]"""
        begin, width = self._most * self._program.begins[register], self._program.widths[register]
        return self._arena[begin : begin + self._rows * width].view(self._rows, width)

    def step(self, tokens: Tensor, where: Where) -> None:
        """One more token in every row."""
        compiled = library()
        assert compiled is not None
        self._memories.fit(1)
        tokens, order = tokens.contiguous(), where.order.contiguous()
        position = order if where.position is where.order else where.position.contiguous()
        step = self._step
        step.tokens, step.order, step.position = tokens.data_ptr(), order.data_ptr(), position.data_ptr()
        step.threads = torch.get_num_threads()
        if compiled.heed_step(ctypes.byref(step)):
            raise InputError(f"a token from {int(tokens.min())} to {int(tokens.max())} is not in the vocabulary")
        self._memories.passed(where.span, 1)

    def read(self, lengths: Sequence[int], order: Tensor, position: Tensor, tokens: Tensor | None = None) -> bool:
        """Many tokens, so many of each row; without them, what registers hold. Whether there are such tokens."""
        compiled = library()
        assert compiled is not None
        self._memories.fit(max(lengths))
        begins = torch.tensor([0, *accumulate(lengths)])
        order, position, step = order.contiguous(), position.contiguous(), self._step
        step.order, step.position, step.begins = order.data_ptr(), position.data_ptr(), begins.data_ptr()
        step.tokens = None if tokens is None else tokens.data_ptr()
        step.sequences, step.threads = len(lengths), torch.get_num_threads()
        return not compiled.heed_step(ctypes.byref(step))

    def end(self, first: int) -> None:
        """From this instruction on, which nothing is remembered of, with what registers hold."""
        compiled = library()
        assert compiled is not None
        rest, code = Step.from_buffer_copy(self._step), self._instructions
        rest.program = ctypes.pointer(code[first])
        rest.instructions, rest.memory_count, rest.threads = len(code) - first, 0, torch.get_num_threads()
        compiled.heed_step(ctypes.byref(rest))

    def write(
        self, tokens: Tensor, where: Where, count: int, how: Choice, *, scores: int, cap: float
    ) -> tuple[Tensor, Tensor]:
        """This token in every row, then what is chosen by the register `scores`, within ±cap unless that is 0: count in
        all, or fewer if that is `enough`; the last of them is not written. [R] -> [n, R] tokens and log p
        """
        compiled = library()
        assert compiled is not None
        self._memories.fit(count)
        three = [t.clone(memory_format=torch.contiguous_format) for t in (tokens, where.order, where.position)]
        chosen, logp = torch.empty(count, self._rows, dtype=torch.long), torch.empty(count, self._rows)
        self._step.threads = torch.get_num_threads()
        at, told = [t.data_ptr() for t in (*three, chosen, logp)], _told(how, cap)
        made = compiled.heed_write(ctypes.byref(self._step), count, scores, ctypes.byref(told), *at)
        if made < 0:
            raise InputError(f"a token from {int(tokens.min())} to {int(tokens.max())} is not in the vocabulary")
        self._memories.passed(where.span, made)
        return chosen[:made], logp[:made]

    def likeliest(self, register: int, count: int) -> tuple[Tensor, Tensor]:
        """Of the scores in a register: log p of the largest, the largest first, and their tokens. [R, count] each"""
        compiled, made = library(), self.value(register)
        assert compiled is not None
        tokens, logp = torch.empty(self._rows, count, dtype=torch.long), torch.empty(self._rows, count)
        at = tokens.data_ptr(), logp.data_ptr()
        compiled.heed_likeliest(made.data_ptr(), *made.shape, count, *at, torch.get_num_threads())
        return logp, tokens

    def take(self, cells: Sequence[Tensor]) -> None:
        """Go on with these, which nobody else writes to."""
        self.cells, self._step.cells = list(cells), _pointers(cells)

    def select(self, rows: Tensor) -> Running:
        """Somebody who goes on with these rows; registers hold nothing."""
        self._memories.select(rows)
        cells = [cell.index_select(0, rows) for cell in self.cells]
        if len(rows) > self._most:
            return Running(self._program, len(rows), self._memories, cells)
        self._rows = self._step.rows = len(rows)
        self.take(cells)
        return self

    def point(self, operation: Operation, table: Tensor) -> None:
        """The instructions of this kind read another table from now on."""
        self._tables[operation] = table
        for instruction in self._instructions:
            if instruction.operation == operation:
                instruction.table[0] = table.data_ptr()

    def returned(self) -> list[LogStorage]:
        """What is remembered by now; nothing more may be written."""
        return self._memories.returned()


def _pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(1, len(tensors)))(*(tensor.data_ptr() for tensor in tensors))


def _told(how: Choice, cap: float) -> Told:
    """For the kernel; the tensors must live as long as it works."""
    four = (None if tensor is None else tensor.data_ptr() for tensor in (how.draws, how.seen, how.ends, how.live))
    share, least = 1.0 if how.top_p is None else how.top_p, how.min_p or 0.0
    return Told(how.temperature, share, least, how.top_k or 0, *four, len(how.ends), how.enough, how.penalty, cap)
