"""`runner(model)`: prompts are read at once, steps become a program as soon as there are any.

The first step of a model moves all weights to where they are read best. A prompt alone does not pay for that: it is
read by passes, unless the program is there already.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.contract import NOTHING, Given, Mixer, Where
from ..core.state import State
from .compiled import compiled_runner, is_compiled
from .execution import SamplingSettings
from .program import Uncompiled
from .runners import PlainRunner, Runner, in_training, resting


def runner(model: Mixer[Any], state: State | None = None, given: Given = NOTHING) -> Runner:
    """The fastest runner of this model: compiled if it can be, else plain, and then its `reason` says why."""
    return AdaptiveRunner(model, state, given)


class AdaptiveRunner(Runner):
    """A plain runner until the first step, a compiled one from there on; where there is no program it stays plain."""

    def __init__(self, model: Mixer[Any], state: State | None = None, given: Given = NOTHING) -> None:
        self._model, self._given = model, given
        self._training = in_training(model)
        self._inner: Runner = PlainRunner(model, state, given, self._training)
        self._asked = False  # whether there is a program for its steps

    @property
    def compiled(self) -> bool:  # type: ignore[override]
        return self._inner.compiled

    @property
    def reason(self) -> str:  # type: ignore[override]
        return self._inner.reason

    def encode(self, source: Tensor, where: Where) -> Given:
        return self._inner.encode(source, where)

    def start(self, rows: int, given: Given = NOTHING) -> None:
        self._given = given
        if not isinstance(self._inner, PlainRunner):
            self._inner = PlainRunner(self._model, training=self._training)
        self._asked = False
        self._inner.start(rows, given)

    def prefill(self, tokens: Tensor, where: Where) -> Tensor:
        if not self._asked and is_compiled(self._model):
            self._stepping()
        return self._inner.prefill(tokens, where)

    def prepare(self) -> bool:
        return self._stepping().compiled

    def step(self, tokens: Tensor, where: Where) -> Tensor:
        return (self._inner if self._asked else self._stepping()).step(tokens, where)

    def burst(
        self, tokens: Tensor, where: Where, most: int, sampling: SamplingSettings
    ) -> tuple[Tensor, Tensor] | None:
        return (self._inner if self._asked else self._stepping()).burst(tokens, where, most, sampling)

    def topk_logprobs(self, count: int) -> tuple[Tensor, Tensor] | None:
        return self._inner.topk_logprobs(count)

    def select(self, rows: Tensor) -> None:
        (self._inner if self._asked else self._stepping()).select(rows)

    def state(self) -> State:
        return self._inner.state()

    @torch.no_grad()
    def _stepping(self) -> Runner:
        """The runner of all steps from now on; the state goes to it."""
        if not self._asked:
            self._asked = True
            with resting(self._training):
                made = compiled_runner(self._model, self._inner.state(), self._given)
            if isinstance(made, Uncompiled):
                assert isinstance(self._inner, PlainRunner)
                self._inner.reason = str(made)
            else:
                self._inner = made
        return self._inner
