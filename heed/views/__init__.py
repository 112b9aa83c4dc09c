"""What is seen of a model, as numbers with a figure: attention and influence, cost, summary, plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tables import later

if TYPE_CHECKING:
    from .collect import Layer as Layer
    from .influence import influence_of as influence_of
    from .maps import Maps as Maps
    from .maps import see as see
    from .pairs import Change as Change
    from .pairs import Pair as Pair
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            **dict.fromkeys(("Maps", "see"), "maps"),
            **dict.fromkeys(("Change", "Pair"), "pairs"),
            "Layer": "collect",
            "influence_of": "influence",
        },
    )
