"""A pass: many tokens of every row through the blocks of a stack in one call of a kernel.

All real tokens stand one behind the other, whatever rows they are of: nothing is computed for padding. Tokens of a row
see what their row remembers, and one another; what is to be remembered of them goes into logs as by plain calls, and
recurrences go on from their cells. Consecutive blocks that have emitters are one program; a block that has none runs as
a plain call between two programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor, nn

from ..core.contract import Where
from ..core.log import LogStorage
from ..core.state import Cell, Log, State, leaves
from ..core.torch_private import call_is_rewritten
from ..kernels.abi import BACKWARDS, BOTH_WAYS, Matrix, Weights
from ..kernels.build import library
from ..kernels.kv_slots import KvCaches
from ..kernels.linear import matrix
from ..models.block import Block, States
from .cache import programs
from .emit import Emitter
from .emit.table import CROSS, ENDS, must_be, name_of
from .execution import Execution
from .program import Program, Uncompiled, must

if TYPE_CHECKING:
    from ..mixers import Attention, Cross
    from ..models.stack import Stack

SHORT = 64  # tokens of a row, on average, up to which a retention goes one by one; more are quicker in chunks
LEAST = 2  # tokens for which a program is run; one alone is written by a step, or seldom
MOST = 1024  # tokens that go through it at once, unless a single row has more: what lies between blocks stays near


def passed(stack: Stack, x: Tensor, where: Where, states: States | None) -> tuple[Tensor, States | None] | None:
    """The stream after all blocks, zeros at padding, and what is remembered; None if plain calls must do it."""
    if torch.is_grad_enabled() or stack.training or library() is None:
        return None
    if x.dtype != torch.float32 or not x.is_cpu:
        programs(stack).forget()  # weights have moved: nothing is to hold where they were
        return None
    if not _usual(x, where):
        return None
    if states is not None and not _ready(states, where):
        return None
    kind = Kind(width=x.shape[2], short=x.shape[1] <= SHORT, keeps=states is not None)
    compiled = programs(stack).of(stack, kind, lambda: CompiledPass(stack, kind))
    return None if isinstance(compiled, Uncompiled) else compiled.run(stack, x, where, states)


class Kind(NamedTuple):
    """What a pass is for."""

    width: int  # of the stream
    short: bool  # whether rows are
    keeps: bool  # whether something is remembered


class Result(NamedTuple):
    """What came of a program."""

    stream: Tensor  # [B, T, D]
    entries: list[Tensor]  # keys and values to be kept, layer by layer, each [B, T, heads, size]
    cells: list[Tensor]  # each [B, ...]


class CompiledPass:
    """The blocks of a stack: runs of them as programs, and those between as plain calls."""

    def __init__(self, stack: Stack, kind: Kind) -> None:
        layers = stack.layers
        final = self._final(stack, kind)
        self.reasons: list[Uncompiled | None] = [None] * len(layers)  # of every block; None: compiled
        self.segments: list[tuple[slice, BlocksProgram | None]] = []
        self.leaves = final is None  # by a plain call
        try:
            self.segments.append((slice(0, len(layers)), BlocksProgram(layers, kind, final)))
        except Uncompiled:
            self._cut(layers, kind, final)

    def _cut(self, layers: list[Block], kind: Kind, final: nn.Module | None) -> None:
        """Programs of consecutive blocks, between those that have none."""
        self.reasons = [why_not(block, kind) for block in layers]
        if None not in self.reasons:
            raise next(why for why in self.reasons if why is not None)
        for able, places in groupby(range(len(layers)), lambda place: self.reasons[place] is None):
            some = list(places)
            last = final if some[-1] == len(layers) - 1 else None
            made = BlocksProgram([layers[place] for place in some], kind, last) if able else None
            self.segments.append((slice(some[0], some[-1] + 1), made))
        self.leaves = self.leaves or self.reasons[-1] is not None

    @staticmethod
    def _final(stack: Stack, kind: Kind) -> nn.Module | None:
        """The last norm, if a program can do it."""
        try:
            must_be(stack.ends, ENDS)
            if stack.ends.final is not None:
                emitter = Emitter()
                stream = emitter.builder.register("stream", kind.width)
                emitter.norm(stack.ends.final, stream, stream)
        except Uncompiled:
            return None
        return stack.ends.final

    def run(self, stack: Stack, x: Tensor, where: Where, states: States | None) -> tuple[Tensor, States | None] | None:
        """All segments in order; None if the state is of another model, of which plain calls complain."""
        x, layers = stack.ends.enter(x), stack.layers
        before: list[States | None] = []
        for some, program in self.segments:
            given = None if states is None else states[some]
            if given is None and program is not None and program.remembers:
                given = tuple(block.start(len(x), where.given) for block in layers[some])
            before.append(given)
        ready = [
            None if program is None else program.past(given)
            for (_, program), given in zip(self.segments, before, strict=True)
        ]
        if any(past is None and program is not None for (_, program), past in zip(self.segments, ready, strict=True)):
            return None
        after: list[State] = []
        for (some, program), given, past in zip(self.segments, before, ready, strict=True):
            if program is None:
                for place, block in enumerate(layers[some]):
                    x, kept = block(x, where, None if given is None else cast(States, given[place]))
                    after += [] if kept is None else [kept]
            else:
                cells = [tensor for leaf in leaves(given) if isinstance(leaf, Cell) for tensor in leaf.take()]
                done = program.run(x, where, cast("list[LogStorage]", past), cells)
                x = done.stream
                if states is not None:
                    sources, rest = iter(program.program.sources), (iter(done.entries), iter(done.cells))
                    after += cast(States, _remembered(cast(States, given), where, sources, *rest))
        return stack.ends.leave(x) if self.leaves else x, None if states is None else tuple(after)


def why_not(block: Block, kind: Kind) -> Uncompiled | None:
    """Why a block has no program; None: it has one."""
    try:
        BlocksProgram([block], kind, None)
    except Uncompiled as why:
        return why.with_traceback(None)
    return None


class PassEmitter(Emitter):
    """Writes blocks for many tokens per row, which see what their row remembers, and one another."""

    def __init__(self, kind: Kind, *, sees: bool) -> None:
        super().__init__()
        self.token_by_token, self._keeps, self._sees = kind.short, kind.keeps, sees
        self.entries: list[tuple[int, int]] = []  # heads and their size, of every KV cache
        self.kept: list[tuple[int, int]] = []  # registers of keys and values, layer by layer, and how many heads

    def sight(self, part: Attention) -> tuple[int, int]:
        back, ahead = self.reach(part)
        if ahead == 0:
            return self.builder.cache() if self._sees else BACKWARDS, back
        must(back == ahead, part.mask, "tokens see farther on one side than on the other")
        return BOTH_WAYS, back

    def float32(self, layer: nn.Linear) -> Matrix:
        """As it is stored, row by row or column by column: for many tokens it is laid out anew in either case."""
        weight = layer.weight
        if weight.is_contiguous() or weight.stride(0) != 1 or weight.stride(1) < len(weight) or not _float32(layer):
            return super().float32(layer)
        self.builder.keep(layer.bias)
        self.builder.kept.append(weight)
        made = matrix(Weights.FLOAT32, weight, None, layer.bias, layer.out_features, layer.in_features)
        made.across = weight.stride(1)
        return made

    def entry(self, name: str) -> str:
        return f"{name} {len(self.kept)}" if self._keeps else name

    def attended(self, part: Attention | Cross, key: int, value: int) -> None:
        if self._sees:
            self.entries.append((int(part.kv_heads), int(part.head_size)))
        if self._keeps and key >= 0:
            self.kept += [(register, int(part.kv_heads)) for register in (key, value)]


def _float32(layer: nn.Linear) -> bool:
    numbers: tuple[Tensor | None, ...] = (layer.weight, layer.bias)  # torch does not say that a bias may be None
    return all(tensor is None or (tensor.is_cpu and tensor.dtype == torch.float32) for tensor in numbers)


class BlocksProgram:
    """The program of consecutive blocks."""

    def __init__(self, blocks: Sequence[Block], kind: Kind, final: nn.Module | None) -> None:
        sources = any(name_of(type(part)) == CROSS for block in blocks for part in block.parts)  # in whatever place
        self.sees = kind.keeps or sources  # what is remembered
        emitter = PassEmitter(kind, sees=self.sees)
        self._stream = emitter.builder.register("stream", kind.width)
        for block in blocks:
            emitter.block(block, self._stream)
        if final is not None:
            emitter.norm(final, self._stream, self._stream)
        self._entries, self._kept = emitter.entries, emitter.kept
        self.program = Program.of(emitter.builder)

    @property
    def remembers(self) -> bool:
        """Whether it goes on from a state, if only from its start."""
        return self.sees or self.program.cells > 0

    def past(self, states: States | None) -> list[LogStorage] | None:
        """What is remembered; None if that is not of this program."""
        past = [leaf.shown() for leaf in leaves(states) if isinstance(leaf, Log)] if self.sees else []
        fits = [tuple(held.shape[2:]) for one in past for held in one.held[2:]] == [
            entry for entry in self._entries for _ in range(2)
        ]
        return past if fits else None

    def run(self, x: Tensor, where: Where, past: Sequence[LogStorage], cells: Sequence[Tensor]) -> Result:
        """Some rows after the other."""
        past = [_stamped(one, where) for one in past]
        padded, lengths = where.span.padded, where.real.sum(1).tolist()
        three = (t[where.real] if padded else t.flatten(0, 1) for t in (x, where.order, where.position))
        tokens, order, position = three
        wanted = [self._stream, *(register for register, _ in self._kept)]
        pieces: list[list[Tensor]] = []
        after: list[list[Tensor]] = []
        for rows, some in _pieces(lengths):
            caches = KvCaches([one.rows(rows) for one in past], [True] * len(past))  # logs are written to afterwards
            execution = Execution(self.program, some.stop - some.start, caches, [cell[rows] for cell in cells])
            execution.value(self._stream).copy_(tokens[some])
            execution.prefill(lengths[rows], order[some], position[some])
            pieces.append([execution.value(register) for register in wanted])
            after.append(execution.cells)
        stream, *kept = (_rows(_joined(several), where) for several in zip(*pieces, strict=True))
        entries = [t.view(*t.shape[:2], heads, -1) for t, (_, heads) in zip(kept, self._kept, strict=True)]
        return Result(stream, entries, [_joined(several) for several in zip(*after, strict=True)])


def _pieces(lengths: list[int]) -> Iterator[tuple[slice, slice]]:
    """Rows that go through together, and their tokens."""
    first, begin, end = 0, 0, 0
    for row, length in enumerate(lengths):
        if row > first and end - begin + length > MOST:
            yield slice(first, row), slice(begin, end)
            first, begin = row, end
        end += length
    yield slice(first, len(lengths)), slice(begin, end)


def _joined(pieces: Sequence[Tensor]) -> Tensor:
    return pieces[0] if len(pieces) == 1 else torch.cat(list(pieces))


def _rows(flat: Tensor, where: Where) -> Tensor:
    """Tokens one behind the other, each at its place. [N, C] -> [B, T, C]"""
    shape = (*where.order.shape, flat.shape[1])
    return flat.new_zeros(shape).index_put_((where.real,), flat) if where.span.padded else flat.view(shape)


def _usual(x: Tensor, where: Where) -> bool:
    """Many tokens, in order; and a call that is not recorded, mapped or rewritten."""
    if type(x) is not Tensor or call_is_rewritten() or torch.is_autocast_enabled("cpu"):
        return False
    return x.shape[0] * x.shape[1] >= LEAST and _in_order(where)


def _in_order(where: Where) -> bool:
    """Whether every row holds tokens one after the other, wherever it begins, and padding only behind them."""
    if where.span.run:
        return True
    order, real = where.order, where.real
    follows = real[:, :-1] & (order[:, 1:] == order[:, :-1] + 1)
    return bool((follows | ~real[:, 1:]).all())


def _ready(state: State, where: Where) -> bool:
    """Whether it can be gone on from: not used up, of as many rows, in float32 on the CPU."""
    if isinstance(state, tuple):
        return all(_ready(part, where) for part in state)
    held = state.storage()
    numbers = held if isinstance(state, Cell) else held[2:]
    plain = all(t.is_cpu and t.dtype == torch.float32 and len(t) == len(where.order) for t in numbers)
    return plain and not state.spent


def _stamped(past: LogStorage, where: Where) -> LogStorage:
    """Where what is remembered does not end just before the call, places do not tell how far away an entry is."""
    follows = where.span.run and where.span.first == past.span.last + 1
    return past if follows or not past.length else replace(past, span=replace(past.span, run=False))


def _remembered(
    state: State, where: Where, sources: Iterator[bool], entries: Iterator[Tensor], cells: Iterator[Tensor]
) -> State:
    """The same tree: logs with these keys and values more, unless they are sources; cells of these."""
    if isinstance(state, tuple):
        return tuple(_remembered(part, where, sources, entries, cells) for part in state)
    if isinstance(state, Cell):
        return Cell(*(next(cells) for _ in state.tensors()))
    return state.read()[1] if next(sources) else state.append(where, next(entries), next(entries))[1]
