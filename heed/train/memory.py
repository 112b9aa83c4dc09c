"""What a training holds.

Memory that is freed stays with the process: a training asks for the same large tensors in every step. glibc gives every
large block back to the system at once, and the next step pays for it page by page. Other C libraries are left as they
are. And what is inside of blocks need not be held at all (`recompute`). A model that the machine cannot hold is refused
before it is built (`afforded`): else the system would begin to swap, and end some process hours later.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from ..core.errors import ConfigError
from ..parts.residual.wired import Wiring
from ..runs.training import Shard, Training
from ..weights.outline import MOST, unfilled
from .parallel import Group

M = TypeVar("M", bound=nn.Module)

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)
LARGEST = 2**31 - 1
OLD = 32 << 20  # the most that older versions take as a threshold for mmap
CONTAINER = ("memory.max", "memory/memory.limit_in_bytes")  # of control groups, version 2 and 1


def keep() -> None:
    """Let the allocator keep what is freed, if this C library can be told so."""
    if not sys.platform.startswith("linux"):
        return
    try:
        tell = ctypes.CDLL(None).mallopt
    except AttributeError:  # musl
        return
    tell(M_MMAP_THRESHOLD, LARGEST) or tell(M_MMAP_THRESHOLD, OLD)
    tell(M_TRIM_THRESHOLD, LARGEST)
    tell(M_TOP_PAD, 64 << 20)


def recompute(model: nn.Module) -> None:
    """Hold only the stream between blocks while learning; what is inside of one is computed again backwards.

    Chen et al. 2016, arXiv 1604.06174. Gradients stay the same to the last bit, dropped channels included.
    """
    wirings = [part for part in model.modules() if isinstance(part, Wiring)]
    if not wirings:
        raise ConfigError(
            "training.recompute is for models that consist of blocks, and this one does not; leave it out"
        )
    for wiring in wirings:
        wiring.recompute = True


def afforded(build: Callable[[], M], settings: Training, processes: Group, parts: int = MOST) -> M:
    """The model without memory, if there is enough for its weights, their gradients, moments and average.

    `parts`: the most calls of torch to build it by. Sharded processes need their share each.
    """
    model = unfilled(build, parts)
    needed = sum(held.nbytes for held in (*model.parameters(), *model.buffers()))
    learning = sum(weight.nbytes for weight in model.parameters() if weight.requires_grad)
    needed += learning * (3 if settings.average is None else 4)
    device = processes.device
    there = settings.max_memory or memory_of(device)
    if isinstance(settings.parallel, Shard):
        beside = processes.beside if device.type == "cpu" else 1  # they share the machine's memory
        needed = needed * beside // processes.size
    if there is not None and needed > there:
        count = sum(weight.numel() for weight in model.parameters())
        raise ConfigError(
            f"the model has {count:,} weights; to train it takes at least {needed / 1e9:,.1f} GB, and there are "
            f"{there / 1e9:,.1f} GB ({'training.max_memory' if settings.max_memory else device.type}): make the model "
            "smaller, or raise training.max_memory (bytes) if you know better"
        )
    return model


def memory_of(device: torch.device) -> int | None:
    """Bytes that a device has in all, as far as anybody can tell."""
    if device.type in ("cuda", "xpu"):
        return int(torch.get_device_module(device).mem_get_info(device)[1])
    found = []
    with suppress(OSError, ValueError, AttributeError):  # AttributeError: Windows
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for name in CONTAINER:
        with suppress(OSError, ValueError):  # ValueError: it says "max"
            found.append(int((Path("/sys/fs/cgroup") / name).read_text()))
    return min((size for size in found if size > 0), default=None)
