"""The rows of a batch that is decoded: which prompt each belongs to, and where it stands; a runner does the rest.

This is all that decoding asks of a model: prompts at once, then one token per row, and rows dropped, repeated or put
into another order between the calls. Whether the state is a KV cache or the matrix of a recurrence is not seen here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.contract import NOTHING, Given, Mixer, Where
from ..core.errors import InputError
from ..core.stamps import Span
from ..engine import SamplingSettings, runner


class Rows:
    """A batch of rows. Row i belongs to prompt `owner[i]` and is as long as the others, beyond its prompt.

    Gradients are off within a call only (`no_grad`, not inference mode: what a caller gave must stay fit for training),
    and so is the training mode of modules: between two calls the model is as the caller left it.
    """

    def __init__(self, model: Mixer[Any], prompts: Sequence[Sequence[int]], given: Given = NOTHING) -> None:
        _check(prompts)
        self.runner = runner(model, given=given)
        self._given, self._prompts, self._device = given, prompts, model.device
        self._steps = 0  # tokens written in every row
        self.owner = list(range(len(prompts)))
        self._place()

    def __len__(self) -> int:
        return len(self.owner)

    def prefill(self) -> Tensor:
        """Logits of the token after each prompt. [R, V]"""
        lengths = [len(prompt) for prompt in self._prompts]
        longest = max(lengths)
        tokens = torch.tensor(
            [[*prompt, *[0] * (longest - len(prompt))] for prompt in self._prompts], device=self._device
        )
        same = min(lengths) == longest
        where = Where.run(len(self), longest, device=self._device) if same else Where.ragged(self._lengths)
        self.runner.start(len(self), self._given)
        return self.runner.prefill(tokens, where).clone()  # the next step writes over them

    def step(self, tokens: Tensor) -> Tensor:
        """One more token in every row; logits of the token after it, which hold until the next call. [R] -> [R, V]"""
        where = self.next()
        self._steps += 1
        return self.runner.step(tokens, where)

    def burst(self, tokens: Tensor, most: int, sampling: SamplingSettings) -> tuple[Tensor, Tensor] | None:
        """This token in every row, and then those that are sampled, at most so many steps at once: what was sampled in
        each, and its log p. The last one is still to be written. None if it must go one by one. [R] -> [n, R] twice
        """
        made = self.runner.burst(tokens, self.next(), most, sampling)
        if made is not None:
            self._steps += len(made[0])
        return made

    def topk_logprobs(self, logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Top-k log-probabilities by these logits, the last that were given, and their tokens. [R, count] twice"""
        found = self.runner.topk_logprobs(count) if self._steps else None
        if found is None:
            logprob, token = logits.log_softmax(1).topk(count)
            return logprob, token
        return found

    def select(self, index: Tensor, owner: list[int]) -> None:
        """These rows, in this order, repeated if named twice; `owner` says to which prompts they belong."""
        self.runner.select(index)
        if owner != self.owner:
            self.owner = owner
            self._place()

    def order(self, row: int) -> int:
        """The order of the token that comes next in this row."""
        return len(self._prompts[self.owner[row]]) + self._steps

    def _place(self) -> None:
        lengths = [len(self._prompts[row]) for row in self.owner]
        self._lengths = torch.tensor(lengths, device=self._device)
        self._first, self._last = min(lengths, default=0), max(lengths, default=0)

    def next(self) -> Where:
        """Every row goes on at its own place. The span is known, so the tensor need not be looked at."""
        if self._first == self._last:
            where = Where.run(len(self), 1, start=self._first + self._steps, device=self._device)
        else:
            order = (self._lengths + self._steps)[:, None]
            where = Where(order, order)
            where.known(Span(self._first + self._steps, self._last + self._steps, run=False, padded=False))
        return where


def _check(prompts: Sequence[Sequence[int]]) -> None:
    for row, prompt in enumerate(prompts):
        if isinstance(prompt, int):
            raise InputError("prompts is one list of ids; give a list of prompts, each a list of ids: [[1, 2, 3]]")
        if len(prompt) == 0:
            raise InputError(
                f"prompt {row} is empty; a model continues from at least one token, for example one that begins a text"
            )
