"""Finding out what a mask means: its shape, its numbers and its polarity, by experiment.

A form is right if it hides: what stands behind a hidden key changes nothing for any other token, and what is not hidden
still does. All usual forms are tried; the first that hides is the module's own. If none does, that is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from .foreign.calls import Axes, Call, Face, Sized
from .foreign.words import Role

DEAF = 15  # forms of three shapes that are taken without any effect: the rest need not be tried
ENOUGH = 2  # shapes that hide
BEYOND = 2  # tokens that lie beyond a length: of one alone, a length that counts one too many hides nothing


class Shape(StrEnum):
    """How a mask is laid out; T asks, S is seen."""

    ROW_PAIRS = "[rows, T, S]"
    HEAD_PAIRS = "[rows, heads, T, S]"
    ONE_HEAD_PAIRS = "[rows, 1, T, S]"
    FLAT_PAIRS = "[rows·heads, T, S]"
    PAIRS = "[T, S]"
    KEYS = "[rows, S]"
    HEAD_KEYS = "[rows, 1, 1, S]"
    ROW_KEYS = "[rows, 1, S]"
    ONE_PAIRS = "[1, T, S]"
    LENGTHS = "[rows]"

    @property
    def pairs(self) -> bool:
        """Whether it can say who sees whom, and not only who is there."""
        return self not in (Shape.KEYS, Shape.HEAD_KEYS, Shape.ROW_KEYS, Shape.LENGTHS)

    @property
    def by_row(self) -> bool:
        """Whether rows can have masks of their own."""
        return self not in (Shape.PAIRS, Shape.ONE_PAIRS)


class Numbers(StrEnum):
    """What a mask is made of."""

    TRUE = "True and False"
    ONE = "1 and 0"
    ADDED = "0 and -inf, added to the scores"


RARE = (Shape.ROW_KEYS, Shape.ONE_PAIRS)


@dataclass(frozen=True)
class Form:
    """One way to write a mask down."""

    argument: str
    shape: Shape
    numbers: Numbers
    attend: bool = True  # whether True or 1 means "may be seen"
    finite: bool = False  # whether what is added is the smallest number rather than minus infinity
    upside: bool = False  # whether it is the largest number instead: for a mask that is subtracted

    def write(self, sees: Tensor, heads: int) -> Tensor:
        """[B, T, S], True = sees, in this form. A form that tells only who is there takes the first query's word."""
        if self.shape is Shape.LENGTHS:
            return sees[:, 0].sum(-1)
        told = {
            Shape.ROW_PAIRS: lambda: sees,
            Shape.HEAD_PAIRS: lambda: sees[:, None].expand(-1, heads, -1, -1),
            Shape.ONE_HEAD_PAIRS: lambda: sees[:, None],
            Shape.FLAT_PAIRS: lambda: sees.repeat_interleave(heads, 0),
            Shape.PAIRS: lambda: sees[0],
            Shape.KEYS: lambda: sees[:, 0],
            Shape.HEAD_KEYS: lambda: sees[:, None, :1],
            Shape.ROW_KEYS: lambda: sees[:, :1],
            Shape.ONE_PAIRS: lambda: sees[:1],
        }[self.shape]().contiguous()
        if self.numbers is Numbers.ADDED:
            least = -1e30 if self.finite else float("-inf")  # as small in float32, too
            least = 1e30 if self.upside else least
            return torch.zeros(told.shape, dtype=torch.float64).masked_fill(~told, least)
        told = told if self.attend else ~told
        return told if self.numbers is Numbers.TRUE else told.long()

    def words(self) -> str:
        """For the report."""
        if self.shape is Shape.LENGTHS:
            return f"{self.argument}: {self.shape}, the number of tokens that are there"
        if self.numbers is Numbers.ADDED:
            return f"{self.argument}: {self.shape}, {self.numbers}"
        one = "True" if self.numbers is Numbers.TRUE else "1"
        return f"{self.argument}: {self.shape}, {self.numbers}; {one} = {'may be seen' if self.attend else 'hidden'}"


