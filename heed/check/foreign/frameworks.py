"""Layers of other frameworks: what is not PyTorch is recognised and said, instead of failing somewhere inside."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from .target import CannotCheck

FRAMEWORKS = {
    "equinox": "Equinox",
    "flax": "Flax",
    "haiku": "Haiku",
    "jax": "JAX",
    "keras": "Keras",
    "mlx": "MLX",
    "paddle": "Paddle",
    "tensorflow": "TensorFlow",
    "tf_keras": "Keras",
}


def refuse_others(found: Any) -> None:
    """Say so where a target is of another framework. Keras is one also where it computes with torch.

    Its layers are built at the first call, have a precision of their own and cannot be copied: what a check changes and
    compares is not there.
    """
    name = framework(found)
    if name is not None:
        told = found.__name__ if inspect.isclass(found) or inspect.isfunction(found) else type(found).__name__
        raise CannotCheck(
            f"{told} is written with {name}, which is not covered: heed check asks PyTorch code. "
            "Write the same computation as a torch.nn.Module or a function of tensors to have it checked"
        )


def framework(found: Any) -> str | None:
    """The framework of a class, an object or a function, if it is one of those that are not covered."""
    return next((FRAMEWORKS[top] for top in _origins(found) if top in FRAMEWORKS), None)


def _origins(found: Any) -> Iterator[str]:
    """The top packages of what a class inherits from; of a function, those of the modules that it knows by a name."""
    if inspect.isfunction(found):
        known = {value.__name__.split(".")[0] for value in found.__globals__.values() if isinstance(value, ModuleType)}
        yield from () if "torch" in known else sorted(known)
        return
    kind = found if inspect.isclass(found) else type(found)
    yield from (base.__module__.split(".")[0] for base in kind.__mro__)
