"""Finding out how a foreign module or function is called: from its signature, and by trial.

Whatever the convention, what comes out is a `Call`, which takes a stream [rows, tokens, width] (and, where there is
one, a source) and gives a stream. A function over heads gets projections of our own, so that it can be asked the same
things as a module.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from .target import CannotCheck
from .words import Role, Sizes, role_of


class Face(StrEnum):
    """What a call is given."""

    SELF = "a stream"
    CROSS = "a stream and a source"
    THREE = "queries, keys and values"
    HEADS = "queries, keys and values, split into heads"


class Axes(StrEnum):
    """Where the heads stand in what a function over heads takes."""

    HEADS_FIRST = "[rows, heads, tokens, size]"
    TOKENS_FIRST = "[rows, tokens, heads, size]"
    NONE = "[rows, tokens, size]"
    BARE = "[tokens, size]"


@dataclass(frozen=True)
class Signature:
    """The arguments of a call and what they are for."""

    roles: Mapping[str, Role]
    needed: frozenset[str]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, target: Any) -> Signature:
        function = target.forward if isinstance(target, nn.Module) else target
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # built in: what torch's own attention takes
            names = ("query", "key", "value", "attn_mask")
            return cls({name: role_of(name) for name in names}, frozenset(names[:3]))
        plain = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        roles = {p.name: role_of(p.name) for p in plain}
        needed = frozenset(p.name for p in plain if p.default is p.empty)
        if not {Role.INPUT, Role.QUERY, Role.IDS} & set(roles.values()):
            first = next((name for name in roles if name in needed or len(roles) == 1), next(iter(roles), None))
            if first is not None:
                roles[first] = Role.INPUT
        return cls(roles, needed, {p.name: p.default for p in plain if p.default is not p.empty})

    def named(self, role: Role) -> str | None:
        """The first argument of this role."""
        return next((name for name, found in self.roles.items() if found is role), None)

    def all(self, *roles: Role) -> list[str]:
        """The arguments of these roles, in order."""
        return [name for name, found in self.roles.items() if found in roles]


@dataclass(frozen=True)
class Call:
    """A target, called in one way."""

    target: Any
    signature: Signature
    sizes: Sizes
    face: Face
    axes: Axes = Axes.NONE
    rows_first: bool = True  # [rows, tokens, width] rather than [tokens, rows, width]
    fixed: Mapping[str, Any] = field(default_factory=dict)  # what is passed in every call
    made: Mapping[str, Callable[[int], Any]] = field(default_factory=dict)  # what depends on the number of tokens

    def __call__(
        self,
        x: Tensor,
        source: Tensor | None = None,
        value: Tensor | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Tensor:
        """The output for a stream [B, T, D], beside a source [B, S, D], of which the values may be other ones."""
        return self.back(self.picked(self.raw(x, source, value, extra), x), x)

    def raw(
        self,
        x: Tensor,
        source: Tensor | None = None,
        value: Tensor | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Any:
        """Whatever the target returns."""
        return self.target(**self.arguments(x, source, value, extra))

    def arguments(
        self, x: Tensor, source: Tensor | None, value: Tensor | None, extra: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        given = self._tensors(x, source, value)
        given |= {name: make(x.shape[1]) for name, make in self.made.items()}
        return {**self.fixed, **given, **(extra or {})}

    def _tensors(self, x: Tensor, source: Tensor | None, value: Tensor | None) -> dict[str, Any]:
        names = self.signature
        if self.face is Face.SELF:
            return {_must(names.named(Role.INPUT) or names.named(Role.QUERY)): self._laid(x)}
        beside = x if source is None else source
        if self.face is Face.CROSS:
            asks = _must(names.named(Role.INPUT) or names.named(Role.QUERY))
            other = names.named(Role.SOURCE) or names.named(Role.KEY)
            return {asks: self._laid(x), _must(other): self._laid(beside)}
        three = (x, beside, beside if value is None else value)
        if self.face is Face.HEADS:
            three = tuple(self.split(part, place) for place, part in enumerate(three))  # type: ignore[assignment]
        else:
            three = tuple(self._laid(part) for part in three)  # type: ignore[assignment]
        keys = (Role.QUERY, Role.KEY, Role.VALUE)
        return {_must(names.named(role)): part for role, part in zip(keys, three, strict=True)}

    def split(self, x: Tensor, place: int) -> Tensor:
        """Queries (0), keys (1) or values (2) of a stream, by a projection of our own. [B, T, D] -> as it is taken"""
        projected = x @ projection(self.sizes.width, place).to(x)
        if self.axes is Axes.NONE:
            return projected
        if self.axes is Axes.BARE:
            return projected[0]
        heads = projected.reshape(*projected.shape[:-1], self.sizes.heads, -1)
        return heads if self.axes is Axes.TOKENS_FIRST else heads.transpose(1, 2)

    def _laid(self, x: Tensor) -> Tensor:
        return (x if self.rows_first else x.transpose(0, 1)).contiguous()

    def back(self, y: Tensor, x: Tensor) -> Tensor:
        """[rows, tokens, width] again."""
        if self.face is not Face.HEADS:
            return y if self.rows_first else y.transpose(0, 1)
        if self.axes is Axes.BARE:
            return y[None]
        if self.axes is Axes.NONE:
            return y
        return (y if self.axes is Axes.TOKENS_FIRST else y.transpose(1, 2)).flatten(2)

    def picked(self, returned: Any, x: Tensor) -> Tensor:
        """The output among all that is returned: a tensor with a vector for every token."""
        shape = self.split(x, 0).shape if self.face is Face.HEADS else self._laid(x).shape
        found = list(tensors(returned))
        for tensor in found:
            if tensor.shape == shape and tensor.is_floating_point():
                return tensor
        for tensor in found:
            if tensor.dim() == len(shape) and tensor.shape[:-1] == shape[:-1] and tensor.is_floating_point():
                return tensor
        shapes = ", ".join(str(list(tensor.shape)) for tensor in found) or type(returned).__name__
        raise NoStream(f"returned {shapes}; a tensor of {list(shape)} was expected")

    def with_(self, **changed: Any) -> Call:
        """The same with something changed."""
        return replace(self, **changed)


class NoStream(ValueError):
    """A call that gives no vector for every token."""


def projection(width: int, place: int) -> Tensor:
    """A fixed random matrix: that of the queries, of the keys or of the values."""
    draw = torch.Generator().manual_seed(100 + place)
    matrix = torch.randn(width, width, generator=draw, dtype=torch.float64)
    return matrix / math.sqrt(width)


def tensors(returned: Any) -> Iterator[Tensor]:
    """Every tensor in what a call returned: tuples, lists, dicts and the outputs of transformers."""
    if isinstance(returned, Tensor):
        yield returned
    elif isinstance(returned, Mapping):
        for value in returned.values():
            yield from tensors(value)
    elif isinstance(returned, tuple | list):
        for value in returned:
            yield from tensors(value)


def discover(
    target: Any,
    trials: Sequence[Sizes],
    tables: Callable[[int], Any] | None = None,
) -> Call:
    """The first way to call the target that gives a stream; `tables` makes the rotations that belong to it."""
    signature = Signature.of(target)
    problems = list[str]()
    own = dict.fromkeys(signature.all(Role.TABLES)[:1], tables) if tables is not None else {}
    square = [replace(sizes, rows=sizes.tokens) for sizes in trials[:1]]  # for targets that take rows for tokens
    for call in (call for sizes in (*trials, *square) for call in _all_ways(target, signature, sizes, own)):
        try:
            with torch.no_grad():
                y = call(*_sample(call))
        except Exception as error:  # foreign code may raise anything
            problems.append(f"{call.face}: {type(error).__name__}: {error}")
        else:
            if not y.is_floating_point():
                continue
            return call
    shown = "\n  ".join(dict.fromkeys(problems))[:1500] or "nothing: its signature says nothing"
    raise CannotCheck(
        f"{_called(target)}({', '.join(signature.roles)}) could not be called. Tried:\n  {shown}\n"
        "Write in a file, say adapter.py, how it is called, and name that: --adapter adapter.py:call\n"
        f"  def call(target, x):  # x: [{trials[0].rows}, tokens, {trials[0].width}], as the result should be\n"
        f"      return target({', '.join(name + '=...' for name in signature.roles if name in signature.needed)})"
    )


def _all_ways(target: Any, signature: Signature, sizes: Sizes, own: Mapping[str, Any]) -> Iterator[Call]:
    """With the target's own tables, if there are any, then with ours."""
    if own:
        for call in ways(target, signature, sizes, dict.fromkeys(own)):
            yield call.with_(made={**call.made, **own})
    yield from ways(target, signature, sizes, {})


