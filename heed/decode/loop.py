"""One decoding loop for every model: read the prompts, write one token at a time, drop rows that are done."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import isfinite
from time import perf_counter
from typing import Annotated, Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ..core.config import OneOf
from ..core.contract import NOTHING, Given, Mixer
from ..core.errors import InputError
from ..core.tables import renamed_arguments
from ..engine import SamplingSettings
from .beam import Beam, Search
from .constraints import Constraint
from .generated import Generated, Token, Why
from .rows import Rows
from .rules import Rules
from .sampling import SAMPLING, Greedy, Repetition, SamplingConfig
from .stop import Stop, Watch

STRATEGIES: tuple[type[SamplingConfig] | type[Beam], ...] = (*SAMPLING, Beam)
AnyStrategy: TypeAlias = Annotated[SamplingConfig | Beam, OneOf(lambda: STRATEGIES)]

GREEDY = Greedy()
CROWDED = 0.75  # rows that are done are dropped when at most this share of the batch is still being written
FEW = 16  # tokens that are written at once where the caller reads along, or stop strings are looked for
MANY = 64  # and else, at first
PATIENCE = 1.0  # seconds without Python, which alone notices that a user wants to stop; then fewer are written at once


@renamed_arguments(limit="max_new_tokens", how="strategy", allow="constraint")
def generate(
    model: Mixer[Any],
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    end: int | Collection[int] | None,
    strategy: SamplingConfig | Beam = GREEDY,
    given: Given = NOTHING,
    stop: Stop | None = None,
    constraint: Constraint | None = None,
) -> list[list[Generated]]:
    """The answers to each prompt, the best first: one, or `how.best` of a beam search.

    The prompt of a decoder is the text to go on from, that of an encoder-decoder is the token that begins a target;
    row i of `given` belongs to prompt i. At most `max_new_tokens` are written, the end token counted. A prompt is
    answered as it would be alone: the batch it is in changes nothing.
    """
    rules = Rules.of(max_new_tokens, end, stop, constraint)
    if not prompts:
        return []
    rows = Rows(model, prompts, given)
    if isinstance(strategy, Beam):
        return Search(rows, strategy, rules).run()
    return [[written] for written in Loop(rows, prompts, strategy, rules).answers()]


@renamed_arguments(limit="max_new_tokens", how="strategy", allow="constraint")
def stream(
    model: Mixer[Any],
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    end: int | Collection[int] | None,
    strategy: SamplingConfig | Beam = GREEDY,
    given: Given = NOTHING,
    stop: Stop | None = None,
    constraint: Constraint | None = None,
) -> Iterator[Token]:
    """The tokens of `generate` one by one, each as soon as it is certain whether it stays.

    With stop strings, tokens are held back as long as their text may still become one. The model runs between two
    tokens only, and in between it is as the caller left it.
    """
    if isinstance(strategy, Beam):
        raise InputError("a beam search knows its first token only at its end; use generate, or stream greedily")
    rules = Rules.of(max_new_tokens, end, stop, constraint)
    return Loop(Rows(model, prompts, given), prompts, strategy, rules).run() if prompts else iter(())


class Made(NamedTuple):
    """What was written in every row, n tokens."""

    tokens: Tensor  # [n, R]
    logprobs: Tensor
    logits: Tensor | None = None  # what the only token was chosen by, where they are known


class Pace:
    """How many tokens are written at once: fewer after some that took long, more after some that took no time."""

    def __init__(self, count: int, most: int) -> None:
        self.count, self._most = count, most

    def took(self, seconds: float) -> None:
        """So long took the last ones."""
        if seconds > PATIENCE:
            self.count = max(self.count // 2, min(self.count, FEW))
        elif seconds < PATIENCE / 16:
            self.count = max(self.count, min(4 * self.count, self._most))


class Line:
    """What one row has written, and which of it is certain."""

    def __init__(self, row: int, rules: Rules) -> None:
        self._row, self._rules = row, rules
        self._watch = None if rules.stop is None else Watch(rules.stop)
        self._logprobs: list[float] = []
        self._out = 0  # tokens given out
        self.tokens: list[int] = []
        self.why: Why | None = None  # why it ended

    def add(self, token: int, logprob: float) -> list[Token]:
        """One more token; gives back those that are now certain."""
        self._logprobs.append(logprob)
        if token in self._rules.ends:
            self.why = "end"
            return [*self._give(len(self.tokens)), Token(self._row, token, logprob, "end", kept=False)]
        self.tokens.append(token)
        count = len(self.tokens)
        self.why = "limit" if count == self._rules.limit else None
        if self._watch is None:
            return self._give(count)
        if self._watch.stopped(self.tokens):
            self.why = "stop"
            return [*self._give(self._watch.kept), *self._give(count, kept=False)]
        return self._give(count if self.why else self._watch.kept)

    def extend(self, tokens: list[int], logprobs: list[float]) -> None:
        """More tokens, none of which is streamed; those after its end are not the row's."""
        if self._watch is not None:
            for token, logprob in zip(tokens, logprobs, strict=True):
                if self.why is None:
                    self.add(token, logprob)
            return
        ends = self._rules.ends
        count = next((i for i, token in enumerate(tokens) if token in ends), None) if ends else None
        self.tokens += tokens[:count]
        self._logprobs += logprobs if count is None else logprobs[: count + 1]
        self.why = "end" if count is not None else "limit" if len(self.tokens) == self._rules.limit else None

    def written(self) -> Generated:
        """The whole of it."""
        assert self.why is not None  # a row is written to its end
        stay = self._watch.kept if self._watch is not None and self.why == "stop" else len(self.tokens)
        tokens, cut = tuple(self.tokens[:stay]), tuple(self.tokens[stay:])
        return Generated(tokens, sum(self._logprobs), self.why, cut, tuple(self._logprobs))

    def _give(self, until: int, *, kept: bool = True) -> list[Token]:
        """Tokens up to this one; the last of the row says why it is the last."""
        given = range(self._out, until)
        self._out = until
        last = None if self.why == "end" else len(self.tokens) - 1
        return [
            Token(self._row, self.tokens[i], self._logprobs[i], self.why if i == last else None, kept) for i in given
        ]


