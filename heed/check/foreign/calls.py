"""How a foreign module or function is called: one convention, behind one face.

Whatever the convention, what comes out is a `Call`, which takes a stream [rows, tokens, width] (and, where there is
one, a source) and gives a stream. A function over heads gets projections of our own, so that it can be asked the same
things as a module. Which convention it is, `ways/` finds out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from .layouts import Layout, Query
from .returned import WEIGHTED, Gives, NoStream, few, gives_weights, numbers, shapes, summed, tensors
from .signature import Bag, Signature
from .sizes import Sizes
from .target import CannotCheck
from .words import Role


class Face(StrEnum):
    """What a call is given."""

    SELF = "a stream"
    CROSS = "a stream and a source"
    THREE = "queries, keys and values"
    HEADS = "queries, keys and values, split into heads"
    POOLED = "a source, with queries of its own"


class Axes(StrEnum):
    """Where the heads stand in what a function over heads takes."""

    HEADS_FIRST = "[rows, heads, tokens, size]"
    TOKENS_FIRST = "[rows, tokens, heads, size]"
    NONE = "[rows, tokens, size]"
    BARE = "[tokens, size]"


@dataclass(frozen=True)
class Sized:
    """What is passed beside the stream and depends on how many rows, tokens and keys there are."""

    make: Callable[[int, int, int], Any]
    rows: int
    keys: int | None = None  # of a source; of the stream itself otherwise

    def __call__(self, tokens: int, rows: int | None = None, keys: int | None = None) -> Any:
        return self.make(rows or self.rows, tokens, keys or self.keys or tokens)


class Laid(Sized):
    """The same of a stream: it is laid out as the other one is."""


class OtherLength(BaseException):
    """A text of a length that the target does not take. No Exception: nothing may take it for one of the target's."""


