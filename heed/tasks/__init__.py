"""What is learnt from what: data to batches, loss, metrics, and which pipeline a model gets. `TASKS` is the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from ..core.config import Config, OneOf
from ..core.tables import Table, later

TASKS: Table[type[Task]] = Table(
    __name__, {"translate": "translate:Translate", "causal": "causal:Causal", "permute": "permute:Permute"}
)

if TYPE_CHECKING:
    from .base import Batch as Batch
    from .base import Corpus as Corpus
    from .base import Item as Item
    from .base import Task as Task
    from .causal import Causal as Causal
    from .feed import Feed as Feed
    from .feed import Place as Place
    from .feed import bucketed as bucketed
    from .metrics import Metrics as Metrics
    from .metrics import cross_entropy_of as cross_entropy_of
    from .permute import Permute as Permute
    from .translate import Translate as Translate

    AnyTask: TypeAlias = Task
else:
    AnyTask = Annotated[Config, OneOf(lambda: TASKS)]
    __getattr__, __dir__ = later(
        __name__,
        {
            **dict.fromkeys(("Batch", "Corpus", "Item", "Task"), "base"),
            **dict.fromkeys(("Feed", "Place", "bucketed"), "feed"),
            **dict.fromkeys(("Metrics", "cross_entropy_of"), "metrics"),
        },
        TASKS,
        renamed={
            "Answer": "heed.pipelines:Completion",
            "Answers": "heed.pipelines:GenerationPipeline",
            "Ask": "heed.pipelines:GenerationConfig",
            "Guess": "heed.pipelines:Prediction",
            "Ready": "heed.pipelines:Pipeline",
            "Response": "heed.pipelines:Response",
            "Scores": "Metrics",
        },
    )
