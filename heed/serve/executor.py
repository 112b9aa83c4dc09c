"""One sequence at work: its prompt is read in chunks, by calls of its own, and then it steps, alone or in a batch.

A prompt is read by plain calls, whose stacks run as passes. Rows of a model that has a `Batch` step together; others
step by calls of their own, as a program where there is one. Which of these is a matter of the model alone, never of
what ran before or of who else is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.contract import Given, Mixer, Where
from ..core.state import State
from ..engine.compiled import compiled_runner
from ..engine.program import Uncompiled
from ..engine.runners import PlainRunner, Runner
from .batch import Batch, Seat


class Row:
    """One sequence at work: its state, and how many tokens are in it."""

    def __init__(self, model: Mixer[Any], given: Given) -> None:
        self._model, self._given = model, given
        self._reader = PlainRunner(model, training=())
        self._reader.start(1, given)
        self._writer: Runner | None = None  # from the first step on; it has the state then
        self._seat: Seat | None = None  # or this has it, where rows step together
        self.done = 0

    def read(self, tokens: Sequence[int]) -> Tensor:
        """Some tokens more: logits after the last. [V]"""
        return self._reader.prefill(*self._next(tokens))[0]

    def read_all(self, tokens: Sequence[int]) -> Tensor:
        """The same with the logits after each. [T, V]"""
        return self._reader.prefill_all(*self._next(tokens))[0]

    def step(self, token: int) -> Tensor:
        """One token more, written by a step even where a prompt would be read so: logits after it. [V]"""
        if self._writer is None:
            self._writer = self._stepping()
        tokens, where = self._next([token])
        return self._writer.step(tokens[0], where)[0].clone()  # the next step writes over them

    def seat(self, batch: Batch) -> Seat:
        """Its place among the rows that step together, taken at the first step."""
        if self._seat is None:
            self._seat = Seat(batch.arena, self._reader.state())
        return self._seat

    def close(self) -> None:
        """It is done with: what it had among others is free."""
        if self._seat is not None:
            self._seat.close()

    @property
    def state(self) -> State:
        """What is remembered, between two chunks of a prompt; to be looked at, not to be used up."""
        return self._reader.state()

    def resume(self, state: State, done: int) -> None:
        """Go on from what another row remembered after so many tokens."""
        self._reader = PlainRunner(self._model, state, self._given, training=())
        self.done = done

    def _next(self, tokens: Sequence[int]) -> tuple[Tensor, Where]:
        device = self._model.device
        where = Where.run(1, len(tokens), start=self.done, device=device)
        self.done += len(tokens)
        return torch.tensor([list(tokens)], device=device), where

    def _stepping(self) -> Runner:
        made = compiled_runner(self._model, self._reader.state(), self._given)
        return self._reader if isinstance(made, Uncompiled) else made
