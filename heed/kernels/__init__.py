"""Kernels in C++, each with a form written out in torch, which it must equal.

They come with a wheel, compiled for several processors, or are compiled on this machine at first use. `library()` gives
them or None: where there are none to bring and no compiler, after a failed build, or with HEED_KERNELS=off torch
computes the same, and one line says so. `described()` tells which are in use, or why none are.

Import-time magic: `linear`, `selective_scan` and `wkv_scan` define operators (`torch.library`, heed::) when they are
first imported, on first use of a name below; `dispatch` marks `_built` as constant for torch.compile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tables import later
from .build import described as described
from .build import library as library
from .build import written_out as written_out
from .compiler import Unavailable as Unavailable
from .dispatch import served as served
from .hugepages import huge_pages as huge_pages

if TYPE_CHECKING:
    from .linear import GROUP as GROUP
    from .linear import by_group as by_group
    from .linear import grouped as grouped
    from .linear import int8 as int8
    from .linear import matrix_of_groups as matrix_of_groups
    from .linear import plain_ as plain_
    from .linear import two_bits as two_bits
    from .linear import ungrouped as ungrouped
    from .linear import w8a8 as w8a8
    from .loss import entropy_ as entropy_
    from .selective_scan import selective as selective
    from .wkv_scan import wkv as wkv
else:  # operators are defined where they are used: torch takes its time over each
    _LINEAR = ("GROUP", "by_group", "grouped", "int8", "matrix_of_groups", "plain_", "two_bits", "ungrouped", "w8a8")
    __getattr__, __dir__ = later(
        __name__,
        {**dict.fromkeys(_LINEAR, "linear"), "entropy_": "loss", "wkv": "wkv_scan", "selective": "selective_scan"},
    )
