"""What a call returns: a vector for every token, a few for each row, or weights, by which heed sums what they weigh."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

WEIGHTED = "it returns attention weights and no output"
SURE = 1e-4  # how far a sum of weights may be from one


class NoStream(ValueError):
    """A call that gives no vector for every token."""


class Gives(StrEnum):
    """What the output is read from."""

    VECTORS = "vectors"
    WEIGHTS = "weights"
    LOGS = "logarithms of weights"

    def weights(self, returned: Any, rows: int, keys: int) -> Tensor:
        """The weights in what was returned. [B, T, S] or [B, H, T, S]"""
        found = next(_weights(returned, rows, keys), None)
        if found is None:
            raise NoStream(f"returned {shapes(returned)}; weights of {keys} keys were expected")
        return found.exp() if self is Gives.LOGS else found


def tensors(returned: Any) -> Iterator[Tensor]:
    """Every tensor in what a call returned: tuples, lists, dicts, dataclasses and the outputs of transformers."""
    if isinstance(returned, Tensor):
        yield returned
    elif isinstance(returned, Mapping):
        for value in returned.values():
            yield from tensors(value)
    elif isinstance(returned, tuple | list):
        for value in returned:
            yield from tensors(value)
    elif dataclasses.is_dataclass(returned):
        for part in dataclasses.fields(returned):
            yield from tensors(getattr(returned, part.name))


def numbers(returned: Any) -> list[Tensor]:
    """Those with a point."""
    return [tensor for tensor in tensors(returned) if tensor.is_floating_point()]


def shapes(returned: Any) -> str:
    """What was returned, in words."""
    return ", ".join(str(list(tensor.shape)) for tensor in numbers(returned)) or type(returned).__name__


def summed(weights: Tensor, source: Tensor) -> Tensor:
    """What weights make of what they weigh, head by head. [B, (H,) T, S], [B, S, D] -> [B, T, (H·)D]"""
    if weights.dim() == 3:
        return torch.bmm(weights, source)
    heads = weights @ source[:, None]
    return heads.transpose(1, 2).flatten(2)


def gives_weights(returned: Any, rows: int, keys: int) -> Gives | None:
    """Whether weights were returned, or their logarithms: they, or these, sum to one along some axis."""
    found = next(_weights(returned, rows, keys), None)
    if found is None:
        return None
    if bool((found >= 0).all()) and _one_along_some(found):
        return Gives.WEIGHTS
    return Gives.LOGS if bool((found <= 0).all()) and _one_along_some(found.exp()) else None


def _one_along_some(weights: Tensor) -> bool:
    axes = [axis for axis in range(weights.dim()) if weights.shape[axis] > 1]
    return any(float((weights.sum(axis) - 1).abs().max()) < SURE for axis in axes)


def _weights(returned: Any, rows: int, keys: int) -> Iterator[Tensor]:
    """What has an axis of keys and may be weights, as [B, T, S] or [B, H, T, S]."""
    for tensor in numbers(returned):
        shape = tuple(tensor.shape)
        if shape == (rows, keys):
            yield tensor[:, None]
        elif shape == (keys, rows):
            yield tensor.mT[:, None]
        elif shape == (rows, keys, 1):
            yield tensor.mT
        elif shape == (keys, rows, 1):
            yield tensor.permute(1, 2, 0)
        elif len(shape) == 3 and shape[0] == 1 and shape[1:] == (rows, keys):
            yield tensor.transpose(0, 1)
        elif len(shape) in (3, 4) and shape[0] == rows and shape[-1] == keys:
            yield tensor
        elif len(shape) == 3 and shape[0] % rows == 0 and shape[-1] == keys:
            yield tensor.reshape(rows, -1, *shape[1:])


def few(returned: Any, rows: int, many: int | None = None) -> Tensor | None:
    """The first vectors for each row, as many as are wanted. [B, many, D]"""
    for tensor in numbers(returned):
        found = _by_row(tensor, rows)
        if found is not None and many in (None, found.shape[1]):
            return found
    return None


def _by_row(tensor: Tensor, rows: int) -> Tensor | None:
    if tensor.dim() > 2 and tensor.shape[-1] == 1:
        return _by_row(tensor[..., 0], rows)  # an image of one point
    if tensor.dim() in (1, 2) and len(tensor) == rows:
        return tensor.reshape(rows, 1, -1)
    if tensor.dim() == 3 and len(tensor) == rows:
        return tensor
    return tensor.transpose(0, 1) if tensor.dim() == 3 and tensor.shape[1] == rows else None
