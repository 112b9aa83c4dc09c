"""What is seen of a model, as numbers with a figure: attention and influence, cost, summary, plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.tables import later

if TYPE_CHECKING:
    from .collect import Layer as Layer
    from .costs import Cost as Cost
    from .costs import cost as cost
    from .influence import influence_of as influence_of
    from .maps import Maps as Maps
    from .maps import see as see
    from .pairs import Change as Change
    from .pairs import Pair as Pair
    from .plotting import Plot as Plot
    from .plotting import plot as plot
    from .summaries import Summary as Summary
    from .summaries import summary as summary
else:
    __getattr__, __dir__ = later(
        __name__,
        {
            **dict.fromkeys(("Maps", "see"), "maps"),
            **dict.fromkeys(("Change", "Pair"), "pairs"),
            **dict.fromkeys(("Plot", "plot"), "plotting"),
            **dict.fromkeys(("Summary", "summary"), "summaries"),
            "Layer": "collect",
            "Cost": "costs",
            "cost": "costs",
            "influence_of": "influence",
        },
    )
