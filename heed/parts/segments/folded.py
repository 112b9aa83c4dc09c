"""A memory in two: what segments left behind that are over, and the entries of the one that is open."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...core.spec import Slot
from ...core.stamps import Stamps
from ...core.state import Cell, Log, Seen
from .segmented import Segmented


def folded(past: Sequence[Tensor], segments: Segmented, seen: Seen, kept: Log, slot: Slot) -> tuple[Cell, Log]:
    """What is kept after a call: each row has what its closed segments leave behind, and the entries of the open one.

    `past` is that before each segment of the grid and after the last, [B, S + 1, ...] each; `seen` is what the call saw
    of open segments, its own tokens included, `kept` the log that `remember` gave, of this `slot`.
    """
    if segments.settled or not bool(segments.closed.any()):
        return Cell(*(part[:, 0] for part in past)), kept
    rows = torch.arange(len(seen.order), device=seen.order.device)
    opened = Stamps(seen.order.masked_fill(~segments.open, -1), seen.position)
    _, log = Log.empty(slot, len(rows), seen.order.device).append(opened, *seen.parts)
    return Cell(*(part[rows, segments.closed] for part in past)), log
