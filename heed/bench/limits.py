"""What the machine can do at most: read memory, and multiply matrices in float32."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar

from .base import Contestant, Done, Prepared
from .work import Work

READ = 1 << 28  # bytes: far more than any cache holds
SIDE = 1536  # of square matrices
TRIES = 3


class Limits(Contestant):
    """Measured as if it took part, so that it meets the same weather as the others."""

    name: ClassVar[str] = "limits"
    package: ClassVar[str] = "torch"
    distribution: ClassVar[str] = "torch"

    def precision(self, work: Work) -> str | None:
        return "fp32"

    def prepare(self, work: Work) -> Prepared:
        import torch

        from ..kernels import int8

        numbers = torch.ones(READ // 4)
        matrix, vector, scales = (
            torch.ones(1 << 14, 1 << 14, dtype=torch.int8),
            torch.ones(1, 1 << 14),
            torch.ones(1 << 14),
        )
        left, right, out = torch.rand(SIDE, SIDE), torch.rand(SIDE, SIDE), torch.empty(SIDE, SIDE)
        reading: tuple[Callable[[], object], ...] = (
            numbers.sum,
            numbers.max,
            lambda: int8(vector, matrix, scales),
        )

        def measured() -> Done:
            bandwidth = max(READ / _quickest(read) for read in reading)
            gemm = 2 * SIDE**3 / _quickest(lambda: torch.mm(left, right, out=out))
            return Done(1, figures={"bandwidth": bandwidth, "gemm": gemm})

        return Prepared({"": measured})


def _quickest(call: Callable[[], object]) -> float:
    """Seconds of the quickest of a few calls."""
    call()
    spent = []
    for _ in range(TRIES):
        begin = time.perf_counter()
        call()
        spent.append(time.perf_counter() - begin)
    return min(spent)
