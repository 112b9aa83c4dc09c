"""What a training holds.

Memory that is freed stays with the process: a training asks for the same large tensors in every step. glibc gives every
large block back to the system at once, and the next step pays for it page by page. Other C libraries are left as they
are. And what is inside of blocks need not be held at all (`recompute`).
"""

from __future__ import annotations

import ctypes
import sys

from torch import nn

from ..core.errors import ConfigError
from ..parts.residual.wired import Wiring

M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)
LARGEST = 2**31 - 1
OLD = 32 << 20  # the most that older versions take as a threshold for mmap


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
