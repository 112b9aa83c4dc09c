"""/v1/embeddings over HTTP, by the engine that `heed serve` has, beside a model that writes."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heed.pipelines import EncoderPipeline, TextGeneration
from heed.serve import Engine, Limits
from tests.pipelines.small import bert, t5
from tests.serve.api.serving import Live, running

TEXTS = ["the cat sat on the mat", "dog", "the dog ran home and slept"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> EncoderPipeline:
    found = bert(tmp_path_factory.mktemp("bert") / "model", "BertModel")[1]
    assert isinstance(found, EncoderPipeline)
    return found


@pytest.fixture(scope="module")
def both(encoder: EncoderPipeline, pipeline: TextGeneration) -> Iterator[Live]:
    with (
        Engine({"bert": encoder, "chain": pipeline}, Limits(memory=1 << 26, rows=4)) as engine,
        running(engine) as live,
    ):
        yield live


def test_embeddings_are_those_of_the_model(both: Live, encoder: EncoderPipeline) -> None:
    status, found, _ = both.ask("/v1/embeddings", {"model": "bert", "input": TEXTS})
    assert status == 200, found
    for one, text in zip(found["data"], TEXTS, strict=True):
        assert one["embedding"] == encoder.embed(text).tolist(), "the same bits as alone"
    assert found["usage"]["prompt_tokens"] == sum(len(encoder.tokenizer.framed(text).ids) for text in TEXTS)
    alone = both.ask("/v1/embeddings", {"model": "bert", "input": TEXTS[1]})[1]
    assert alone["data"][0]["embedding"] == found["data"][1]["embedding"]


def test_openai_asks_for_base64(both: Live, encoder: EncoderPipeline) -> None:
    openai: Any = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{both.url}/v1", api_key="none", max_retries=0) as client:
        found = client.embeddings.create(model="bert", input=TEXTS)
    assert np.allclose(found.data[2].embedding, encoder.embed(TEXTS[2]).float().tolist(), atol=0)
    raw = both.ask("/v1/embeddings", {"model": "bert", "input": "dog", "encoding_format": "base64"})[1]
    numbers = np.frombuffer(base64.b64decode(raw["data"][0]["embedding"]), np.float32)
    assert numbers.tolist() == encoder.embed("dog").float().tolist()


@pytest.mark.parametrize(
    "fields", [{"input": []}, {"input": [1, 2]}, {"input": ["a"] * 129}, {"dimensions": 8}, {"encoding_format": "int8"}]
)
def test_what_is_wrong_is_refused(both: Live, fields: dict[str, Any]) -> None:
    status, found, _ = both.ask("/v1/embeddings", {"model": "bert", "input": "dog", **fields})
    assert (status, found["error"]["param"]) == (400, next(iter(fields)))


def test_models_do_what_they_can(both: Live) -> None:
    assert both.ask("/v1/embeddings", {"model": "chain", "input": "dog"})[1]["error"]["code"] == "wrong_model"
    writing: dict[str, dict[str, Any]] = {
        "completions": {"prompt": "a"},
        "chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    }
    for path, asked in writing.items():
        status, found, _ = both.ask(f"/v1/{path}", {"model": "bert", **asked})
        assert (status, found["error"]["code"]) == (400, "wrong_model")
    assert [card["id"] for card in both.ask("/v1/models")[1]["data"]] == ["bert", "chain"]
    assert both.ask("/metrics")[0] == 200


def test_an_encoder_decoder_answers_a_source(tmp_path: Path) -> None:
    pipeline = t5(tmp_path / "t5")[1]
    with Engine({"t5": pipeline}, Limits(memory=1 << 26, rows=4)) as engine, running(engine) as live:
        asked = {"model": "t5", "prompt": TEXTS, "max_tokens": 6, "temperature": 0}
        status, found, _ = live.ask("/v1/completions", asked)
        assert status == 200, found
        wanted = [pipeline.generate(text, max_new_tokens=6, temperature=0) for text in TEXTS]
        assert [one["text"] for one in found["choices"]] == wanted
        assert live.ask("/v1/completions", {**asked, "echo": True})[1]["error"]["param"] == "echo"
