"""One decoding loop for every model: read the prompts, write one token at a time, drop rows that are done."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Sequence
from math import isfinite
from typing import Annotated, Any, TypeAlias

import torch
from torch import Tensor

from ..core.config import OneOf
from ..core.contract import NOTHING, Given, Mixer
from ..core.errors import InputError
from .allow import Allow
from .beam import Beam, Search
from .pick import PICKS, Greedy, Pick, Repetition
from .rows import Rows
from .rules import Rules
from .stop import Stop, Watch
from .written import Token, Why, Written

WAYS: tuple[type[Pick] | type[Beam], ...] = (*PICKS, Beam)
AnyWay: TypeAlias = Annotated[Pick | Beam, OneOf(lambda: WAYS)]

GREEDY = Greedy()
CROWDED = 0.75  # rows that are done are dropped when at most this share of the batch is still being written


def generate(
    model: Mixer[Any],
    prompts: Sequence[Sequence[int]],
    *,
    limit: int,
    end: int | Collection[int] | None,
    how: Pick | Beam = GREEDY,
    given: Given = NOTHING,
    stop: Stop | None = None,
    allow: Allow | None = None,
) -> list[list[Written]]:
    """The answers to each prompt, the best first: one, or `how.best` of a beam search.

    The prompt of a decoder is the text to go on from, that of an encoder-decoder is the token that begins a target;
    row i of `given` belongs to prompt i. At most `limit` tokens are written, the end token counted. A prompt is
    answered as it would be alone: the batch it is in changes nothing.
    """
    if isinstance(how, Beam):
        rules = Rules.of(limit, end, stop, allow)
        return Search(Rows(model, prompts, given), how, rules).run() if prompts else []
    lines: list[list[Token]] = [[] for _ in prompts]
    for token in stream(model, prompts, limit=limit, end=end, how=how, given=given, stop=stop, allow=allow):
        lines[token.row].append(token)
    return [[_written(line)] for line in lines]


def stream(
    model: Mixer[Any],
    prompts: Sequence[Sequence[int]],
    *,
    limit: int,
    end: int | Collection[int] | None,
    how: Pick | Beam = GREEDY,
    given: Given = NOTHING,
    stop: Stop | None = None,
    allow: Allow | None = None,
) -> Iterator[Token]:
    """The tokens of `generate` one by one, each as soon as it is certain whether it stays.

    With stop strings, tokens are held back as long as their text may still become one. The model runs between two
    tokens only, and in between it is as the caller left it.
    """
    if isinstance(how, Beam):
        raise InputError("a beam search knows its first token only at its end; use generate, or stream greedily")
    rules = Rules.of(limit, end, stop, allow)
    return Loop(Rows(model, prompts, given), prompts, how, rules).run() if prompts else iter(())


class Line:
    """What one row has written, and which of it is certain."""

    def __init__(self, row: int, rules: Rules) -> None:
        self._row, self._rules = row, rules
        self._watch = None if rules.stop is None else Watch(rules.stop)
        self._logprobs: list[float] = []
        self._out = 0  # tokens given out
        self.tokens: list[int] = []

    def add(self, token: int, logprob: float) -> list[Token]:
        """One more token; gives back those that are now certain."""
        if token in self._rules.ends:
            return [*self._give(len(self.tokens)), Token(self._row, token, logprob, "end", kept=False)]
        self.tokens.append(token)
        self._logprobs.append(logprob)
        count = len(self.tokens)
        why: Why | None = "limit" if count == self._rules.limit else None
        if self._watch is None:
            return self._give(count, why)
        if self._watch.stopped(self.tokens):
            return [*self._give(self._watch.kept), *self._give(count, "stop", kept=False)]
        return self._give(count if why else self._watch.kept, why)

    def _give(self, until: int, why: Why | None = None, *, kept: bool = True) -> list[Token]:
        """Tokens up to this one; the last of the row says why it is the last."""
        given = range(self._out, until)
        self._out = until
        last = len(self.tokens) - 1
        return [Token(self._row, self.tokens[i], self._logprobs[i], why if i == last else None, kept) for i in given]


class Loop:
    """Greedy decoding and sampling."""

    def __init__(self, rows: Rows, prompts: Sequence[Sequence[int]], how: Pick, rules: Rules) -> None:
        self._rows, self._rules = rows, rules
        self._choose = how.start(len(prompts))
        self._repetition = Repetition(how.repetition, prompts)
        self._lines = [Line(row, rules) for row in range(len(prompts))]
        self._live = set(range(len(prompts)))  # prompts, not rows of the batch
        self._left = rules.limit  # tokens that may still be written
        # The largest scores, whatever was written before: then several steps may be taken at once.
        self._simple = isinstance(how, Greedy) and how.repetition == 1 and rules.allow is None

    def run(self) -> Iterator[Token]:
        """Tokens step by step, within a step in the order of the prompts."""
        scores = self._rows.read()
        self._rules.fit(scores)
        tokens = yield from self._told(*self._step(scores), scores)
        while self._live:
            tokens = self._drop(tokens)
            made = self._rows.burst(tokens, self._left) if self._simple else None
            if made is None:
                scores = self._rows.write(tokens)
                tokens = yield from self._told(*self._step(scores), scores)
                continue
            for chosen, logprobs in zip(*made, strict=True):
                tokens = yield from self._told(chosen, logprobs)
                if not self._live:
                    return

    def _told(self, tokens: Tensor, logprobs: Tensor, scores: Tensor | None = None) -> Generator[Token, None, Tensor]:
        """What became certain by these tokens, one per row; gives them back."""
        self._left -= 1
        numbers = zip(self._rows.owner, tokens.tolist(), logprobs.tolist(), strict=True)
        for place, (row, token, logprob) in enumerate(numbers):
            if row in self._live:
                if not isfinite(logprob):
                    raise self._problem(row, None if scores is None else scores[place])
                certain = self._lines[row].add(token, logprob)
                if certain and certain[-1].why:
                    self._live.discard(row)
                yield from certain
        return tokens

    @torch.no_grad()
    def _step(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """A token per row and its log p; -inf or NaN if there was none to choose."""
        lines = ((row, self._lines[row].tokens) if row in self._live else None for row in self._rows.owner)
        allowed = self._rules.allowed(scores, lines)
        tokens = self._choose(self._repetition(allowed))
        self._repetition.add(tokens)
        return tokens, allowed.gather(1, tokens[:, None])[:, 0] - scores.logsumexp(1)

    def _problem(self, row: int, scores: Tensor | None) -> InputError:
        """Why there was no token to choose."""
        step = len(self._lines[row].tokens) + 1
        if scores is not None and bool((scores < torch.inf).all()):
            return InputError(f"prompt {row} has no token for step {step}: `allow` forbids all, or their p is 0")
        return InputError(f"the model's scores for prompt {row} hold NaN or infinity at step {step}")

    def _drop(self, tokens: Tensor) -> Tensor:
        """Rows that are done leave the batch when it pays, or when they are ahead of all others.

        Until then they go on unread. But none is led to a place that no live row is at: it might be beyond what
        the model can do, an error that the row alone would not have met.
        """
        rows = self._rows
        stay = [i for i, row in enumerate(rows.owner) if row in self._live]
        if len(stay) == len(rows):
            return tokens
        ahead = max(map(rows.order, range(len(rows)))) > max(map(rows.order, stay))
        if len(stay) > CROWDED * len(rows) and not ahead:
            return tokens
        index = torch.tensor(stay, device=tokens.device)
        rows.select(index, [rows.owner[i] for i in stay])
        self._choose.select(stay)
        self._repetition.select(stay)
        return tokens[index]


def _written(line: Sequence[Token]) -> Written:
    kept = tuple(token.token for token in line if token.kept)
    cut = tuple(token.token for token in line if not token.kept and token.why != "end" and line[-1].why == "stop")
    why = line[-1].why
    assert why is not None  # a row is read to its end
    return Written(kept, sum(token.logprob for token in line), why, cut)
