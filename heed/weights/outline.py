"""A model without memory, as its config describes it: what there is to be filled, before anything of that size is made.

A config is a stranger's file, too. A depth of a billion costs no memory on the meta device, but hours: so the calls of
torch that a model is built by are counted, and compared with the tensors that are there to fill it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ..core.errors import ConfigError, HeedError, WeightsError
from .formats.checkpoint import Checkpoint

M = TypeVar("M", bound=nn.Module)

MOST = 1 << 19  # calls of torch that a model is built by: some 4,000 layers, 10 seconds
ALWAYS = 20_000  # calls of torch for any model: a part of a second
EACH = 100  # calls for every tensor of a file; a layer takes some ten for each of its own
FUSED = 2_000  # of other people's files, in which one tensor may hold all of 256 experts


def outlined(build: Callable[[], M], checkpoint: Checkpoint, each: int = FUSED) -> M:
    """The model of a checkpoint without memory, in the precision that it will have."""
    count = len(checkpoint.tensors)
    try:
        model = unfilled(build, bounded(count, each))
        return model.to(torch.promote_types(checkpoint.tensors.dtype or torch.float32, torch.float32))
    except TooManyParts:
        raise WeightsError(
            f"{checkpoint.place}: its config claims far more parts (layers, experts ...) than its {count:,} tensors "
            "can fill; is the config that of another model?"
        ) from None
    except HeedError as error:
        raise WeightsError(f"{checkpoint.place}: its config describes no model: {error}") from None


def bounded(tensors: int, each: int = EACH) -> int:
    """Calls of torch that so many tensors allow."""
    return min(MOST, ALWAYS + each * tensors)


def unfilled(build: Callable[[], M], most: int = MOST) -> M:
    """A model on the meta device, built by so many calls of torch at most."""
    try:
        # The mode raises wherever the count ends, also where `no_grad` would take itself back.
        with torch.set_grad_enabled(torch.is_grad_enabled()), torch.device("meta"), _Unfilled(most):
            return build()
    except (RuntimeError, OverflowError, TypeError) as error:  # torch, of sizes that no tensor can have
        if isinstance(error, HeedError):
            raise
        why = str(error).partition("\n")[0]
        raise ConfigError(f"it cannot be built, its sizes are none that a tensor can have: {why}") from None


class TooManyParts(ConfigError):
    """A model of more parts than may be."""


class _Unfilled(TorchFunctionMode):
    """First weights are not drawn: they would be thrown away, and drawing without memory makes torch import sympy."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most

    def __torch_function__(
        self, function: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._left -= 1
        if self._left == -1:  # once: what is on its way out may need torch
            raise TooManyParts("the model has too many parts (layers, experts ...): is it meant so?")
        given = kwargs or {}
        if getattr(function, "__module__", None) == nn.init.__name__ and function.__name__.endswith("_"):
            return given["tensor"] if "tensor" in given else args[0]
        return function(*args, **given)
