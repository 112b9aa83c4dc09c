"""/v1/rerank and /v1/classify: what encoders say of texts, by their heads or by the cosine of embeddings.

Each text is read by itself, in a call of its own of the engine's thread, so that no other changes what is said of it.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from starlette.responses import Response
from torch import Tensor

from ....pipelines import EncoderPipeline
from ....pipelines.results import Prediction
from ....pipelines.similarity import SimilarityPipeline
from ..exchange import Exchange
from ..service import NamedModel, Service
from ..shapes.judging import (
    Classes,
    Classified,
    ClassifyRequest,
    ClassScore,
    DocumentShown,
    Ranked,
    Ranking,
    RerankRequest,
)
from ..shapes.responses import EmbeddingUsage
from ..wire.refusal import Refusal
from ..wire.sending import told, while_there
from .embeddings import encoder

T = TypeVar("T")


async def rerank(exchange: Exchange[RerankRequest]) -> Response:
    """Documents in the order of their relevance."""
    return told(await while_there(exchange.request, _ranked(exchange.service, exchange.asked)))


async def classify(exchange: Exchange[ClassifyRequest]) -> Response:
    """The classes of texts."""
    return told(await while_there(exchange.request, _classified(exchange.service, exchange.asked)))


class Judge(ABC):
    """Tells how much a document has to do with a query, from 0 or -1 to 1."""

    pairs = True  # query and document are read together

    def __init__(self, pipeline: EncoderPipeline, query: str) -> None:
        self._pipeline, self._query = pipeline, query

    @classmethod
    @abstractmethod
    def judges(cls, pipeline: EncoderPipeline) -> bool:
        """Whether this model is asked so."""

    @abstractmethod
    def score(self, document: str) -> float:
        """The relevance of a document."""


class Comparing(Judge):
    """A model that was trained to compare two texts says it itself."""

    @classmethod
    def judges(cls, pipeline: EncoderPipeline) -> bool:
        return isinstance(pipeline, SimilarityPipeline)

    def score(self, document: str) -> float:
        assert isinstance(self._pipeline, SimilarityPipeline)
        return float(self._pipeline.similarity((self._query, document)))


class CrossEncoding(Judge):
    """A head with one value, read off the pair; the sigmoid brings it between 0 and 1."""

    @classmethod
    def judges(cls, pipeline: EncoderPipeline) -> bool:
        return "classify" in pipeline.can

    def score(self, document: str) -> float:
        found: list[Prediction] = self._pipeline.classify((self._query, document))
        if len(found) != 1:
            raise Refusal(
                400,
                f"this model tells {len(found)} classes of a pair, which say nothing of relevance; needed is a head "
                "with one value, or an embedding model",
                "model",
                code="wrong_model",
            )
        value = found[0].probability
        return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


class ByCosine(Judge):
    """The cosine between the embeddings of query and document."""

    pairs = False
    _vector: Tensor | None = None  # of the query

    @classmethod
    def judges(cls, pipeline: EncoderPipeline) -> bool:
        return "embed" in pipeline.can

    def score(self, document: str) -> float:
        if self._vector is None:
            self._vector = self._pipeline.embed(self._query, unit=True).double()
        return float(self._vector @ self._pipeline.embed(document, unit=True).double())


JUDGES: tuple[type[Judge], ...] = (Comparing, CrossEncoding, ByCosine)  # the first that a model is asked by


async def _ranked(service: Service, asked: RerankRequest) -> Ranking:
    served = service.model(asked.model)
    pipeline = encoder(served)
    judge = next(one for one in JUDGES if one.judges(pipeline))(pipeline, asked.query)
    pairs = [(asked.query, one) for one in asked.documents]
    read = pairs if judge.pairs else [*asked.documents, asked.query]
    usage = await _usage(service, pipeline, read)
    scores = [await _called(service, served, partial(judge.score, one)) for one in asked.documents]
    order = sorted(range(len(scores)), key=lambda place: -scores[place])[: asked.top_n]
    found = []
    for place in order:
        shown = DocumentShown(text=asked.documents[place]) if asked.return_documents else None
        found.append(Ranked(index=place, relevance_score=scores[place], document=shown))
    return Ranking(id=f"rerank-{secrets.token_hex(12)}", model=served.name, results=found, usage=usage)


async def _classified(service: Service, asked: ClassifyRequest) -> Classes:
    served = service.model(asked.model)
    pipeline = encoder(served)
    own = "classify" in pipeline.can and not isinstance(pipeline, SimilarityPipeline)
    if own and asked.labels:
        raise Refusal(400, f"the classes of {served.name} are fixed; leave labels out", "labels")
    if not own and len(asked.labels) < 2:
        raise Refusal(400, f"{served.name} has no classes of its own; give labels, two or more", "labels")
    usage = await _usage(service, pipeline, [*asked.input, *asked.labels])
    if own:
        found = [await _called(service, served, partial(pipeline.classify, text)) for text in asked.input]
    else:
        vectors = [await _called(service, served, partial(_embedded, pipeline, text)) for text in asked.labels]
        found = []
        for text in asked.input:
            vector = await _called(service, served, partial(_embedded, pipeline, text))
            named = zip(asked.labels, vectors, strict=True)
            near = [Prediction(label, float(vector @ other)) for label, other in named]
            found.append(sorted(near, key=lambda one: -one.probability))
    data = [_told(place, some) for place, some in enumerate(found)]
    return Classes(id=f"classify-{secrets.token_hex(12)}", model=served.name, data=data, usage=usage)


def _embedded(pipeline: EncoderPipeline, text: str) -> Tensor:
    return pipeline.embed(text, unit=True).double()


def _told(place: int, found: Sequence[Prediction]) -> Classified:
    classes = [ClassScore(label=one.label, score=one.probability) for one in found]
    return Classified(index=place, prediction=classes[0].label, score=classes[0].score, predictions=classes)


async def _called(service: Service, served: NamedModel, act: Callable[[], T]) -> T:
    return await asyncio.wrap_future(service.engine.call(act, model=served.name))


async def _usage(service: Service, pipeline: EncoderPipeline, read: Sequence[str | tuple[str, str]]) -> EmbeddingUsage:
    """The tokens of what is read, each text once."""

    def counted() -> int:
        texts = [one if isinstance(one, tuple) else (one, None) for one in read]
        return sum(len(pipeline.tokenizer.framed(*one).ids) for one in texts)

    count = await service.prepared(counted)
    return EmbeddingUsage(prompt_tokens=count, total_tokens=count)