@dataclass(frozen=True)
class Found:
    """What an argument that should be a mask turned out to be."""

    argument: str
    forms: tuple[Form, ...] = ()  # those that hide
    taken: tuple[Form, ...] = ()  # those that are taken without an error
    felt: tuple[Form, ...] = ()  # those that change the output at all


def needing(call: Call) -> Call:
    """The same call, with masks that must be given written so that they hide nothing: which ones do, a trial tells."""
    names = [name for name in call.signature.all(Role.MASK, Role.PADDING) if name in call.made]
    for name in (*names, *names[:-1]):  # of several, the first is understood better once the others hide nothing
        own = call.face is Face.CROSS and _of_queries(call, name)
        found = _explored(call, name, own)
        if found.forms:
            call = call.with_(made={**call.made, name: _hiding_nothing(call, found.forms[0], own)})
    return call


def _hiding_nothing(call: Call, form: Form, own: bool) -> Sized:
    def make(rows: int, tokens: int, keys: int) -> Tensor:
        return form.write(torch.ones(rows, tokens, keys, dtype=torch.bool), call.sizes.heads)

    return Sized(make, call.sizes.rows, call.sizes.source if call.crossed and not own else None)


def explore(call: Call) -> dict[str, Found]:
    """Every argument that should be a mask, and what it is."""
    names = call.signature.all(Role.MASK, Role.PADDING, Role.LENGTHS)
    names = [name for name in names if name not in call.fixed or call.fixed[name] is None]
    return {name: _explored(call, name) for name in names if not (call.face is Face.CROSS and _of_queries(call, name))}


def _of_queries(call: Call, name: str) -> bool:
    """Whether a mask that must be given is as long as what asks: it hides no key."""
    made = call.made.get(name)
    return isinstance(made, Sized) and made.keys is None


def forms(name: str, role: Role) -> Iterator[Form]:
    """All usual forms, those that say most first."""
    if role is Role.LENGTHS:
        yield Form(name, Shape.LENGTHS, Numbers.ONE)
        return
    keys = (Shape.KEYS, Shape.HEAD_KEYS)
    pairs = (Shape.ONE_HEAD_PAIRS, Shape.HEAD_PAIRS, Shape.ROW_PAIRS, Shape.FLAT_PAIRS, Shape.PAIRS)
    for shape in (*keys, *RARE[:1]) if role is Role.PADDING else (*pairs, *keys, *RARE):
        for numbers in (Numbers.TRUE, Numbers.ONE):
            yield Form(name, shape, numbers, attend=True)
            yield Form(name, shape, numbers, attend=False)
        yield Form(name, shape, Numbers.ADDED)


def _explored(call: Call, name: str, own: bool = False) -> Found:
    """What one is; `own` says that it hides what asks from itself, beside a source."""
    trial = Trial.of(call, own)
    good, taken, felt = list[Form](), list[Form](), list[Form]()
    role, each = call.signature.roles[name], call.face is Face.POOLED or call.query is not None
    role = Role.PADDING if each and role is Role.MASK else role  # queries that are asked one by one see the same
    for form in forms(name, role):
        shapes = {one.shape for one in good}
        if form.shape in RARE and taken:  # only for what takes none of the usual shapes
            break
        if (len(taken) >= DEAF and not felt) or (len(shapes) >= ENOUGH and form.shape not in shapes):
            break
        with torch.no_grad():
            try:
                outcome = trial.hides(form)
            except Exception:  # not a form it takes
                continue
        taken.append(form)
        if outcome.felt:
            felt.append(form)
        if outcome.hides:
            good.append(form)
    return Found(name, tuple(good), tuple(taken), tuple(felt))


@dataclass(frozen=True)
class Hiding:
    """What a form did."""

    hides: bool
    felt: bool


