"""heed bench: heed beside its peers, on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .report import Report
    from .work import Work


def bench(works: Sequence[Work], against: str | None, rounds: int, say: Callable[[str], None]) -> Report:
    """All these contests, one after the other; `against` names peers with commas between them, None means all."""
    from .contest import run
    from .ours import Heed
    from .peers import chosen
    from .report import Report, machine

    peers = chosen(against)
    return Report([run(work, Heed(), peers, rounds, say) for work in works], machine(works[0].threads))
