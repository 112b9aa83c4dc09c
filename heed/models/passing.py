"""A stack as a program: many tokens of every row through all of its blocks in one call of a kernel.

All real tokens stand one behind the other, whatever rows they are of: nothing is computed for padding. Tokens of a row
see what their row remembers, and one another; what is to be remembered of them goes into logs as by plain calls, and
recurrences go on from their cells. Where gradients are kept, where somebody looks into a block, and where a part has no
instruction, plain calls do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from ..core.contract import Mixer, Where
from ..core.log import LogStorage
from ..core.state import Cell, Log, State, leaves
from ..kernels.abi import BACKWARDS, BOTH_WAYS, Matrix, Weights
from ..kernels.build import library
from ..kernels.kv_slots import Memories
from ..kernels.linear import matrix
from ..kernels.program import Program, Running
from ..mixers import Attention
from ..parts.masks import Whole, Window
from ..parts.positions import Alibi
from ..parts.residual.wired import Ends
from .block import Block, States
from .script import Blocks, known, looks_back

if TYPE_CHECKING:
    from ..mixers import Cross
    from .stack import Stack

SHORT = 64  # tokens of a row, on average, up to which a retention goes one by one; more are quicker in chunks
LEAST = 2  # tokens for which a program is run; one alone is written by a step, or seldom
MOST = 1024  # tokens that go through it at once, unless a single row has more: what lies between blocks stays near


def passed(stack: Stack, x: Tensor, where: Where, states: States | None) -> tuple[Tensor, States | None] | None:
    """The stream after all blocks, zeros at padding, and what is remembered; None if plain calls must do it."""
    if torch.is_grad_enabled() or stack.training or not _usual(x, where) or library() is None:
        return None
    if states is not None and not _ready(states, where):
        return None
    kind = Kind(width=x.shape[2], short=x.shape[1] <= SHORT, keeps=states is not None)
    script = stack.drafts.of(stack, kind, lambda: Pass(stack, kind))
    if script is None:
        return None
    before = stack.start(len(x), where.given) if states is None and script.remembers else states
    past = [leaf.shown() for leaf in leaves(before) if isinstance(leaf, Log)] if script.sees else []
    if not script.fits(past):
        return None
    cells = [tensor for leaf in leaves(before) if isinstance(leaf, Cell) for tensor in leaf.take()]
    done = script.run(x, where, past, cells)
    if states is None:
        return done.stream, None
    sources = iter(script.program.sources)
    return done.stream, cast(States, _remembered(states, where, sources, iter(done.entries), iter(done.cells)))


class Kind(NamedTuple):
    """What a pass is for."""

    width: int  # of the stream
    short: bool  # whether rows are
    keeps: bool  # whether something is remembered


class Done(NamedTuple):
    """What came of a pass."""

    stream: Tensor  # [B, T, D]
    entries: list[Tensor]  # keys and values to be kept, layer by layer, each [B, T, heads, size]
    cells: list[Tensor]  # each [B, ...]


class Pass(Blocks):
    """The program of a stack whose tokens see what their row remembers, and one another."""

    def __init__(self, stack: Stack, kind: Kind) -> None:
        super().__init__()
        known(type(stack.ends) is Ends, stack.ends)
        self._stream = self.draft.register("stream", kind.width)
        self._kind = kind
        self.sees = kind.keeps or any(block.cross is not None for block in stack.layers)  # what is remembered
        self._entries: list[tuple[int, int]] = []  # heads and their size, of every memory
        self._kept: list[tuple[int, int]] = []  # registers of keys and values, layer by layer, and how many heads
        for block in stack.layers:
            known(type(block) is Block, block)
            self._block(block, self._stream)
        if stack.ends.final is not None:
            self._norm(stack.ends.final, self._stream, self._stream)
        self.program = Program.of(self.draft)

    @property
    def remembers(self) -> bool:
        """Whether it goes on from a state, if only from its start."""
        return self.sees or self.program.cells > 0

    def fits(self, past: Sequence[LogStorage]) -> bool:
        """Whether these are the memories of this program: of what is not, plain calls complain."""
        return [tuple(held.shape[2:]) for one in past for held in one.held[2:]] == [
            entry for entry in self._entries for _ in range(2)
        ]

    def run(self, x: Tensor, where: Where, past: Sequence[LogStorage], cells: Sequence[Tensor]) -> Done:
        """Some rows after the other."""
        past = [_stamped(one, where) for one in past]
        padded, lengths = where.span.padded, where.real.sum(1).tolist()
        three = (t[where.real] if padded else t.flatten(0, 1) for t in (x, where.order, where.position))
        tokens, order, position = three
        wanted = [self._stream, *(register for register, _ in self._kept)]
        pieces: list[list[Tensor]] = []
        after: list[list[Tensor]] = []
        for rows, some in _pieces(lengths):
            memories = Memories([one.rows(rows) for one in past], [True] * len(past))  # logs are written to afterwards
            running = Running(self.program, some.stop - some.start, memories, [cell[rows] for cell in cells])
            running.value(self._stream).copy_(tokens[some])
            running.read(lengths[rows], order[some], position[some])
            pieces.append([running.value(register) for register in wanted])
            after.append(running.cells)
        stream, *kept = (_rows(_joined(several), where) for several in zip(*pieces, strict=True))
        entries = [t.view(*t.shape[:2], heads, -1) for t, (_, heads) in zip(kept, self._kept, strict=True)]
        return Done(stream, entries, [_joined(several) for several in zip(*after, strict=True)])

    def _rarer(self, part: Mixer[object], source: int, target: int, old: float) -> None:  # type: ignore[type-var]
        from ..mixers import Retention

        known(self._kind.short or type(part) is not Retention, part)
        super()._rarer(part, source, target, old)

    def _sight(self, part: Attention) -> tuple[int, int]:
        mask = part.mask
        if type(mask) is Whole or (type(mask) is Window and mask.back == mask.ahead > 0):
            known(not isinstance(part.position, Alibi), part.position)  # whose terms fall on one side only
            return BOTH_WAYS, mask.back if isinstance(mask, Window) else -1
        return self.draft.memory() if self.sees else BACKWARDS, looks_back(part)

    def _plain(self, layer: nn.Linear) -> Matrix:
        """As it is stored, row by row or column by column: for many tokens it is laid out anew in either case."""
        weight = layer.weight
        if weight.is_contiguous() or weight.stride(0) != 1 or weight.stride(1) < len(weight) or not weight.is_cpu:
            return super()._plain(layer)
        self.draft.keep(layer.bias)
        self.draft.kept.append(weight)
        made = matrix(Weights.FLOAT32, weight, None, layer.bias, layer.out_features, layer.in_features)
        made.across = weight.stride(1)
        return made

    def _entry(self, name: str) -> str:
        return f"{name} {len(self._kept)}" if self._kind.keeps else name

    def _attended(self, part: Attention | Cross, key: int, value: int) -> None:
        if self.sees:
            self._entries.append((int(part.kv_heads), int(part.head_size)))
        if self._kind.keeps and key >= 0:
            self._kept += [(register, int(part.kv_heads)) for register in (key, value)]


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
    """Many tokens in float32, in order, on the CPU; and a call that nobody records, maps or rewrites."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or torch.is_autocast_enabled("cpu"):
        return False
    mapped = torch._C._functorch.peek_interpreter_stack() is not None
    if type(x) is not Tensor or mapped or _get_current_dispatch_mode() is not None:
        return False
    return bool(x.is_cpu and x.dtype == torch.float32 and x.shape[0] * x.shape[1] >= LEAST and _in_order(where))


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