@dataclass(frozen=True)
class Trial:
    """A stream in which each row has another hidden key."""

    call: Call
    x: Tensor
    source: Tensor | None
    hidden: Tensor  # [B] which key of each row is hidden
    plain: Tensor | None  # the output without any mask, if there is one
    own: bool = False  # whether the hidden key is one of the stream's own, beside a source

    @classmethod
    def of(cls, call: Call, own: bool = False) -> Trial:
        draw, sizes = torch.Generator().manual_seed(3), call.sizes
        rows = 1 if call.axes is Axes.BARE and call.face is Face.HEADS else sizes.rows
        x = torch.randn(rows, sizes.tokens, sizes.width, generator=draw, dtype=torch.float64)
        source = torch.randn(rows, sizes.source, sizes.width, generator=draw, dtype=torch.float64)
        beside = source if call.crossed else None
        keys = sizes.source if beside is not None and not own else sizes.tokens
        return cls(
            call,
            x,
            beside,
            torch.arange(rows) % 2 + 1 if keys > 3 else torch.zeros(rows).long(),
            _or_none(call, x, beside),
            own,
        )

    def _seen(self, x: Tensor, source: Tensor | None) -> Tensor:
        """What is looked at."""
        return x if source is None or self.own else source

    @classmethod
    def alike(cls, call: Call) -> Trial:
        """The same, but every row hides the same key."""
        trial = cls.of(call)
        return replace(trial, hidden=torch.ones_like(trial.hidden))

    def hides(self, form: Form) -> Hiding:
        """Whether what stands behind a hidden key matters to no other token, while all else still does."""
        keys = self._seen(self.x, self.source).shape[1]
        hidden = self._hidden(form)
        y = self._run(form, hidden, self.x, self.source)
        felt = self.plain is None or not torch.equal(y.nan_to_num(9.0), self.plain.nan_to_num(9.0))
        if not bool(torch.isfinite(y[self._others(hidden)]).all()):
            return Hiding(False, felt)
        row = torch.arange(len(y))
        other = (hidden + 1) % keys if form.shape is not Shape.LENGTHS else torch.zeros_like(hidden)
        quiet = self._moved(form, hidden, row, hidden, y) <= 1e-9
        heard = self._moved(form, hidden, row, other, y) > 1e-9
        return Hiding(quiet and heard, felt)

    def _hidden(self, form: Form) -> Tensor:
        keys = self._seen(self.x, self.source).shape[1]
        if form.shape is Shape.LENGTHS:
            return torch.full_like(self.hidden, keys - 1)
        return self.hidden if form.shape.by_row else torch.full_like(self.hidden, int(self.hidden[0]))

    def _others(self, hidden: Tensor) -> Tensor:
        """Which outputs are those of tokens that are not hidden themselves. [B, T]"""
        if self.source is not None and not self.own:
            return torch.ones(self.x.shape[:2], dtype=torch.bool)
        return torch.arange(self.x.shape[1]) != hidden[:, None]

    def _moved(self, form: Form, hidden: Tensor, row: Tensor, place: Tensor, y: Tensor) -> float:
        """How far the others' outputs move if a token is replaced."""
        x, source = self.x.clone(), None if self.source is None else self.source.clone()
        noise = torch.randn(len(row), x.shape[2], generator=torch.Generator().manual_seed(9), dtype=x.dtype)
        seen = self._seen(x, source)
        seen[row, place] += 2 * noise  # a norm would not notice if all channels moved alike
        others = self._others(hidden) & self._others(place)
        return float((self._run(form, hidden, x, source) - y)[others].abs().nan_to_num(9.0).max())

    def _run(self, form: Form, hidden: Tensor, x: Tensor, source: Tensor | None) -> Tensor:
        keys = self._seen(x, source).shape[1]
        places = torch.arange(keys)
        seen = places < keys - BEYOND if form.shape is Shape.LENGTHS else places != hidden[:, None]
        sees = seen.expand(len(x), keys)[:, None].expand(-1, x.shape[1], -1)
        return self.call(x, source, extra={form.argument: form.write(sees, self.call.sizes.heads)})


def _or_none(call: Call, x: Tensor, source: Tensor | None) -> Tensor | None:
    try:
        with torch.no_grad():
            return call(x, source)
    except Exception:  # a mask that must be given
        return None


def written(form: Form, sees: Tensor, heads: int) -> dict[str, Any]:
    """The argument that says this."""
    return {form.argument: form.write(sees, heads)}
