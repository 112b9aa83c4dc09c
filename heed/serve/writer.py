"""How one request is written: a token of its logits, as `heed.decode` would choose it for this prompt alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from math import isfinite

import torch
from torch import Tensor

from ..core.errors import InputError
from ..decode.constraints import Constraint, restrict
from ..decode.sampling import Repetition
from ..text.stream import Stream
from .answer import Event, Reason, Top
from .request import Request
from .text import GrowingText


class Writer:
    """What a request has written, and how it goes on. Draws come from its own generator, in its own order."""

    def __init__(
        self,
        request: Request,
        prompt: Sequence[int],
        *,
        limit: int,
        ends: Collection[int],
        constraint: Constraint | None = None,
        stream: Stream | None = None,
    ) -> None:
        self._request, self._limit, self._ends = request, limit, frozenset(ends)
        self._constraint = constraint
        self._choose = request.sampling.start(1)
        self._repetition = Repetition(request.sampling.repetition, [prompt])
        self._counts = Counter[int]()  # how often each token was written, where that is penalised
        self._text = GrowingText(stream, request.stop)
        bias = request.logit_bias
        self._biased, self._bias = torch.tensor([*bias], dtype=torch.long), torch.tensor([*bias.values()])
        self.written: list[int] = []
        self.reason: Reason | None = None  # why it ended

    def write(self, logits: Tensor) -> list[Event]:
        """One more token, by the logits after the last. [V] -> events that are certain now, without the last one"""
        token, logprob = self._chosen(logits[None])
        self.written.append(token)
        if token in self._ends:
            self.reason = "end"
            return []
        count = self._request.logprobs
        told = None if count is None else logprob
        events = self._text.push(Event(token, logprob=told, top=top(logits, count)))
        if self._text.stopped:
            self.reason = "stop"
        elif len(self.written) == self._limit:
            self.reason = "limit"
        return events

    def finish(self) -> tuple[list[Event], str, Reason | None]:
        """What was held back, as events and as text, and why it ended: held-back text may yet hold a stop string."""
        events, rest = self._text.finish()
        return events, rest, "stop" if self._text.stopped else self.reason

    def _chosen(self, logits: Tensor) -> tuple[int, float]:
        """A token and its log p. [1, V]"""
        allowed = self._allowed(logits)
        rated = self._repetition(allowed)
        tokens = self._choose(rated)
        self._repetition.add(tokens)
        token = int(tokens)
        if self._request.frequency_penalty or self._request.presence_penalty:
            self._counts[token] += 1
        logprob = float(logits[0, token] - logits.logsumexp(1)[0])
        if not isfinite(logprob) or not bool((rated < torch.inf).all()):
            raise InputError(f"the model's logits hold NaN or infinity at step {len(self.written) + 1}")
        if not isfinite(float(allowed[0, token])):
            raise InputError(f"no token is left for step {len(self.written) + 1}: `allow` forbids all")
        return token, logprob

    def _allowed(self, logits: Tensor) -> Tensor:
        """With the bias and the penalties, and -inf at what is forbidden."""
        if len(self._biased):
            logits = logits.clone()
            logits[0, self._biased] += self._bias.to(logits.dtype)
        if self._counts:
            tokens, counts = list(self._counts), torch.tensor([*self._counts.values()], dtype=logits.dtype)
            logits = logits.clone()
            logits[0, tokens] -= self._request.frequency_penalty * counts + self._request.presence_penalty
        written = tuple(self.written)
        if self._constraint is not None:
            logits = restrict(logits, [self._constraint(0, written)])
        if self._request.allow is not None:
            logits = restrict(logits, [self._request.allow(written)])
        return logits


def top(logits: Tensor, count: int | None) -> Top:
    """The most probable tokens and their log p, the largest first. [V]"""
    if not count:
        return ()
    logprob, token = logits.log_softmax(0).topk(min(count, len(logits)))
    return tuple(zip(token.tolist(), logprob.tolist(), strict=True))


def prompt_logprobs(logits: Tensor, tokens: Sequence[int], count: int) -> list[tuple[float, Top]]:
    """Of these tokens, each by the logits before it. [T, V]"""
    logprobs = logits.log_softmax(1)
    own = logprobs.gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()
    return [(logprob, top(row, count)) for logprob, row in zip(own, logits, strict=True)]
