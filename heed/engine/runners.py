"""The runner protocol: a model that generates, from its prompts on. Here the plain one, which calls the model.

runner = engine.runner(model)
runner.start(rows, given)                     # given: what `runner.encode` gave, for an encoder-decoder
logits = runner.prefill(tokens, where)        # of the token after each prompt
logits = runner.step(next_tokens, where)      # one more token in every row
runner.select(rows)                           # rows dropped, repeated or put into another order
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..core.contract import NOTHING, Given, Mixer, Where
from ..core.errors import InputError
from ..core.interfaces import Encodes
from ..core.state import Seen, State, select
from .emit.table import DECODER, SEQ2SEQ, name_of
from .execution import SamplingSettings
from .shadow import compile


class Runner(ABC):
    """A model at work on some rows, without gradients, and as in evaluation whatever the caller left it in."""

    compiled: bool  # whether it runs as a program by now
    reason: str  # why not, if that was found out

    @abstractmethod
    def encode(self, source: Tensor, where: Where) -> Given:
        """What an encoder-decoder is given beside its prompts: the encoder output of a source."""

    @abstractmethod
    def start(self, rows: int, given: Given = NOTHING) -> None:
        """Begin anew, with so many rows."""

    @abstractmethod
    def prefill(self, tokens: Tensor, where: Where) -> Tensor:
        """Many tokens, at least one in every row and padding only behind them: the logits after the last of each,
        which hold until the next call. [R, T] -> [R, V]
        """

    def prepare(self) -> bool:
        """Get ready for steps, which may compile them now instead of at the first one. Whether they are compiled."""
        return self.compiled

    @abstractmethod
    def step(self, tokens: Tensor, where: Where) -> Tensor:
        """One more token in every row: the logits after it, which hold until the next call. [R] -> [R, V]"""

    @abstractmethod
    def burst(
        self, tokens: Tensor, where: Where, most: int, sampling: SamplingSettings
    ) -> tuple[Tensor, Tensor] | None:
        """This token in every row and then those that are sampled, `most` at most: the sampled ones, the last of which
        is not written yet, and their log p (NaN if there was none to choose); None if it must be one by one.
        [R] -> [n, R] twice
        """

    @abstractmethod
    def topk_logprobs(self, count: int) -> tuple[Tensor, Tensor] | None:
        """After a step: the top-k log-probabilities of every row, the largest first, and their tokens. NaN in a row
        whose logits are no numbers; None if logits must be asked. [R, count] twice
        """

    @abstractmethod
    def select(self, rows: Tensor) -> None:
        """Go on with these rows, in this order, repeated if named twice."""

    @abstractmethod
    def state(self) -> State:
        """The state by now. The runner is of no use after that."""


class PlainRunner(Runner):
    """By calls of the model, whose stacks are compiled."""

    compiled = False

    reason = ""

    def __init__(
        self,
        model: Mixer[Any],
        state: State | None = None,
        given: Given = NOTHING,
        training: Sequence[nn.Module] | None = None,
    ) -> None:
        model.must_stream()
        self._model, self._state, self._given = model, state, given
        self._owner: Tensor | None = None  # which row of `given` each row is of; None: its own
        self._now = given
        self._training = in_training(model) if training is None else training

    @torch.no_grad()
    def encode(self, source: Tensor, where: Where) -> Given:
        if not isinstance(self._model, Encodes):
            raise InputError(f"{type(self._model).__name__} encodes no source; only an encoder-decoder does")
        with resting(self._training):
            return Given(encoder_output=compile(self._model).encode(source, where))

    @torch.no_grad()
    def start(self, rows: int, given: Given = NOTHING) -> None:
        self._given, self._now, self._owner = given, given, None
        with resting(self._training):
            self._state = self._model.start(rows, given)

    @torch.no_grad()
    def prefill(self, tokens: Tensor, where: Where) -> Tensor:
        rows, columns = where.shape
        row = torch.arange(rows, device=tokens.device)
        last = where.real.sum(1) - 1 if where.span.padded else row.new_full((rows,), columns - 1)
        where = self._told(where)
        with resting(self._training):
            model: Any = compile(self._model)
            if _headed(model):
                hidden, self._state = model.hidden_states(tokens, where, self._state)
                return _wide(model.lm_head(hidden[row, last]))
            logits, self._state = model(tokens, where, self._state)
        return _wide(logits[row, last])

    @torch.no_grad()
    def prefill_all(self, tokens: Tensor, where: Where) -> Tensor:
        """The same with the logits after every token, for the log-probabilities of a prompt. [R, T] -> [R, T, V]"""
        with resting(self._training):
            logits, self._state = compile(self._model)(tokens, self._told(where), self._state)
        return _wide(logits)

    @torch.no_grad()
    def step(self, tokens: Tensor, where: Where) -> Tensor:
        with resting(self._training):
            logits, self._state = compile(self._model)(tokens[:, None], self._told(where), self._state)
        return _wide(logits[:, -1])

    def burst(
        self, tokens: Tensor, where: Where, most: int, sampling: SamplingSettings
    ) -> tuple[Tensor, Tensor] | None:
        return None

    def topk_logprobs(self, count: int) -> tuple[Tensor, Tensor] | None:
        return None

    @torch.no_grad()
    def select(self, rows: Tensor) -> None:
        self._state = select(cast(State, self._state), rows)
        if self._given is NOTHING:
            return
        before = self._owner
        self._owner = rows if before is None else before[rows]
        if before is None or not torch.equal(before, self._owner):
            self._now = _rows_of(self._given, self._owner)

    def state(self) -> State:
        return cast(State, self._state)

    def _told(self, where: Where) -> Where:
        return where if self._now is NOTHING else where.beside(self._now)


def in_training(model: nn.Module) -> list[nn.Module]:
    """Modules that `resting` must turn to evaluation; found once, because a walk over all modules takes its time."""
    return [module for module in model.modules() if module.training]


@contextmanager
def resting(modules: Sequence[nn.Module]) -> Iterator[None]:
    """These modules as in evaluation (no dropout), and as they were afterwards."""
    for module in modules:
        module.training = False
    try:
        yield
    finally:
        for module in modules:
            module.training = True


def _headed(model: Any) -> bool:
    """Whether its logits are its head's, of its hidden states, and nothing more: a subclass may have changed a call."""
    kind = type(model)
    if name_of(kind.forward) == f"{SEQ2SEQ}.forward":
        return _headed(model.decoder)
    return name_of(kind.forward) == f"{DECODER}.forward" and name_of(kind.mix) == f"{DECODER}.mix"


def _wide(logits: Tensor) -> Tensor:
    """At least float32: sums of many log p need it."""
    return logits.float() if logits.dtype.itemsize < 4 else logits


def _rows_of(given: Given, index: Tensor) -> Given:
    return Given(_seen(given.encoder_output, index), _seen(given.shared, index), _seen(given.neighbours, index))


def _seen(seen: Seen | None, index: Tensor) -> Seen | None:
    if seen is None:
        return None
    rows = index.to(seen.order.device)
    return Seen(*(tensor.index_select(0, rows) for tensor in (seen.order, seen.position, *seen.parts)))
