"""/v1/rerank and /v1/classify, typed, in the shapes that Jina and Cohere have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from annotated_types import Ge, MaxLen, MinLen
from pydantic import BeforeValidator, Strict

from ....core.config import Config, Flag
from .requests import PROMPTS, Name, Text, texts
from .responses import EmbeddingUsage, Shape

DOCUMENTS, LABELS = 1024, 128


def _documents(value: Any) -> Any:
    """Texts, or tables with a text."""
    given = value if isinstance(value, list | tuple) else [None]
    found = [one["text"] if isinstance(one, dict) and set(one) == {"text"} else one for one in given]
    if all(isinstance(one, str) for one in found):
        return tuple(found)
    raise ValueError('a list of documents is needed, each a text or {"text": ...}')


class DocumentText(Config):
    """A document, where it is a table."""

    text: Text


class RerankRequest(Config):
    """Documents to be put in the order of what they have to do with a query."""

    model: Name
    query: Annotated[Text, MinLen(1)]
    documents: Annotated[
        tuple[Text, ...],
        BeforeValidator(_documents, json_schema_input_type=list[str | DocumentText]),
        MinLen(1),
        MaxLen(DOCUMENTS),
    ]
    top_n: Annotated[int, Strict(), Ge(1)] | None = None  # so many are told; None: all
    return_documents: Flag = True  # their texts, too
    user: Annotated[str, Strict(), MaxLen(256)] = ""


class DocumentShown(Shape):
    """A document as it was given."""

    text: str


class Ranked(Shape):
    """A document, and how much it has to do with the query."""

    index: int
    relevance_score: float
    document: DocumentShown | None


class Ranking(Shape):
    """Of /v1/rerank, the most relevant first."""

    id: str
    object: Literal["list"] = "list"
    model: str
    results: list[Ranked]
    usage: EmbeddingUsage


class ClassifyRequest(Config):
    """Texts whose classes are asked for."""

    model: Name
    input: Annotated[tuple[Text, ...], BeforeValidator(texts, json_schema_input_type=str | list[str]), MaxLen(PROMPTS)]
    # What an embedding model is to choose from; a model with classes of its own takes none.
    labels: Annotated[tuple[Annotated[Text, MinLen(1)], ...], MaxLen(LABELS)] = ()
    user: Annotated[str, Strict(), MaxLen(256)] = ""


class ClassScore(Shape):
    """A class: its probability, the value of a regression, or the cosine between a text and the label."""

    label: str
    score: float


class Classified(Shape):
    """The classes of one text, the most probable first."""

    object: Literal["classification"] = "classification"
    index: int
    prediction: str
    score: float
    predictions: list[ClassScore]


class Classes(Shape):
    """Of /v1/classify."""

    id: str
    object: Literal["list"] = "list"
    model: str
    data: list[Classified]
    usage: EmbeddingUsage
