"""What is learnt from what: data to batches, loss, scores, and a model in use. `TASKS` is the table."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from ..core.config import OneOf
from .base import Batch as Batch
from .base import Corpus as Corpus
from .base import Item as Item
from .base import Task as Task
from .causal import Causal as Causal
from .feed import Feed as Feed
from .feed import Place as Place
from .feed import bucketed as bucketed
from .permute import Permute as Permute
from .ready import Answer as Answer
from .ready import Answers as Answers
from .ready import Ask as Ask
from .ready import Guess as Guess
from .ready import Ready as Ready
from .ready import Response as Response
from .ready import Scores as Scores
from .ready import cross_entropy_of as cross_entropy_of
from .translate import Translate as Translate

TASKS: tuple[type[Task], ...] = (Translate, Causal, Permute)

AnyTask: TypeAlias = Annotated[Task, OneOf(lambda: TASKS)]
