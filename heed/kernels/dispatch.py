"""Whether kernels are used: for numbers of float32 on a processor, where they were built."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import CDLL
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..core.errors import InputError
from ..core.torch_private import assumed_constant
from .build import library


def served(*given: Tensor) -> bool:
    """Whether there are kernels for these."""
    return all(tensor.dtype == torch.float32 and tensor.is_cpu for tensor in given) and _built()


def kernels(*given: Tensor) -> CDLL | None:
    """Those that serve these, if they are there."""
    return library() if served(*given) else None


def must_have(name: str, *given: tuple[Tensor, Sequence[int]]) -> None:
    """Raise unless shapes are those that the kernel will read."""
    for tensor, shape in given:
        if list(tensor.shape) != list(shape):
            raise InputError(f"heed::{name} was given a tensor of shape {list(tensor.shape)} in place of {list(shape)}")


def address(what: str, tensor: Tensor, dtype: torch.dtype, count: int) -> int:
    """Where a kernel finds these numbers; raises unless they are so many, of this dtype, in one piece on the CPU."""
    if tensor.dtype != dtype or not tensor.is_cpu or not tensor.is_contiguous() or tensor.numel() < count:
        piece = "in one piece" if tensor.is_contiguous() else "in several pieces"
        raise InputError(
            f"the kernel was given {what} as {tensor.numel()} numbers of {tensor.dtype} on {tensor.device}, {piece}; "
            f"needed are {count} of {dtype} on cpu, in one piece"
        )
    return tensor.data_ptr()


def once(name: str, library: torch.library.Library) -> None:
    """An operator that is a gradient has none of its own: it refuses, instead of giving none."""

    def refuse(ctx: Any, *gradients: Tensor) -> NoReturn:
        raise NotImplementedError(f"heed::{name} has no second derivative; take float64, or set HEED_KERNELS=off")

    torch.library.register_autograd(f"heed::{name}", refuse, lib=library)


@assumed_constant
def _built() -> bool:
    return library() is not None
