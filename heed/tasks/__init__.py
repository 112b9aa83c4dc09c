"""What is learnt from what: data to batches, loss, scores, and a model in use. `TASKS` is the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from ..core.config import Config, OneOf
from ..core.tables import Table, later

TASKS: Table[type[Task]] = Table(
    __name__, {"translate": "translate:Translate", "causal": "causal:Causal", "permute": "permute:Permute"}
)

if TYPE_CHECKING:
    from ..pipelines.base import Answer as Answer
    from ..pipelines.base import Answers as Answers
    from ..pipelines.base import Ask as Ask
    from ..pipelines.base import Guess as Guess
    from ..pipelines.base import Ready as Ready
    from ..pipelines.base import Response as Response
    from ..pipelines.base import Scores as Scores
    from ..pipelines.base import cross_entropy_of as cross_entropy_of
    from .base import Batch as Batch
    from .base import Corpus as Corpus
    from .base import Item as Item
    from .base import Task as Task
    from .causal import Causal as Causal
    from .feed import Feed as Feed
    from .feed import Place as Place
    from .feed import bucketed as bucketed
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
            **dict.fromkeys(("Answer", "Answers", "Ask", "Guess", "Ready", "Response", "Scores"), "ready"),
            "cross_entropy_of": "ready",
        },
        TASKS,
    )
