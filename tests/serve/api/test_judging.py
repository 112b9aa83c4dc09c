"""/v1/rerank and /v1/classify over HTTP: heads for pairs and classes, and embeddings by their cosine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from heed.pipelines import EncoderPipeline
from heed.pipelines.similarity import SimilarityPipeline
from heed.serve import Engine, Limits
from tests.pipelines.small import bert
from tests.serve.api.serving import Live, running

QUERY = "the cat"
DOCUMENTS = ["the cat sat on the mat", "dog", "the dog ran home and slept"]


@pytest.fixture(scope="module")
def encoders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, EncoderPipeline]:
    folder = tmp_path_factory.mktemp("judges")
    kind = "BertForSequenceClassification"
    found: dict[str, Any] = {
        "plain": bert(folder / "plain", "BertModel")[1],
        "pairs": bert(folder / "pairs", kind, num_labels=1)[1],
        "classes": bert(folder / "classes", kind, num_labels=3, id2label={0: "a", 1: "b", 2: "c"})[1],
    }
    plain = found["plain"]
    found["similar"] = SimilarityPipeline(plain.model, plain.tokenizer, plain.pooling, scale=(0.0, 5.0))
    return found


@pytest.fixture(scope="module")
def live(encoders: dict[str, EncoderPipeline]) -> Iterator[Live]:
    with Engine(encoders, Limits(memory=1 << 24, rows=2)) as engine, running(engine) as found:
        yield found


def cosine(model: EncoderPipeline, one: str, other: str) -> float:
    return float(torch.cosine_similarity(model.embed(one).double(), model.embed(other).double(), dim=0))


def test_documents_are_ranked_by_what_the_model_has(live: Live, encoders: dict[str, EncoderPipeline]) -> None:
    def logit(text: str) -> float:
        return float(encoders["pairs"].classify((QUERY, text))[0].probability)

    wanted = {
        "plain": [cosine(encoders["plain"], QUERY, text) for text in DOCUMENTS],
        "pairs": [float(torch.tensor(logit(text)).double().sigmoid()) for text in DOCUMENTS],
        "similar": [5 * cosine(encoders["plain"], QUERY, text) for text in DOCUMENTS],
    }
    for model, scores in wanted.items():
        body = {"model": model, "query": QUERY, "documents": [{"text": DOCUMENTS[0]}, *DOCUMENTS[1:]]}
        status, found, _ = live.ask("/v1/rerank", body)
        assert status == 200, found
        order = sorted(range(3), key=lambda place: -scores[place])
        assert [one["index"] for one in found["results"]] == order
        for one in found["results"]:
            assert one["relevance_score"] == pytest.approx(scores[one["index"]], abs=1e-6)
            assert one["document"] == {"text": DOCUMENTS[one["index"]]}
        best = live.ask("/v1/rerank", {**body, "top_n": 1, "return_documents": False})[1]["results"]
        assert best == [{**found["results"][0], "document": None}]
        alone = live.ask("/v1/rerank", {**body, "documents": [DOCUMENTS[1]]})[1]["results"][0]["relevance_score"]
        assert alone == next(one["relevance_score"] for one in found["results"] if one["index"] == 1), "the same bits"
    framed = encoders["pairs"].tokenizer.framed
    used = live.ask("/v1/rerank", {"model": "pairs", "query": QUERY, "documents": DOCUMENTS})[1]["usage"]
    assert used["prompt_tokens"] == sum(len(framed(QUERY, text).ids) for text in DOCUMENTS)


def test_classes_of_a_head(live: Live, encoders: dict[str, EncoderPipeline]) -> None:
    status, found, _ = live.ask("/v1/classify", {"model": "classes", "input": DOCUMENTS})
    assert status == 200, found
    for one, text in zip(found["data"], DOCUMENTS, strict=True):
        wanted = [{"label": two.label, "score": two.probability} for two in encoders["classes"].classify(text)]
        assert one["predictions"] == wanted
        assert (one["prediction"], one["score"]) == (wanted[0]["label"], wanted[0]["score"])


def test_labels_of_an_embedding_model(live: Live, encoders: dict[str, EncoderPipeline]) -> None:
    labels = ["cat", "dog"]
    status, found, _ = live.ask("/v1/classify", {"model": "plain", "input": "the cat sat", "labels": labels})
    assert status == 200, found
    (one,) = found["data"]
    scores = {two["label"]: two["score"] for two in one["predictions"]}
    for label in labels:
        assert scores[label] == pytest.approx(cosine(encoders["plain"], "the cat sat", label), abs=1e-6)
    assert one["prediction"] == max(scores, key=lambda label: scores[label])


WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "no documents": ("rerank", {"documents": []}, "documents"),
    "documents of nothing": ("rerank", {"documents": [1]}, "documents"),
    "a text for documents": ("rerank", {"documents": "a"}, "documents"),
    "many documents": ("rerank", {"documents": ["a"] * 1025}, "documents"),
    "no query": ("rerank", {"query": ""}, "query"),
    "none of the best": ("rerank", {"top_n": 0}, "top_n"),
    "chunks": ("rerank", {"max_chunks_per_doc": 3}, "max_chunks_per_doc"),
    "classes of a pair": ("rerank", {"model": "classes"}, "model"),
    "no such model": ("rerank", {"model": "none"}, "model"),
    "no input": ("classify", {"input": []}, "input"),
    "many labels": ("classify", {"labels": ["a"] * 129}, "labels"),
    "labels of a head": ("classify", {"labels": ["a", "b"], "model": "classes"}, "labels"),
    "no labels": ("classify", {"model": "plain"}, "labels"),
}


@pytest.mark.parametrize(("route", "fields", "param"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(live: Live, route: str, fields: dict[str, Any], param: str) -> None:
    asked: dict[str, Any] = {"query": QUERY, "documents": ["a"]} if route == "rerank" else {"input": "a"}
    status, found, _ = live.ask(f"/v1/{route}", {"model": "plain", **asked, **fields})
    assert (status, found["error"]["param"]) == (404 if fields.get("model") == "none" else 400, param)


def test_models_that_write_judge_nothing(real: Live) -> None:
    asked: dict[str, dict[str, Any]] = {"rerank": {"query": "a", "documents": ["b"]}, "classify": {"input": "a"}}
    for route, fields in asked.items():
        assert real.ask(f"/v1/{route}", {"model": "chain", **fields})[1]["error"]["code"] == "wrong_model"
