"""The rows that a model is reading and writing: its state, what it was given, and where each row stands.

This is all that decoding asks of a model: prompts at once, then one token per row, and rows dropped, repeated or put
into another order between the calls. Whether the state is a log of keys or the matrix of a recurrence is not seen here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..core.contract import NOTHING, Given, Mixer, Where
from ..core.errors import InputError
from ..core.interfaces import Choice, Stepper, Steps
from ..core.stamps import Span
from ..core.state import Seen, State, select


class Rows:
    """A batch of rows. Row i belongs to prompt `owner[i]` and is as long as the others, beyond its prompt.

    Gradients are off within a call only (`no_grad`, not inference mode: what a caller gave must stay fit for training),
    and so is the training mode of modules: between two calls the model is as the caller left it.
    """

    def __init__(self, model: Mixer[Any], prompts: Sequence[Sequence[int]], given: Given = NOTHING) -> None:
        _check(prompts)
        model.must_stream()
        self._model, self._given, self._now = model, given, given
        self._prompts, self._device = prompts, model.device
        self._training = [module for module in model.modules() if module.training]
        self._steps = 0  # tokens written in every row
        self._state: Any = None
        self._stepper: Stepper | None = None  # holds the state while there is one
        self._asked = not isinstance(model, Steps)  # whether the model was asked for one
        self.owner = list(range(len(prompts)))
        self._place()

    def __len__(self) -> int:
        return len(self.owner)

    @torch.no_grad()
    def read(self) -> Tensor:
        """Scores of the token after each prompt. [R, V]"""
        lengths = [len(prompt) for prompt in self._prompts]
        longest = max(lengths)
        tokens = torch.tensor([[*prompt, *[0] * (longest - len(prompt))] for prompt in self._prompts])
        same = min(lengths) == longest
        where = Where.run(len(self), longest, device=self._device) if same else Where.ragged(self._lengths)
        with _resting(self._training):
            state = self._model.start(len(self), self._given)
            given = (tokens.to(self._device), where.beside(self._given), state)
            if isinstance(self._model, Steps):
                return _wide(self._read_by_steps(self._model, *given))
            scores, self._state = self._model(*given)
        return _wide(scores[torch.arange(len(self), device=scores.device), self._lengths - 1])

    def _read_by_steps(self, model: Steps, tokens: Tensor, where: Where, state: State) -> Tensor:
        """By somebody who will go on from there, if he is there already and can read; else by a call."""
        stepper = model.stepper(state) if model.practised and not self._asked else None
        if stepper is not None:
            scores = stepper.read(tokens, where)
            if scores is not None:
                self._stepper, self._asked = stepper, True
                return scores.clone()  # the next step writes over them
            state = stepper.state()
        scores, self._state = model.after(tokens, where, state, self._lengths - 1)
        return scores

    @torch.no_grad()
    def write(self, tokens: Tensor) -> Tensor:
        """One more token in every row; scores of the token after it, which hold until the next call. [R] -> [R, V]"""
        where = self._next()
        self._steps += 1
        if self.stepped and self._stepper is not None:
            return self._stepper.step(tokens, where)
        with _resting(self._training):
            scores, self._state = self._model(tokens[:, None], where, self._state)
        return _wide(scores[:, -1])

    @property
    @torch.no_grad()
    def stepped(self) -> bool:
        """Whether there is somebody who writes one token after the other, faster than calls do."""
        if not self._asked and isinstance(self._model, Steps):
            self._asked = True
            with _resting(self._training):
                self._stepper = self._model.stepper(self._state)
            if self._stepper is not None:
                self._state = None  # which the stepper has now
        return self._stepper is not None

    @torch.no_grad()
    def burst(self, tokens: Tensor, most: int, how: Choice) -> tuple[Tensor, Tensor] | None:
        """This token in every row, and then those that are chosen, at most so many steps at once: what was chosen in
        each, and its log p. The last one is still to be written. None if it must go one by one. [R] -> [n, R] twice
        """
        if not self.stepped or self._stepper is None:
            return None
        made = self._stepper.write(tokens, self._next(), most, how)
        if made is not None:
            self._steps += len(made[0])
        return made

    def likeliest(self, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Log p of the likeliest tokens by these scores, the last that were given, and the tokens. [R, count] twice"""
        found = None if self._stepper is None or not self._steps else self._stepper.likeliest(count)
        if found is None:
            logprob, token = scores.log_softmax(1).topk(count)
            return logprob, token
        return found

    @torch.no_grad()
    def select(self, index: Tensor, owner: list[int]) -> None:
        """These rows, in this order, repeated if named twice; `owner` says to which prompts they belong."""
        if self.stepped and self._stepper is not None:
            self._stepper = self._stepper.select(index)
        else:
            self._state = select(self._state, index)
        if owner != self.owner:
            self.owner = owner
            self._now = NOTHING if self.stepped else _rows_of(self._given, torch.tensor(owner))  # a stepper has it all
            self._place()

    def order(self, row: int) -> int:
        """The order of the token that comes next in this row."""
        return len(self._prompts[self.owner[row]]) + self._steps

    def _place(self) -> None:
        lengths = [len(self._prompts[row]) for row in self.owner]
        self._lengths = torch.tensor(lengths, device=self._device)
        self._first, self._last = min(lengths, default=0), max(lengths, default=0)

    def _next(self) -> Where:
        """Every row goes on at its own place. The span is known, so nobody has to look at the tensor."""
        if self._first == self._last:
            where = Where.run(len(self), 1, start=self._first + self._steps, device=self._device)
        else:
            order = (self._lengths + self._steps)[:, None]
            where = Where(order, order)
            where.known(Span(self._first + self._steps, self._last + self._steps, run=False, padded=False))
        return where if self._now is NOTHING else where.beside(self._now)


@contextmanager
def _resting(modules: Sequence[nn.Module]) -> Iterator[None]:
    """These modules as in evaluation (no dropout), and as they were afterwards."""
    for module in modules:
        module.training = False
    try:
        yield
    finally:
        for module in modules:
            module.training = True


def _check(prompts: Sequence[Sequence[int]]) -> None:
    for row, prompt in enumerate(prompts):
        if isinstance(prompt, int):
            raise InputError("prompts is one list of ids; give a list of prompts, each a list of ids: [[1, 2, 3]]")
        if len(prompt) == 0:
            raise InputError(
                f"prompt {row} is empty; a model continues from at least one token, for example one that begins a text"
            )


def _wide(scores: Tensor) -> Tensor:
    """At least float32: sums of many log p need it."""
    return scores.float() if scores.dtype.itemsize < 4 else scores


def _rows_of(given: Given, index: Tensor) -> Given:
    if given is NOTHING:
        return NOTHING
    return Given(_seen(given.encoder_output, index), _seen(given.shared, index), _seen(given.neighbours, index))


def _seen(seen: Seen | None, index: Tensor) -> Seen | None:
    if seen is None:
        return None
    rows = index.to(seen.order.device)
    return Seen(*(tensor.index_select(0, rows) for tensor in (seen.order, seen.position, *seen.parts)))
