"""Rounds that several contestants share: a whole process, padded batches, and a training step in plain torch."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .base import Done, Prepared, Round
from .work import Work

if TYPE_CHECKING:
    from torch import Tensor


def first_token(python: str, path: str, script: str) -> Round:
    """Runs a script that knows `path`, from the start of Python to the first token; it ends there at once."""
    text = f"path = {path!r}\n{script}\nimport os\nos._exit(0)\n"

    def started() -> Done:
        made = subprocess.run([python, "-c", text], check=False, capture_output=True, text=True)
        if made.returncode:
            raise RuntimeError(made.stderr.strip().splitlines()[-1])
        return Done(1)

    return started


def batches(rows: Sequence[Sequence[int]], size: int) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    """Padded ids and their attention mask, at most `size` rows at a time, sorted by length, as careful users do."""
    order = sorted(rows, key=len)
    for begin in range(0, len(order), size):
        some = order[begin : begin + size]
        width = max(map(len, some))
        ids = [[*row, *[0] * (width - len(row))] for row in some]
        yield ids, [[1] * len(row) + [0] * (width - len(row)) for row in some]


def training(work: Work, made: Callable[[], tuple[Any, Callable[[], Tensor]]]) -> Prepared:
    """Loss, gradients, fused AdamW; `made` gives a model and its mean loss on the work's rows."""
    import torch

    torch.manual_seed(0)
    model, loss = made()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> Done:
        optimizer.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return Done(work.units)

    return Prepared({"": step})