def ways(target: Any, signature: Signature, sizes: Sizes, given: Mapping[str, Any]) -> Iterator[Call]:
    """Ways to call the target, the most likely first."""
    for face, axes in _faces(target, signature):
        for fixed, made in _beside(signature, sizes, face, given):
            yield Call(target, signature, sizes, face, axes, fixed=fixed, made=made)


def _faces(target: Any, signature: Signature) -> Iterator[tuple[Face, Axes]]:
    three = all(signature.named(role) for role in (Role.QUERY, Role.KEY, Role.VALUE))
    weights = isinstance(target, nn.Module) and any(True for _ in target.parameters())
    if three and weights:
        yield Face.THREE, Axes.NONE
    if three:
        for axes in Axes:
            yield Face.HEADS, axes
        return
    source = signature.named(Role.SOURCE) or (signature.named(Role.KEY) if signature.named(Role.QUERY) else None)
    if source is not None and (source in signature.needed or not signature.named(Role.INPUT)):
        yield Face.CROSS, Axes.NONE
    yield Face.SELF, Axes.NONE
    if source is not None:
        yield Face.CROSS, Axes.NONE


def _beside(
    signature: Signature, sizes: Sizes, face: Face, given: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], dict[str, Callable[[int], Any]]]]:
    """What else is passed: nothing where there is a default, otherwise what its name asks for."""
    taken = {Role.INPUT, Role.QUERY, Role.KEY, Role.VALUE} | ({Role.SOURCE} if face is Face.CROSS else set())
    open_ = [n for n in signature.roles if n in signature.needed and signature.roles[n] not in taken and n not in given]
    optional = [n for n in signature.all(Role.TABLES, Role.PLACES) if n not in signature.needed]
    for names in ([*open_], [*open_, *optional]):
        choices = [_choices(name, signature.roles[name], sizes) for name in names]
        for combination in product(*choices):
            fixed, made = dict(given), dict[str, Callable[[int], Any]]()
            for name, choice in zip(names, combination, strict=True):
                (made if callable(choice) else fixed)[name] = choice
            yield fixed, made
        if not optional:
            return


