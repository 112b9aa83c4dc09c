"""A program at work on some rows: registers, KV caches, cells; steps, prompts, bursts of sampled tokens."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from ..core.contract import Where
from ..core.errors import InputError
from ..core.log import LogStorage
from ..kernels.abi import Choice, Operation, Register, Rounded, Step
from ..kernels.build import library
from ..kernels.dispatch import address
from ..kernels.hugepages import huge_pages
from ..kernels.kv_slots import KvCaches
from ..kernels.linear import padded
from ..kernels.refusals import Refusal, must_be_done
from ..threads.teams import team_size
from .operands import Place
from .program import Program, ProgramBuilder

PLACES = Place.named("int").index("places")


@dataclass(frozen=True)
class SamplingSettings:
    """How a burst of tokens is sampled, and when it has to stop."""

    live: Tensor  # bool [R] rows that have not ended; written to
    enough: int  # with fewer live rows than these it is time to stop
    ends: Tensor  # [E] tokens that end a row
    draws: Tensor | None = None  # float64 [n, R] at least 0 and less than 1, one for each token; None: greedy
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    penalty: float = 1.0  # of tokens that were seen: logits are divided if positive, else multiplied
    seen: Tensor | None = None  # bool [R, V] which were; written to

    def packed(self, rows: int, vocabulary: int, count: int, cap: float) -> Choice:
        """For the kernel, `count` tokens in each of these rows; the tensors must live as long as it works."""
        four = (
            None if self.draws is None else address("draws", self.draws, torch.float64, count * rows),
            None if self.seen is None else address("seen tokens", self.seen, torch.bool, rows * vocabulary),
            address("end tokens", self.ends, torch.int64, 0),
            address("live rows", self.live, torch.bool, rows),
        )
        share, least = 1.0 if self.top_p is None else self.top_p, self.min_p or 0.0
        settings = self.temperature, share, least, self.top_k or 0
        return Choice(*settings, *four, len(self.ends), self.enough, self.penalty, cap)


class Execution:
    """A program at work on some rows."""

    def __init__(self, program: Program, rows: int, caches: KvCaches, cells: Sequence[Tensor] = ()) -> None:
        if (caches.count, len(cells)) != (len(program.sources), program.cells):  # a kernel would read beyond their end
            given = f"{caches.count} KV caches and {len(cells)} cells"
            raise InputError(f"the state holds {given}, the program {len(program.sources)} and {program.cells}")
        self.cells = [cell.clone(memory_format=torch.contiguous_format) for cell in cells]  # written to by every step
        self.caches, self._program = caches, program
        self._rows = self._most = rows  # there is room for the most
        self._arena = _room(torch.float32, rows * program.begins[-1])
        huge_pages((self._arena,), now=False)
        shorts = _room(torch.int16, rows, padded(program.inputs))
        steps, sums = _room(torch.float32, rows), _room(torch.int32, rows)
        scratch = _room(torch.float32, rows, program.widest)
        self._kept = (shorts, steps, sums, scratch)
        self._instructions = instructions = type(program.code).from_buffer_copy(program.code)
        at = self._arena.data_ptr()
        places = zip(program.begins, program.widths, strict=False)
        registers = (Register * len(program.widths))(
            *(Register(at + 4 * rows * begin, width) for begin, width in places)
        )
        self._codes: Tensor | None = None
        at = shorts.data_ptr()
        self._step = Step(
            program=instructions,
            instructions=len(instructions),
            registers=registers,
            register_count=len(registers),
            caches=caches.structures,
            cache_count=caches.count,
            rows=rows,
            room=rows,
            rounded=Rounded(at, at, steps.data_ptr(), sums.data_ptr(), *shorts.shape),
            scratch=scratch.data_ptr(),
            widest=program.widest,
        )
        self.take(self.cells)

    def value(self, register: int) -> Tensor:
        """What a register holds, until the next step. [rows, width]"""
        begin, width = self._most * self._program.begins[register], self._program.widths[register]
        return self._arena[begin : begin + self._rows * width].view(self._rows, width)

    def step(self, tokens: Tensor, where: Where, follows: Tensor | None = None) -> None:
        """One more token in every row. `follows`: bool [R], rows that go on where the one before them ends."""
        compiled = library()
        assert compiled is not None
        self.caches.fit(1)
        tokens, order = tokens.contiguous(), where.order.contiguous()
        position = order if where.position is where.order else where.position.contiguous()
        step = self._step
        step.tokens = self._stamps("tokens", tokens)
        step.order, step.position = self._stamps("order", order), self._stamps("position", position)
        step.follows = None if follows is None else address("rows that follow", follows, torch.bool, self._rows)
        step.threads = team_size()
        must_be_done(compiled.heed_step(ctypes.byref(step)), tokens, position)
        self.caches.stepped(where.span, 1)

    def prefill(self, lengths: Sequence[int], order: Tensor, position: Tensor, tokens: Tensor | None = None) -> bool:
        """Many tokens, so many of each row; without ids, what registers hold. Whether there are such tokens."""
        compiled = library()
        assert compiled is not None
        self.caches.fit(max(lengths))
        begins = torch.tensor([0, *accumulate(lengths)], dtype=torch.int64, device="cpu")
        order, position, step = order.contiguous(), position.contiguous(), self._step
        step.order, step.position = self._stamps("order", order), self._stamps("position", position)
        step.tokens, step.begins = None if tokens is None else self._stamps("tokens", tokens), begins.data_ptr()
        step.sequences, step.threads = len(lengths), team_size()
        refused = compiled.heed_step(ctypes.byref(step))
        if refused != Refusal.VALUES:
            must_be_done(refused, position=position)
        return not refused

    def finish(self, first: int) -> None:
        """From this instruction on, which touches no KV cache, with what registers hold."""
        compiled = library()
        assert compiled is not None
        rest, code = Step.from_buffer_copy(self._step), self._instructions
        rest.program = ctypes.pointer(code[first])
        rest.instructions, rest.cache_count, rest.threads = len(code) - first, 0, team_size()
        rest.checked = 0
        must_be_done(compiled.heed_step(ctypes.byref(rest)))

    def burst(
        self, tokens: Tensor, where: Where, count: int, sampling: SamplingSettings, *, logits: int, cap: float
    ) -> tuple[Tensor, Tensor]:
        """This token in every row, then what is sampled from the register `logits`, within ±cap unless that is 0: count
        in all, or fewer if that is `enough`; the last of them is not written. [R] -> [n, R] tokens and log p
        """
        compiled = library()
        assert compiled is not None
        self.caches.fit(count)
        three = [t.clone(memory_format=torch.contiguous_format) for t in (tokens, where.order, where.position)]
        chosen, logp = _room(torch.int64, count, self._rows), _room(torch.float32, count, self._rows)
        self._step.threads = team_size()
        told = sampling.packed(self._rows, self._program.widths[logits], count, cap)
        at = [*map(self._stamps, ("tokens", "order", "position"), three), chosen.data_ptr(), logp.data_ptr()]
        made = compiled.heed_write(ctypes.byref(self._step), count, logits, ctypes.byref(told), *at)
        must_be_done(max(0, -made), tokens, where.position)
        self.caches.stepped(where.span, made)
        return chosen[:made], logp[:made]

    def topk_logprobs(self, register: int, count: int) -> tuple[Tensor, Tensor]:
        """Of the logits in a register: log p of the largest, the largest first, and their tokens. [R, count] each"""
        compiled, made = library(), self.value(register)
        assert compiled is not None
        tokens, logp = _room(torch.int64, self._rows, count), _room(torch.float32, self._rows, count)
        at = tokens.data_ptr(), logp.data_ptr()
        refused = compiled.heed_topk_logprobs(made.data_ptr(), *made.shape, count, *at, team_size())
        if refused == Refusal.SIZES:
            raise InputError(f"the {count} largest of {made.shape[1]} logits are asked for; needed is 1 to as many")
        must_be_done(refused)
        return logp, tokens

    def _stamps(self, what: str, numbers: Tensor) -> int:
        return address(what, numbers, torch.int64, self._rows)

    def take(self, cells: Sequence[Tensor]) -> None:
        """Go on with these cells, which nothing else writes to."""
        self.cells, step = list(cells), self._step
        rows = min((len(cell) for cell in cells), default=0)
        told = (Register(address("a cell", cell, torch.float32, 0), cell[0].numel() if rows else 0) for cell in cells)
        step.cells, step.cell_count, step.cell_rows = (Register * max(1, len(cells)))(*told), len(cells), rows
        step.checked = 0

    def select(self, rows: Tensor) -> Execution:
        """An execution that goes on with these rows; registers hold nothing."""
        self.caches.select(rows)
        cells = [cell.index_select(0, rows) for cell in self.cells]
        if len(rows) > self._most:
            return Execution(self._program, len(rows), self.caches, cells)
        self._rows = self._step.rows = len(rows)
        self.take(cells)
        return self

    def place(self, codes: Tensor) -> None:
        """Positions are looked up in this table from now on. [places, width]"""
        self._codes = codes  # kept as long as it is pointed to
        at = address("codes of positions", codes, torch.float32, 0)
        for instruction in self._instructions:
            if instruction.operation == Operation.PLACE:
                instruction.table[0], instruction.number[PLACES] = at, len(codes)
        self._step.checked = 0

    def returned(self) -> list[LogStorage]:
        """The KV caches as they are by now; nothing more may be written."""
        return self.caches.returned()


def sample(logits: Tensor, sampling: SamplingSettings) -> tuple[Tensor, Tensor]:
    """A token per row and its log p, by a program that does nothing but sample. [R, V] -> [R] twice"""
    execution, register = _holding(logits)
    start = torch.zeros(len(logits), dtype=torch.int64, device="cpu"), Where.run(len(logits), 1, device="cpu")
    tokens, logp = execution.burst(*start, 1, sampling, logits=register, cap=0.0)
    return tokens[0], logp[0]


def topk_logprobs(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Log p of the largest logits of every row, the largest first, and their tokens. [R, V] -> [R, count] twice"""
    execution, register = _holding(logits)
    return execution.topk_logprobs(register, count)


def _holding(logits: Tensor) -> tuple[Execution, int]:
    builder = ProgramBuilder()
    register = builder.register("logits", logits.shape[1])
    execution = Execution(Program.of(builder), len(logits), KvCaches([], []))
    execution.value(register).copy_(logits)
    return execution, register


def _room(dtype: torch.dtype, *shape: int) -> Tensor:
    """Memory whose address a kernel is told: of this dtype, on the CPU, whatever torch's defaults are."""
    return torch.empty(*shape, dtype=dtype, device="cpu")
