"""What is learnt from what: data to batches, loss, metrics, and which pipeline a model gets. `TASKS` is the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

from ..core.config import Config, OneOf
from ..core.tables import Table, later

TASKS: Table[type[Task]] = Table(
    __name__,
    {
        "translate": "translate:Translate",
        "causal": "causal:Causal",
        "permute": "permute:Permute",
        "classify": "labels.classify:Classify",
        "match": "labels.match:Match",
        "rewrite": "rewrite:Rewrite",
        "recall": "recall:Recall",
        "tag": "labels.tag:Tag",
        "span": "labels.span:SpanTask",
        "masked": "pretrain.masked:MaskedTokens",
        "denoise": "pretrain.denoise:Denoise",
        "electra": "pretrain.electra:ReplacedTokens",
        "images": "media.images:Images",
        "sounds": "sounds.classes:Sounds",
        "ctc": "sounds.ctc:CTC",
        "transcribe": "sounds.transcribe:Transcribe",
        "image_text": "media.image_text:ImageText",
    },
)

if TYPE_CHECKING:
    from .base import Batch as Batch
    from .base import Corpus as Corpus
    from .base import GeneratingTask as GeneratingTask
    from .base import Item as Item
    from .base import Task as Task
    from .base import TextTask as TextTask
    from .causal import Causal as Causal
    from .feed import Feed as Feed
    from .feed import Place as Place
    from .feed import bucketed as bucketed
    from .labels.classify import Classify as Classify
    from .labels.match import Match as Match
    from .labels.span import SpanTask as SpanTask
    from .labels.tag import Tag as Tag
    from .media.image_text import ImageText as ImageText
    from .media.images import Images as Images
    from .metrics import Metrics as Metrics
    from .metrics import Sums as Sums
    from .metrics import cross_entropy_of as cross_entropy_of
    from .metrics import sums_of as sums_of
    from .permute import Permute as Permute
    from .pretrain.denoise import Denoise as Denoise
    from .pretrain.electra import ReplacedTokens as ReplacedTokens
    from .pretrain.masked import MaskedTokens as MaskedTokens
    from .recall import Recall as Recall
    from .rewrite import Rewrite as Rewrite
    from .sounds.classes import Sounds as Sounds
    from .sounds.ctc import CTC as CTC
    from .sounds.transcribe import Transcribe as Transcribe
    from .translate import Translate as Translate

    AnyTask: TypeAlias = Task
else:
    AnyTask = Annotated[Config, OneOf(lambda: TASKS)]
    __getattr__, __dir__ = later(
        __name__,
        {
            **dict.fromkeys(("Batch", "Corpus", "GeneratingTask", "Item", "Task", "TextTask"), "base"),
            **dict.fromkeys(("Feed", "Place", "bucketed"), "feed"),
            **dict.fromkeys(("Metrics", "Sums", "cross_entropy_of", "sums_of"), "metrics"),
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