def _choices(name: str, role: Role, sizes: Sizes) -> list[Any]:
    if role in (Role.MASK, Role.PADDING):
        rows = sizes.rows
        return [
            None,
            lambda n: torch.ones(n, n, dtype=torch.bool),
            lambda n: torch.zeros(n, n, dtype=torch.float64),
            lambda n: torch.ones(rows, n, dtype=torch.bool),
            lambda n: torch.ones(rows, 1, n, n),
        ]
    if role is Role.PLACES:
        return [lambda n: torch.arange(n)[None], torch.arange, None]
    if role is Role.TABLES:
        return [
            lambda n: rotations(n, sizes.head),
            lambda n: rotations(n, sizes.head)[0 if "cos" in name else 1],
            lambda n: torch.polar(torch.ones(n, sizes.head // 2).double(), _angles(n, sizes.head)),
            None,
        ]
    plain: dict[Role, list[Any]] = {
        Role.PLACE: [0, torch.arange],
        Role.BIAS: [lambda n: torch.zeros(1, 1, n, dtype=torch.float64), None],
        Role.RESIDUAL: [lambda n: torch.zeros(1, n, sizes.width, dtype=torch.float64), None],
        Role.CAUSAL: [False, True],
        Role.WEIGHTS: [False],
        Role.USE_CACHE: [False],
        Role.LENGTHS: [None, lambda n: torch.full((sizes.rows,), n)],
        Role.HEADS: [sizes.heads],
        Role.WIDTH: [sizes.width],
        Role.LENGTH: [lambda n: n],
    }
    return plain.get(role, [None])


def _angles(tokens: int, size: int) -> Tensor:
    speed = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    return torch.arange(tokens, dtype=torch.float64)[:, None] * speed


def rotations(tokens: int, size: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines as transformers passes them: both halves alike. [1, T, size] each"""
    angle = _angles(tokens, size).repeat(1, 2)[None]
    return angle.cos(), angle.sin()


def _sample(call: Call) -> tuple[Tensor, Tensor | None]:
    draw, sizes = torch.Generator().manual_seed(0), call.sizes
    rows = 1 if call.axes is Axes.BARE and call.face is Face.HEADS else sizes.rows
    x = torch.randn(rows, sizes.tokens, sizes.width, generator=draw, dtype=torch.float64)
    source = torch.randn(rows, sizes.source, sizes.width, generator=draw, dtype=torch.float64)
    return x, source if call.face is Face.CROSS else None


def _must(name: str | None) -> str:
    if name is None:
        raise CannotCheck("the call lacks an argument that this way of calling needs")
    return name


def _called(target: Any) -> str:
    return type(target).__name__ if isinstance(target, nn.Module) else getattr(target, "__name__", repr(target))
