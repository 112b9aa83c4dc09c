"""Beam search: the most likely answers that can be found by keeping a few beginnings alive at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import torch
from annotated_types import Ge, Le
from pydantic import Strict, model_validator
from torch import Tensor

from ..core.config import Config, Flag, Size
from ..core.errors import InputError
from .generated import Generated, Why
from .rows import Rows
from .rules import Rules
from .stop import kept

Penalty = Annotated[float, Strict(), Ge(-10), Le(10)]  # beyond, powers of a length leave what a float can hold


class Beam(Config):
    """Of all continuations of the live hypotheses the `beams` most likely live on; a complete one is set aside.

    A hypothesis is complete if it ended and was among the `beams` most likely of its step, or if it is as long as
    allowed. Complete ones are compared by log p / length**length_penalty, the end token counted. One beam is greedy.

    With `early` a row is done when `beams` hypotheses are complete. Without, it goes on until no live one can beat the
    worst of the `best`: log p never grows, so it cannot rate better than log p / limit**length_penalty for a penalty
    above 0 (all further tokens certain, and as many as possible), else log p / (length + 1)**length_penalty (one more).
    """

    kind: Literal["beam"] = "beam"
    beams: Size = 5  # hypotheses that live on at each step
    length_penalty: Penalty = 1.0  # complete ones are ranked by log p / length^penalty
    best: Size = 1  # answers per prompt, if there are as many
    early: Flag = True  # done when `beams` are complete; else when none alive can be better

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.best > self.beams:
            raise ValueError(f"{self.beams} beams cannot give the {self.best} best; ask for at most {self.beams}")
        return self

    def rating(self, score: float, length: int) -> float:
        """What complete hypotheses are compared by."""
        return float(score / length**self.length_penalty)

    def hope(self, score: float, length: int, limit: int) -> float:
        """The best rating that a live hypothesis can still reach."""
        return self.rating(score, limit if self.length_penalty > 0 else length + 1)


class Complete:
    """The best complete hypotheses of one prompt, at most `beams`, all different, the best first."""

    def __init__(self, strategy: Beam) -> None:
        self._strategy = strategy
        self._rated: list[tuple[float, Generated]] = []

    def add(self, written: Generated, length: int) -> None:
        """Set one aside. Two ends, or two stop strings, can give the same answer: the better one counts."""
        rated = [*self._rated, (self._strategy.rating(written.score, length), written)]
        rated.sort(key=lambda pair: -pair[0])  # stable: of equals the one found first
        tokens = [one.tokens for _, one in rated]
        self._rated = [pair for i, pair in enumerate(rated) if tokens.index(tokens[i]) == i][: self._strategy.beams]

    def settled(self, live: float, length: int, limit: int) -> bool:
        """Whether the best live hypothesis, with this log p, cannot change the answer any more."""
        if live == -torch.inf or (self._strategy.early and len(self._rated) == self._strategy.beams):
            return True
        if self._strategy.early or len(self._rated) < self._strategy.best:
            return False
        return self._strategy.hope(live, length, limit) <= self._rated[self._strategy.best - 1][0]

    def best(self) -> list[Generated]:
        """The answers asked for."""
        return [written for _, written in self._rated[: self._strategy.best]]


@dataclass(frozen=True)
class Candidates:
    """The most likely continuations of each prompt, the most likely first. Each [B, C]"""

    score: Tensor
    beam: Tensor  # which hypothesis they continue
    token: Tensor


class Search:
    """Beam search over the prompts of a batch at once. B prompts are not done; each has W live hypotheses."""

    def __init__(self, rows: Rows, strategy: Beam, rules: Rules) -> None:
        self._rows, self._strategy, self._rules = rows, strategy, rules
        self._prompts = list(rows.owner)  # of each row of the tensors below
        self._complete = [Complete(strategy) for _ in self._prompts]

    @torch.no_grad()
    def run(self) -> list[list[Generated]]:
        """The best answers to each prompt."""
        logits = self._rows.prefill()
        self._rules.fit(logits)
        self._score = logits.new_zeros(len(self._prompts), 1)  # [B, W] log p; -inf = a dead hypothesis
        self._tokens = torch.empty(len(self._prompts), 1, 0, dtype=torch.long, device=logits.device)  # [B, W, t]
        self._sums = logits.new_empty(self._tokens.shape)  # [B, W, t] log p of a hypothesis up to each of its tokens
        self._ends = torch.tensor(sorted(self._rules.ends), dtype=torch.long, device=logits.device)
        for length in range(1, self._rules.limit + 1):
            ahead = self._ahead(logits, length)
            ended = torch.isin(ahead.token, self._ends)
            self._set_aside(ahead, ended, length)
            if length == self._rules.limit:
                break
            beam = self._survive(ahead, ended)
            if self._rules.stop is not None:
                self._set_stopped()
            index = self._drop(beam, length)
            if not self._prompts:
                break
            owner = [prompt for prompt in self._prompts for _ in range(self._score.shape[1])]
            if owner != self._rows.owner or not torch.equal(index, torch.arange(len(index), device=index.device)):
                self._rows.select(index, owner)
            logits = self._rows.step(self._tokens[:, :, -1].flatten())
        return [self._answers(prompt) for prompt in range(len(self._complete))]

    def _ahead(self, logits: Tensor, length: int) -> Candidates:
        """Enough candidates that `beams` are left if as many as can be are ends."""
        wanted = self._strategy.beams * (1 + len(self._ends))
        few = min(wanted, logits.shape[1])  # of each hypothesis: more cannot be among the wanted
        if self._rules.constraint is None:
            logprob, token = self._rows.topk_logprobs(logits, few)
        else:
            logprob, token = self._rules.allowed(logits.log_softmax(1), self._hypotheses()).topk(few)
        total = (self._score.reshape(-1, 1) + logprob).reshape(len(self._prompts), -1)  # [B, W·few]
        score, place = total.topk(min(wanted, total.shape[1]))
        if score[:, 0].isnan().any():  # NaN counts as the largest
            row = self._prompts[int(score[:, 0].isnan().nonzero()[0])]
            raise InputError(f"the model's logits for prompt {row} hold NaN or infinity at step {length}")
        return Candidates(score, place // few, token.reshape(total.shape).gather(1, place))

    def _hypotheses(self) -> Iterator[tuple[int, list[int]] | None]:
        """The prompt and the tokens of every live hypothesis, None for a dead one."""
        alive = (self._score > -torch.inf).flatten().tolist()
        for prompt, lives, tokens in zip(self._rows.owner, alive, self._tokens.flatten(0, 1).tolist(), strict=True):
            yield (prompt, tokens) if lives else None

    def _set_aside(self, ahead: Candidates, ended: Tensor, length: int) -> None:
        """Those of the most likely that ended; at the limit all of them."""
        most = self._strategy.beams
        done = ahead.score[:, :most] > -torch.inf
        if length < self._rules.limit:
            done &= ended[:, :most]
        for row, rank in done.nonzero().tolist():
            beam = ahead.beam[row, rank]
            tokens, sums = self._tokens[row, beam].tolist(), self._sums[row, beam].tolist()
            token, score = int(ahead.token[row, rank]), float(ahead.score[row, rank])
            if token in self._rules.ends:
                self._add(row, Generated(tuple(tokens), score, "end", (), _each([*sums, score])), length)
            else:
                self._add_cut(row, [*tokens, token], [*sums, score])

    def _add(self, row: int, written: Generated, length: int) -> None:
        self._complete[self._prompts[row]].add(written, length)

    def _add_cut(self, row: int, tokens: list[int], sums: list[float]) -> None:
        """One without an end token: at the limit, or at a stop string."""
        stop = self._rules.stop
        stopped = stop is not None and stop.find(stop.decode(tokens)) is not None
        stay = kept(stop, tokens) if stop is not None and stopped else len(tokens)
        why: Why = "stop" if stopped else "limit"
        made = Generated(tuple(tokens[:stay]), sums[-1], why, tuple(tokens[stay:]), _each(sums))
        self._add(row, made, len(tokens))

    def _survive(self, ahead: Candidates, ended: Tensor) -> Tensor:
        """The most likely that did not end live on; gives back which hypotheses they continue. [B, W]"""
        first = ended.to(torch.uint8).argsort(dim=1, stable=True)[:, : self._strategy.beams]
        beam = ahead.beam.gather(1, first)
        source = beam[:, :, None].expand(-1, -1, self._tokens.shape[2])
        before, sums = self._tokens.gather(1, source), self._sums.gather(1, source)
        self._score = ahead.score.gather(1, first).masked_fill(ended.gather(1, first), -torch.inf)
        self._tokens = torch.cat((before, ahead.token.gather(1, first)[:, :, None]), 2)
        self._sums = torch.cat((sums, self._score[:, :, None]), 2)
        return beam

    def _set_stopped(self) -> None:
        """Live hypotheses in which a stop string has appeared are complete; their place is free for the next step."""
        assert self._rules.stop is not None
        for row, beam in (self._score > -torch.inf).nonzero().tolist():
            tokens, sums = self._tokens[row, beam].tolist(), self._sums[row, beam].tolist()
            if self._rules.stop.find(self._rules.stop.decode(tokens)) is not None:
                self._add_cut(row, tokens, sums)
                self._score[row, beam] = -torch.inf

    def _drop(self, beam: Tensor, length: int) -> Tensor:
        """Prompts that are done leave; gives back the rows of the state that go on."""
        live = self._score.amax(1).tolist()
        limit = self._rules.limit
        done = [self._complete[p].settled(best, length, limit) for p, best in zip(self._prompts, live, strict=True)]
        width = len(self._rows) // len(self._prompts)
        index = torch.arange(len(done), device=beam.device)[:, None] * width + beam
        if any(done):
            stay = (~torch.tensor(done, device=beam.device)).nonzero()[:, 0]
            self._score, self._tokens, index = self._score[stay], self._tokens[stay], index[stay]
            self._sums = self._sums[stay]
            self._prompts = [prompt for prompt, over in zip(self._prompts, done, strict=True) if not over]
        return index.flatten()

    def _answers(self, prompt: int) -> list[Generated]:
        best = self._complete[prompt].best()
        if not best:
            raise InputError(f"prompt {prompt} has no answer: `constraint` forbids every token, or all have p = 0")
        return best


def _each(sums: list[float]) -> tuple[float, ...]:
    """The terms of running sums."""
    return tuple(after - before for before, after in zip([0.0, *sums], sums, strict=False))