class Loop:
    """Greedy decoding and sampling."""

    def __init__(self, rows: Rows, prompts: Sequence[Sequence[int]], strategy: SamplingConfig, rules: Rules) -> None:
        self._rows, self._rules = rows, rules
        self._choose = strategy.start(len(prompts))
        self._repetition = Repetition(strategy.repetition, prompts)
        self._lines = [Line(row, rules) for row in range(len(prompts))]
        self._live = set(range(len(prompts)))  # prompts, not rows of the batch
        self._left = rules.limit  # tokens that may still be written
        self._ends = torch.tensor(sorted(rules.ends), dtype=torch.int64, device="cpu")

    def run(self) -> Iterator[Token]:
        """Tokens step by step, within a step in the order of the prompts."""
        for made in self._parts(Pace(FEW, FEW)):
            for tokens, logprobs in zip(made.tokens.tolist(), made.logprobs.tolist(), strict=True):
                for place, row in enumerate(self._rows.owner):
                    if row in self._live:
                        self._check(made, place, [logprobs[place]], len(self._lines[row].tokens))
                        certain = self._lines[row].add(tokens[place], logprobs[place])
                        if self._lines[row].why:
                            self._live.discard(row)
                        yield from certain
                if not self._live:
                    return

    def answers(self) -> list[Generated]:
        """The answer to every prompt."""
        for made in self._parts(Pace(MANY, 16 * MANY) if self._rules.stop is None else Pace(FEW, FEW)):
            numbers = zip(self._rows.owner, made.tokens.T.tolist(), made.logprobs.T.tolist(), strict=True)
            for place, (row, tokens, logprobs) in enumerate(numbers):
                if row in self._live:
                    line, before = self._lines[row], len(self._lines[row].tokens)
                    line.extend(tokens, logprobs)
                    self._check(made, place, logprobs[: len(line.tokens) - before + (line.why == "end")], before)
                    if line.why:
                        self._live.discard(row)
        return [line.written() for line in self._lines]

    def _parts(self, pace: Pace) -> Iterator[Made]:
        """Steps, several at once where that can be done; who reads them notes which rows have ended."""
        logits = self._rows.prefill()
        self._rules.fit(logits)
        made = self._step(logits)
        while True:
            self._left -= len(made.tokens)
            yield made
            if not self._live:
                return
            tokens, begun = self._drop(made.tokens[-1]), perf_counter()
            made = self._burst(tokens, min(pace.count, self._left)) or self._step(self._rows.step(tokens))
            pace.took(perf_counter() - begun)

    def _burst(self, tokens: Tensor, most: int) -> Made | None:
        """Several steps at once, sampled by the kernel; not where a constraint is asked about each."""
        if self._rules.constraint is not None or most < 2 or not self._rows.runner.prepare():
            return None
        live = torch.tensor([row in self._live for row in self._rows.owner], dtype=torch.bool, device="cpu")
        sampling = SamplingSettings(live, enough=int(CROWDED * len(live)) + 1, ends=self._ends)
        made = self._rows.burst(tokens, most, self._repetition.settings(self._choose.settings(sampling, most)))
        if made is None:
            return None
        self._choose.used(len(made[0]))
        return Made(*made)

    @torch.no_grad()
    def _step(self, logits: Tensor) -> Made:
        """A token per row and its log p; -inf or NaN if there was none to choose."""
        lines = ((row, self._lines[row].tokens) if row in self._live else None for row in self._rows.owner)
        allowed = self._rules.allowed(logits, lines)
        rated = self._repetition(allowed)
        tokens = self._choose(rated)
        self._repetition.add(tokens)
        logprobs = allowed.gather(1, tokens[:, None])[:, 0] - logits.logsumexp(1)
        if rated is not allowed:  # what the penalty has made infinite is no choice
            logprobs = logprobs.masked_fill(~(rated < torch.inf).all(1), torch.nan)
        return Made(tokens[None], logprobs[None], logits)

    def _check(self, made: Made, place: int, logprobs: Sequence[float], before: int) -> None:
        """Raise if there was no token to choose after those written before, and say why."""
        if isfinite(sum(logprobs)):
            return
        row = self._rows.owner[place]
        bad = next(i for i, logprob in enumerate(logprobs) if not isfinite(logprob))
        step = before + bad + 1
        if made.logits is not None and bool((made.logits[place] < torch.inf).all()):
            raise InputError(f"prompt {row} has no token for step {step}: `constraint` forbids all, or their p is 0")
        raise InputError(f"the model's logits for prompt {row} hold NaN or infinity at step {step}")

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
