"""Huge pages: weights that are read from end to end for every token lie on 2 MiB pages, one behind the other."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from .build import library
from .refusals import must_be_done

SMALL = 4 << 20  # bytes that need no huge pages
CLOSE = 16 << 20  # bytes that stay in a cache from token to token, where pages do not matter


def huge_pages(tensors: Sequence[Tensor], *, now: bool) -> None:
    """Puts these on huge pages: at once, or as they are first written to."""
    compiled, sizes = library(), [tensor.nbytes for tensor in tensors]
    if compiled is not None and sum(sizes) > SMALL:
        many = ctypes.c_int64 * len(sizes)
        places = many(*(tensor.data_ptr() for tensor in tensors))
        must_be_done(compiled.heed_huge_pages(places, many(*sizes), len(sizes), int(now)))


def settled(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same numbers on huge pages, if they are many; tensors that are smaller than that, one behind the other."""
    if sum(tensor.nbytes for tensor in tensors) <= CLOSE:
        return list(tensors)
    if tensors[0].nbytes < SMALL:
        return gathered(tensors)
    huge_pages(tensors, now=True)
    return list(tensors)


def gathered(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The same numbers one behind the other; what was one tensor stays one. Nothing is moved that lies so already."""
    single = {tensor.data_ptr(): tensor for tensor in tensors}
    sizes = [-(-tensor.nbytes // 64) * 64 for tensor in single.values()]
    together = len({tensor.untyped_storage().data_ptr() for tensor in tensors}) <= 1
    if together or sum(sizes) <= SMALL or not all(t.is_cpu and t.is_contiguous() for t in tensors):
        return list(tensors)
    arena = torch.empty(sum(sizes), dtype=torch.uint8, device="cpu")
    huge_pages((arena,), now=False)
    moved = {}
    for (place, tensor), room in zip(single.items(), torch.split(arena, sizes), strict=True):
        moved[place] = room[: tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)
    return [moved[tensor.data_ptr()] for tensor in tensors]
