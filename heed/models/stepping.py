"""A decoder as a program: one token per row through all of its layers in one call of a kernel.

A model with a part that no instruction is known for is none for this: it writes its tokens by plain calls, which say
what is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..core.contract import Where
from ..core.interfaces import Choice, Stepper
from ..core.state import Cell, Log, State, leaves
from ..kernels.abi import Matrix, Operation
from ..kernels.build import library
from ..kernels.hugepages import gathered
from ..kernels.kv_slots import Memories
from ..kernels.program import Program, Running, Unknown
from ..parts.inputs.tokens import TokenEmbeddings
from ..parts.layers.bitnet import PackedTernaryLinear
from ..parts.layers.embeddings import QuantisedEmbedding, stored_weights
from ..parts.layers.quantised import GroupedLinear, Int8Linear
from ..parts.outputs.heads import LMHead
from ..parts.positions import Learned
from ..parts.positions.base import Adds
from ..parts.residual.wired import Ends
from .passing import MOST, SHORT
from .script import Blocks, known

if TYPE_CHECKING:
    from .decoder import Decoder

FIRST = 512  # places of a code that is added to tokens that are held ready at first


def stepper(model: Decoder, state: State) -> Stepper | None:
    """Somebody who writes one token after the other from this state on; None if plain calls must do it."""
    held = [tensor for leaf in leaves(state) for tensor in leaf.storage()]
    # Memories are written to in place, which no gradient would survive.
    if library() is None or torch.is_grad_enabled() or not held or not all(map(_plain, held)):
        return None
    script = model.drafts.of(model, Script, lambda: _settled(model))
    return None if script is None else Walk(script, state)


def _settled(model: Decoder) -> Script:
    """Its program, with all that is read where it is read best."""
    rounded = [
        module
        for module in model.modules()
        if isinstance(module, Int8Linear | GroupedLinear | PackedTernaryLinear | QuantisedEmbedding)
    ]
    for layer, codes in zip(rounded, gathered([layer.codes for layer in rounded]), strict=True):
        layer.codes = codes
    script = Script(model)
    script.program.settle()
    model.stack.drafts.forget()  # which may hold what lay elsewhere before
    return script


class Walk(Stepper):
    """A program that has taken over a state."""

    def __init__(self, script: Script, state: State) -> None:
        self._script, self._tree = script, state
        held = list(leaves(state))
        rows = len(held[0].storage()[0])
        lent = [leaf.lend() for leaf in held if isinstance(leaf, Log)]
        cells = [tensor for leaf in held if isinstance(leaf, Cell) for tensor in leaf.take()]
        self._memories = Memories(lent, script.program.sources)
        self._running = Running(script.program, rows, self._memories, cells)
        self._places: Tensor | None = None  # codes of the first positions, if they are made: as many as were needed

    def read(self, tokens: Tensor, where: Where) -> Tensor | None:
        padded, (rows, longest) = where.span.padded, where.shape
        slow = self._script.recurs and longest > SHORT
        much = rows > 1 and rows * longest > MOST
        if slow or much or not where.span.run or not self._memories.keeps(longest, padded=padded):
            return None
        self._reach(where)
        lengths = where.real.sum(1).tolist()
        three = (t[where.real] if padded else t.flatten() for t in (tokens, where.order, where.position))
        known, order, position = three
        body, stream = self._script.body, self._script.stream
        reading = Running(body, len(known), self._memories, self._running.cells)
        self._point(reading)
        if not reading.read(lengths, order, position, known):
            self._script.embeddings.embed(tokens, where)  # which complains
        self._memories.read(where.span, longest)
        last = torch.tensor(lengths).cumsum(0) - 1
        self._running.take(reading.cells)
        self._running.value(stream).copy_(reading.value(stream)[last])
        self._running.end(len(body.code))
        return self._script.finish(self._running.value(self._script.scores))

    def step(self, tokens: Tensor, where: Where) -> Tensor:
        self._reach(where)
        self._running.step(tokens, where)
        return self._script.finish(self._running.value(self._script.scores))

    def write(self, tokens: Tensor, where: Where, most: int, how: Choice) -> tuple[Tensor, Tensor] | None:
        code, script = self._script.position, self._script
        if code is not None and code.longest is not None:
            most = min(most, code.longest - where.span.last)  # at its end the code itself complains
        if most < 2:
            return None
        self._reach(where, most)
        return self._running.write(tokens, where, most, how, scores=script.scores, cap=script.cap or 0.0)

    def likeliest(self, count: int) -> tuple[Tensor, Tensor] | None:
        return self._running.likeliest(self._script.scores, count) if self._script.cap is None else None

    def select(self, rows: Tensor) -> Walk:
        self._running = self._running.select(rows)
        self._point(self._running)
        return self

    def state(self) -> State:
        logs, cells = iter([Log.returned(lent) for lent in self._running.returned()]), iter(self._running.cells)
        return _refilled(self._tree, logs, cells)

    def _reach(self, where: Where, count: int = 1) -> None:
        """Codes of as many places, and more; the code itself complains about one that it has not."""
        code, needed = self._script.position, where.span.last + count
        if code is None or needed <= (self._script.places if self._places is None else len(self._places)):
            return
        code.code(where.position)
        if self._script.places:
            return
        wanted = max(FIRST, 2 * needed)
        places = torch.arange(wanted if code.longest is None else min(wanted, code.longest))
        self._places = code.code(places).float().contiguous()
        self._point(self._running)

    def _point(self, running: Running) -> None:
        if self._places is not None:
            running.point(Operation.PLACE, self._places)


class Script(Blocks):
    """Writes the program of a model; raises `Unknown` at what it has no instruction for."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        self.embeddings, self.position = model.embeddings, model.embeddings.position
        self.places = 0  # whose codes are read from a table
        self.cap = model.head.cap if isinstance(model.head, LMHead) else None
        if next(model.parameters()).dtype != torch.float32 or model.training:
            raise Unknown("other than float32 at rest")
        self.stream = stream = self._front(model.embeddings, model.config.width)
        ends = model.stack.ends
        known(type(ends) is Ends, ends)
        for block in model.stack.layers:
            self._block(block, stream)
        if ends.final is not None:
            self._norm(ends.final, stream, stream)
        self.recurs = any(made.operation == Operation.RETAIN for made in self.draft.instructions)
        self.body = Program.of(self.draft)  # for many tokens, of which few are asked what comes next
        last = stream if model.narrow is None else self._product(model.narrow, stream, "narrowed")
        if isinstance(model.head, LMHead) and model.head.scale != 1.0:
            self.draft.add(Operation.ADD, last, last, real=(model.head.scale, 0.0))
        self.scores = self._product(model.head, last, "scores")
        self.program = Program.of(self.draft)

    def finish(self, scores: Tensor) -> Tensor:
        """What is left to do with scores."""
        return scores if self.cap is None else self.cap * torch.tanh(scores / self.cap)

    def _front(self, embeddings: TokenEmbeddings, width: int) -> int:
        known(embeddings.narrow is None and embeddings.segment is None and embeddings.box is None, embeddings)
        stream = self.draft.register("stream", width)
        kind, codes, steps = stored_weights(embeddings.table)
        known(embeddings.table.weight.dtype == torch.float32, embeddings.table)
        at = self.draft.keep(codes), self.draft.keep(steps), None
        made = Matrix(int(kind), embeddings.table.num_embeddings, embeddings.table.embedding_dim, 0, *at)
        self.draft.add(Operation.EMBED, stream, real=(embeddings.scale,), matrix=made)
        if embeddings.position is not None:
            self._place(embeddings.position, stream)
        if embeddings.norm is not None:
            self._norm(embeddings.norm, stream, stream)
        return stream

    def _place(self, code: Adds, stream: int) -> None:
        """A table of codes is read where it is; others are made for as many places as are needed."""
        if isinstance(code, Learned) and code.table.dtype == torch.float32:
            self.places = code.length
            self.draft.add(Operation.PLACE, stream, number=(code.offset,), table=(code.table,))
        else:
            self.draft.add(Operation.PLACE, stream)


def _plain(tensor: Tensor) -> bool:
    """Float32, or stamps, on the CPU."""
    return tensor.is_cpu and tensor.dtype in (torch.float32, torch.int64)


def _refilled(tree: State, logs: Iterator[Log], cells: Iterator[Tensor]) -> State:
    """The same tree with these leaves."""
    if isinstance(tree, tuple):
        return tuple(_refilled(part, logs, cells) for part in tree)
    return next(logs) if isinstance(tree, Log) else Cell(*(next(cells) for _ in tree.tensors()))