@dataclass(frozen=True)
class Call:
    """A target, called in one way."""

    target: Any
    signature: Signature
    sizes: Sizes
    face: Face
    axes: Axes = Axes.NONE
    layout: Layout = Layout.ROWS
    fixed: Mapping[str, Any] = field(default_factory=dict)  # what is passed in every call
    made: Mapping[str, Callable[[int], Any]] = field(default_factory=dict)  # what depends on the number of tokens
    bagged: bool = False  # whether all is passed in one dict
    single: bool = False  # whether it takes float32 only
    only: int | None = None  # the one number of tokens that it takes
    turned: bool = False  # of heads: whether tokens and heads change places on the way
    query: Query | None = None  # how a query is laid out, where each is asked by itself
    gives: Gives = Gives.VECTORS
    watch: Callable[[], AbstractContextManager[object]] = nullcontext  # what is around every call of the target

    @property
    def rows_first(self) -> bool:
        """Whether tokens of one row stand together."""
        return self.layout is not Layout.TOKENS

    @property
    def plain(self) -> bool:
        """Whether one call gives a vector for every token."""
        return self.query is None and self.face is not Face.POOLED and self.gives is Gives.VECTORS

    @property
    def crossed(self) -> bool:
        """Whether what is looked at is another stream than that for which outputs come out."""
        return self.face in (Face.CROSS, Face.POOLED)

    @property
    def filled(self) -> bool:
        """Whether something beside the stream was not understood, and filled with a stream that knows places."""
        open_ = (Role.OTHER, Role.SOURCE, Role.PLACES, Role.PAIRS)
        return any(isinstance(make, Laid) and self.signature.roles[n] in open_ for n, make in self.made.items())

    def __call__(
        self,
        x: Tensor,
        source: Tensor | None = None,
        value: Tensor | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Tensor:
        """The output for a stream [B, T, D], beside a source [B, S, D], of which the values may be other ones."""
        if self.query is not None:
            source = x if source is None else source
            return torch.cat([self._read(x[:, t : t + 1], source, value, extra) for t in range(x.shape[1])], 1)
        if self.layout is Layout.FLAT and len(x) > 1:
            parts = [tuple(None if t is None else t[r : r + 1] for t in (x, source, value)) for r in range(len(x))]
            return torch.cat([self(one, beside, values, extra) for one, beside, values in parts if one is not None])
        return self._read(x, source, value, extra)

    def _read(self, x: Tensor, source: Tensor | None, value: Tensor | None, extra: Mapping[str, Any] | None) -> Tensor:
        """What comes out of one call of the target. [B, T, D]"""
        returned = self.raw(x, source, value, extra)
        if self.gives is not Gives.VECTORS:
            y: Tensor = returned
        elif self.face is Face.POOLED:
            y = _must_be(few(returned, len(x), x.shape[1]), returned)
        elif self.query is not None:
            y = self._vector(returned, x, (x if source is None else source).shape[1])
        else:
            y = self.back(self.picked(returned, x), x)
        return y.to(x.dtype)

    def _vector(self, returned: Any, x: Tensor, keys: int) -> Tensor:
        """The output for one query of each row. [B, 1, D]"""
        found = [few(t, len(x)) for t in numbers(returned)]
        fits = [t for t in found if t is not None and t.shape[1] == 1 and t.shape[2] != keys]
        if not fits:
            weighs = gives_weights(returned, len(x), keys)
            raise NoStream(WEIGHTED if weighs else f"returned {shapes(returned)}; one vector for a query was expected")
        return next((t for t in fits if t.shape[2] == x.shape[2]), fits[0])

    def raw(
        self,
        x: Tensor,
        source: Tensor | None = None,
        value: Tensor | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Any:
        """Whatever the target returns; of one that gives weights alone, what they make of what they weigh."""
        looked = (x if self.face is not Face.POOLED else source) if source is None else source
        asked = source if self.face is Face.POOLED else x
        if self.only is not None and (asked is None or asked.shape[1] != self.only):
            raise OtherLength(f"it takes {self.only} tokens only")
        given = self.arguments(x, source, value, extra)
        with self.watch():
            returned = self.hand(given)
            if self.gives is Gives.VECTORS or looked is None:
                return returned
            weights = self.gives.weights(returned, len(looked), looked.shape[1])
            return summed(weights, (looked if value is None else value).to(weights.dtype))

    def hand(self, given: Mapping[str, Any]) -> Any:
        """Call the target with just these arguments, in the way in which it takes them."""
        given = {name: in_single(part) if self.single else part for name, part in given.items()}
        with default_type(next((t.dtype for t in tensors(given) if t.is_floating_point()), torch.float64)):
            return self._handed(given)

    def _handed(self, given: dict[str, Any]) -> Any:
        function = self.target if callable(self.target) else self.target.forward
        if self.bagged:
            bag = Bag({str(self.signature.roles[name]): part for name, part in given.items()})
            made = function(bag)
            fresh = not isinstance(made, Mapping)  # what was only handed through is no output
            return made if fresh else {n: v for n, v in made.items() if not any(v is g for g in given.values())}
        placed = [given.pop(name) for name in self.signature.placed if name in given]
        return function(*placed, **given)

    def arguments(
        self, x: Tensor, source: Tensor | None, value: Tensor | None, extra: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        given = self._tensors(x, source, value)
        seen = source if source is not None and (self.crossed or self.query is not None) else x
        asks = seen if self.face is Face.POOLED else x
        for name, make in self.made.items():
            if isinstance(make, Sized):
                keys = seen.shape[1] if make.keys is not None or self.query is not None else None
                made = make(asks.shape[1], len(x), keys)
            else:
                made = make(asks.shape[1])
            given[name] = self.layout.lay(made) if isinstance(make, Laid) else made
        return {**self.fixed, **given, **(extra or {})}

    def _tensors(self, x: Tensor, source: Tensor | None, value: Tensor | None) -> dict[str, Any]:
        names = self.signature
        if self.face is Face.SELF:
            asks = _must(names.named(Role.INPUT) or names.named(Role.QUERY))
            values = [name for name in names.all(Role.VALUE) if name in names.needed]  # beside queries that are keys
            return {name: self._laid(x) for name in (asks, *values)}
        beside = x if source is None else source
        if self.face is Face.POOLED:
            return {_must(names.named(Role.INPUT) or names.named(Role.QUERY)): self._laid(beside)}
        beside = beside if self.sizes.memory is None else widened(beside, self.sizes.memory)
        if self.face is Face.CROSS:
            asks = _must(names.named(Role.INPUT) or names.named(Role.QUERY))
            other = names.named(Role.SOURCE) or names.named(Role.KEY)
            return {asks: self._asking(x), _must(other): self._laid(beside)}
        three = (x, beside, beside if value is None else value)
        if self.face is Face.HEADS:
            three = tuple(self.split(part, place) for place, part in enumerate(three))  # type: ignore[assignment]
            three = three if self.query is None else (self.query.lay(three[0]), *three[1:])  # type: ignore[assignment]
        else:
            three = (self._asking(three[0]), self._laid(three[1]), self._laid(three[2]))
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

    def _asking(self, x: Tensor) -> Any:
        return self._laid(x) if self.query is None else self.query.lay(x)

    def _laid(self, x: Tensor) -> Tensor:
        laid = self.layout.lay(x)
        return laid.clone() if laid.requires_grad and laid.is_leaf else laid  # theirs may write into what it is given

    def back(self, y: Tensor, x: Tensor) -> Tensor:
        """[rows, tokens, width] again."""
        if self.face is not Face.HEADS:
            flat = self.layout.back(y, x)
            assert flat is not None  # `picked` has seen to it
            return flat
        if self.axes is Axes.BARE:
            return y[None]
        if self.axes is Axes.NONE or y.dim() == 3:
            return y
        return (y if self.axes is Axes.TOKENS_FIRST else y.transpose(1, 2)).flatten(2)

    def picked(self, returned: Any, x: Tensor) -> Tensor:
        """The output among all that is returned: a tensor with a vector for every token."""
        found = numbers(returned)
        shape = self.split(x, 0).shape if self.face is Face.HEADS else self.layout.lay(x).shape
        if self.face is Face.HEADS and len(shape) == 4:
            found = [tensor for tensor in found if not _weighs(tensor, shape)]
        if self.turned:
            found = [tensor.transpose(1, 2) for tensor in found if tensor.dim() == 4]
        exact = next((tensor for tensor in found if tensor.shape == shape), None)
        if exact is not None:
            return exact
        for tensor in found:
            if self._fits(tensor, x, shape):
                return tensor
        raise NoStream(f"returned {shapes(returned)}; a tensor of {list(shape)} was expected")

    def _fits(self, tensor: Tensor, x: Tensor, shape: torch.Size) -> bool:
        if self.face is not Face.HEADS:
            return self.layout.back(tensor, x) is not None
        joined = self.axes in (Axes.HEADS_FIRST, Axes.TOKENS_FIRST) and tensor.shape == x.shape
        return joined or (tensor.dim() == len(shape) and tensor.shape[:-1] == shape[:-1])

    def with_(self, **changed: Any) -> Call:
        """The same with something changed."""
        if "rows_first" in changed:
            changed["layout"] = Layout.ROWS if changed.pop("rows_first") else Layout.TOKENS
        return replace(self, **changed)


@contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    """What foreign code makes without saying of which type has this one, as in a program that computes in it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype if dtype in (torch.float32, torch.float64) else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def in_single(value: Any) -> Any:
    """The same in float32, where it is made of numbers with a point."""
    if isinstance(value, tuple | list):
        return type(value)(in_single(part) for part in value)
    if isinstance(value, Tensor) and value.dtype is torch.float64:
        return value.float()
    return value.to(torch.complex64) if isinstance(value, Tensor) and value.is_complex() else value


def projection(width: int, place: int) -> Tensor:
    """A fixed random matrix: that of the queries, of the keys or of the values."""
    draw = torch.Generator().manual_seed(100 + place)
    matrix = torch.randn(width, width, generator=draw, dtype=torch.float64)
    return matrix / math.sqrt(width)


def widened(source: Tensor, width: int) -> Tensor:
    """A source of another width than the stream, by a fixed random matrix."""
    matrix = torch.randn(source.shape[-1], width, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    return source @ (matrix / math.sqrt(source.shape[-1])).to(source)


def _weighs(tensor: Tensor, shape: torch.Size) -> bool:
    """Whether a tensor beside the output holds the weights of heads: each row sums to one."""
    if tensor.dim() != 4 or tensor.shape[:-1] != shape[:-1] or tensor.shape == shape:
        return False
    ones = torch.ones((), dtype=tensor.dtype)
    return bool((tensor >= 0).all()) and bool(torch.allclose(tensor.sum(-1), ones, atol=1e-4))


def _must_be(found: Tensor | None, returned: Any) -> Tensor:
    if found is None:
        raise NoStream(f"returned {shapes(returned)}; as many vectors for each row as before were expected")
    return found


def _must(name: str | None) -> str:
    if name is None:
        raise CannotCheck("the call lacks an argument that this way of calling needs")
    return name
