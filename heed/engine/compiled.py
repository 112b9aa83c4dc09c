"""The compiled runner: one token per row through all layers of a decoder in one call of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from ..core.contract import NOTHING, Given, Mixer, Where
from ..core.state import Cell, Log, State, leaves
from ..kernels.abi import Operation
from ..kernels.build import library, why_none
from ..kernels.hugepages import gathered
from ..kernels.kv_slots import KvCaches
from ..parts.layers.bitnet import PackedTernaryLinear
from ..parts.layers.embeddings import QuantisedEmbedding
from ..parts.layers.quantised import GroupedLinear, Int8Linear
from ..parts.outputs.heads import HeadTransform, LMHead
from . import operands
from .cache import programs
from .emit import Emitter
from .emit.table import DECODER, ENDS, SEQ2SEQ, must_be, name_of, why_not
from .execution import Execution, SamplingSettings
from .passes import MOST, SHORT
from .program import Program, Uncompiled, must
from .runners import PlainRunner, Runner

if TYPE_CHECKING:
    from ..models.decoder import Decoder

FIRST = 512  # places of a code that is added to tokens that are held ready at first


class DecoderProgram(Emitter):
    """The program of a decoder, written; raises `Uncompiled` at what has no emitter."""

    def __init__(self, model: Decoder) -> None:
        super().__init__()
        must_be(model, DECODER)
        must(next(model.parameters()).dtype == torch.float32, model, "not float32")
        must(not model.training, model, "in training")
        self.embedding, self.added_code = model.embeddings, model.embeddings.position
        self.cap = model.head.cap if isinstance(model.head, LMHead) else None
        self.stream, self.places = self.embeddings(model.embeddings, model.config.width)
        stream, ends = self.stream, model.stack.ends
        must_be(ends, ENDS)
        for block in model.stack.layers:
            self.block(block, stream)
        if ends.final is not None:
            self.norm(ends.final, stream, stream)
        self.recurs = any(made.operation == Operation.RETAIN for made in self.builder.instructions)
        self.body = Program.of(self.builder)  # for many tokens, of which few are asked what comes next
        if isinstance(model.narrow, HeadTransform):
            raise Uncompiled(model, "its head reads the stream through a layer and a norm")
        last = stream if model.narrow is None else self.product(model.narrow, stream, "narrowed")
        if isinstance(model.head, LMHead) and model.head.scale != 1.0:
            self.builder.add(operands.Add(model.head.scale, 0.0), last, last)
        self.logits = self.product(model.head, last, "logits")
        self.program = Program.of(self.builder)

    def capped(self, logits: Tensor) -> Tensor:
        """What is left to do with logits."""
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


# What generates, in a model that does.
DECODERS: Mapping[str, Callable[[Any], Any]] = {DECODER: lambda model: model, SEQ2SEQ: attrgetter("decoder")}


def decoder_of(model: object) -> Decoder | Uncompiled:
    """The decoder that generates, or why its steps have no program."""
    found = DECODERS.get(name_of(type(model)))
    return Uncompiled(model, why_not(DECODERS, type(model))) if found is None else cast("Decoder", found(model))


def compiled_runner(model: Mixer[Any], state: State, given: Given = NOTHING) -> CompiledRunner | Uncompiled:
    """A runner that goes on from this state, which is used up; or why there is none, and the state is left alone."""
    decoder = decoder_of(model)
    program = decoder if isinstance(decoder, Uncompiled) else decoder_program(decoder, state)
    return program if isinstance(program, Uncompiled) else CompiledRunner(model, program, state, given)


def decoder_program(model: Decoder, state: State) -> DecoderProgram | Uncompiled:
    """The program that goes on from this state, from the cache or written now; or why there is none.

    The first one moves all weights to where they are read best.
    """
    held = [tensor for leaf in leaves(state) for tensor in leaf.storage()]
    if library() is None:
        return Uncompiled(model, f"there are no kernels: {why_none()}")
    if torch.is_grad_enabled():
        return Uncompiled(model, "gradients are on: KV caches are written to in place, which none would survive")
    if not held or not all(map(_plain, held)):
        programs(model).forget()  # weights have moved: nothing is to hold where they were
        return Uncompiled(model, "the state is empty, or not float32 on the CPU")
    return programs(model).of(model, DecoderProgram, lambda: _settled(model))


def is_compiled(model: Mixer[Any]) -> bool:
    """Whether the program of its steps is there already."""
    decoder = decoder_of(model)
    return not isinstance(decoder, Uncompiled) and programs(decoder).holds(DecoderProgram)


def _settled(model: Decoder) -> DecoderProgram:
    """Its program, with all that is read where it is read best."""
    quantised = [
        module
        for module in model.modules()
        if isinstance(module, Int8Linear | GroupedLinear | PackedTernaryLinear | QuantisedEmbedding)
    ]
    for layer, codes in zip(quantised, gathered([layer.codes for layer in quantised]), strict=True):
        layer.codes = codes
    made = DecoderProgram(model)
    made.program.settle()
    programs(model.stack).forget()  # which may hold what lay elsewhere before
    return made


class CompiledRunner(Runner):
    """By a decoder's program, which has taken over a state."""

    compiled, reason = True, ""

    def __init__(self, model: Mixer[Any], program: DecoderProgram, state: State, given: Given = NOTHING) -> None:
        self._model, self._given, self._program = model, given, program
        self._take(state)

    def _take(self, state: State) -> None:
        program, self._tree = self._program, state
        held = list(leaves(state))
        rows = len(held[0].storage()[0])
        lent = [leaf.lend() for leaf in held if isinstance(leaf, Log)]
        cells = [tensor for leaf in held if isinstance(leaf, Cell) for tensor in leaf.take()]
        self.caches = KvCaches(lent, program.program.sources)
        self._execution = Execution(program.program, rows, self.caches, cells)
        self._codes: Tensor | None = None  # of the first positions, if they are made: as many as were needed

    def encode(self, source: Tensor, where: Where) -> Given:
        return PlainRunner(self._model).encode(source, where)

    def start(self, rows: int, given: Given = NOTHING) -> None:
        plain = PlainRunner(self._model)
        plain.start(rows, given)
        self._given = given
        self._take(plain.state())

    @torch.no_grad()
    def prefill(self, tokens: Tensor, where: Where) -> Tensor:
        logits = self._prefilled(tokens, where)
        if logits is None:
            plain = PlainRunner(self._model, self.state(), self._given)
            logits = plain.prefill(tokens, where)
            self._take(plain.state())
        return logits

    def _prefilled(self, tokens: Tensor, where: Where) -> Tensor | None:
        """None, and nothing was done, if a pass is quicker or must do it."""
        padded, (rows, longest) = where.span.padded, where.shape
        slow = self._program.recurs and longest > SHORT
        much = rows > 1 and rows * longest > MOST
        if slow or much or not where.span.run or not self.caches.keeps(longest, padded=padded):
            return None
        self._reach(where)
        lengths = where.real.sum(1).tolist()
        three = (t[where.real] if padded else t.flatten() for t in (tokens, where.order, where.position))
        known, order, position = three
        body, stream = self._program.body, self._program.stream
        reading = Execution(body, len(known), self.caches, self._execution.cells)
        self._point(reading)
        if not reading.prefill(lengths, order, position, known):
            self._program.embedding.embed(tokens, where)  # which complains
        self.caches.prefilled(where.span, longest)
        last = torch.tensor(lengths, dtype=torch.int64, device="cpu").cumsum(0) - 1
        self._execution.take(reading.cells)
        self._execution.value(stream).copy_(reading.value(stream)[last])
        self._execution.finish(len(body.code))
        return self._program.capped(self._execution.value(self._program.logits))

    @torch.no_grad()
    def step(self, tokens: Tensor, where: Where) -> Tensor:
        self._reach(where)
        self._execution.step(tokens, where)
        return self._program.capped(self._execution.value(self._program.logits))

    @torch.no_grad()
    def burst(
        self, tokens: Tensor, where: Where, most: int, sampling: SamplingSettings
    ) -> tuple[Tensor, Tensor] | None:
        code, program = self._program.added_code, self._program
        if code is not None and code.longest is not None:
            most = min(most, code.longest - where.span.last)  # at its end the code itself complains
        if most < 2:
            return None
        self._reach(where, most)
        return self._execution.burst(tokens, where, most, sampling, logits=program.logits, cap=program.cap or 0.0)

    def topk_logprobs(self, count: int) -> tuple[Tensor, Tensor] | None:
        return self._execution.topk_logprobs(self._program.logits, count) if self._program.cap is None else None

    @torch.no_grad()
    def select(self, rows: Tensor) -> None:
        self._execution = self._execution.select(rows)
        self._point(self._execution)

    def state(self) -> State:
        logs = iter([Log.returned(lent) for lent in self._execution.returned()])
        return _refilled(self._tree, logs, iter(self._execution.cells))

    def _reach(self, where: Where, count: int = 1) -> None:
        """Codes of as many places, and more; the code itself complains about one that it has not."""
        code = self._program.added_code
        if code is None:
            return
        last = where.span.last if where.position is where.order else int(where.position.max())
        needed = last + count
        if needed <= (self._program.places if self._codes is None else len(self._codes)):
            return
        code.code(where.position)
        if self._program.places:
            return
        wanted = max(FIRST, 2 * needed)
        most = wanted if code.longest is None else min(wanted, code.longest)
        places = torch.arange(most, dtype=torch.int64, device="cpu")
        self._codes = code.code(places).float().contiguous()
        self._point(self._execution)

    def _point(self, execution: Execution) -> None:
        if self._codes is not None:
            execution.place(self._codes)


def _plain(tensor: Tensor) -> bool:
    """Float32, or stamps, on the CPU."""
    return tensor.is_cpu and tensor.dtype in (torch.float32, torch.int64)


def _refilled(tree: State, logs: Iterator[Log], cells: Iterator[Tensor]) -> State:
    """The same tree with these leaves."""
    if isinstance(tree, tuple):
        return tuple(_refilled(part, logs, cells) for part in tree)
    return next(logs) if isinstance(tree, Log) else Cell(*(next(cells) for _ in tree.tensors()))
