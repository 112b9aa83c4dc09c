"""Functions that take their weights as arguments: heed keeps the weights, and what is left is called as any other."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from typing import Any

import torch
from torch import Tensor, nn

from ..returned import numbers
from ..sizes import Sizes, cut, listed
from ..words import Role, role_of

MOST = 400  # sets of shapes that are tried
_MATRIX = listed("w weight weights kernel matrix wq wk wv wo wqkv wout wproj proj")
_VECTOR = listed("b bias biases beta g gain gamma scale shift bq bk bv bo")


class Held(nn.Module):
    """A function, with the weights that it takes as arguments."""

    def __init__(self, function: Callable[..., Any], weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weights = nn.ParameterDict({name: nn.Parameter(weight) for name, weight in weights.items()})

    @property
    def call(self) -> Callable[..., Any]:
        """What is left to be given: the function's signature without the weights."""

        def rest(**given: Any) -> Any:
            return self(**given)

        found = inspect.signature(self.function)
        left = [parameter for name, parameter in found.parameters.items() if name not in self.weights]
        rest.__signature__ = found.replace(parameters=left)  # type: ignore[attr-defined]
        return rest

    def forward(self, *given: Any, **named: Any) -> Any:
        return self.function(*given, **named, **self.weights)


def held(function: Callable[..., Any]) -> Held | None:
    """The function with its weights, of shapes that fit; None if it takes none, or nothing fits."""
    if not inspect.isfunction(function):
        return None
    names = [n for n, p in inspect.signature(function).parameters.items() if p.default is p.empty]
    weights = [name for name in names[1:] if shapes_of(name, Sizes())]
    if not names or not weights:
        return None
    others = {name: _given(name) for name in names[1:] if name not in weights}
    x = torch.randn(3, 7, Sizes().width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for found in islice(_drawn(weights), MOST):
        try:
            returned = function(x, **others, **found)
        except Exception:  # foreign code may raise anything
            continue
        if any(y.shape[:2] == x.shape[:2] for y in numbers(returned)):
            return Held(function, found)
    return None


def shapes_of(name: str, sizes: Sizes) -> list[tuple[int, ...]]:
    """The shapes that a weight may have, by its name; none if it is no weight."""
    wide, hidden = sizes.width, sizes.hidden
    kind = next((word for word in cut(name) if word in _MATRIX | _VECTOR), None)
    if kind in _MATRIX:
        square, packed = (wide, wide), (wide, 3 * wide)
        hiding = [(wide, hidden), (hidden, wide)]
        vectors = [(wide,)] if name in ("weight", "w", "scale") else []
        return [*vectors, *([packed, packed[::-1]] if "qkv" in name.lower() else [square, *hiding, packed])]
    return [] if kind is None else [(wide,), (hidden,), (3 * wide,)]


def _drawn(names: Sequence[str]) -> Iterator[dict[str, Tensor]]:
    """Weights of every shape, each with numbers of its own."""
    for chosen in product(*(shapes_of(name, Sizes()) for name in names)):
        draw = torch.Generator().manual_seed(len(names))
        yield {
            name: torch.randn(shape, generator=draw, dtype=torch.float64) / math.sqrt(shape[0])
            for name, shape in zip(names, chosen, strict=True)
        }


def _given(name: str) -> Any:
    return {Role.HEADS: Sizes().heads, Role.CAUSAL: False, Role.LENGTH: 7, Role.WIDTH: Sizes().width}.get(role_of(name))
