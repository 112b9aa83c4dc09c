"""/v1/embeddings: what an encoder makes of texts, each read by itself, so that no other text changes it."""

from __future__ import annotations

import asyncio
import base64
from functools import partial

import torch
from starlette.responses import Response

from ....pipelines import EncoderPipeline
from ..exchange import Exchange
from ..service import NamedModel, Service
from ..shapes.requests import EmbeddingRequest
from ..shapes.responses import Embedding, EmbeddingList, EmbeddingUsage
from ..wire.refusal import Refusal
from ..wire.sending import told, while_there


async def embed(exchange: Exchange[EmbeddingRequest]) -> Response:
    """The embeddings of the texts."""
    asked, served = exchange.asked, exchange.service.model(exchange.asked.model)
    return told(await while_there(exchange.request, _embedded(exchange.service, served, asked)))


async def _embedded(service: Service, served: NamedModel, asked: EmbeddingRequest) -> EmbeddingList:
    pipeline = encoder(served)
    counts = await service.prepared(lambda: [len(one.ids) for one in pipeline.tokenizer.framed_all(asked.input)])
    data = []
    for index, text in enumerate(asked.input):
        # One call of the engine's thread for each text: between them it writes for others.
        vector = await asyncio.wrap_future(service.engine.call(partial(pipeline.embed, text), model=served.name))
        data.append(Embedding(index=index, embedding=_written(vector, asked.encoding_format)))
    usage = EmbeddingUsage(prompt_tokens=sum(counts), total_tokens=sum(counts))
    return EmbeddingList(data=data, model=served.name, usage=usage)


def encoder(served: NamedModel) -> EncoderPipeline:
    """What embeds texts."""
    pipeline = served.info.pipeline
    if not isinstance(pipeline, EncoderPipeline) or "embed" not in pipeline.can:
        raise Refusal(400, f"the model {served.name} does not embed texts", "model", code="wrong_model")
    return pipeline


def _written(vector: torch.Tensor, how: str) -> list[float] | str:
    numbers = vector.detach().cpu()
    return base64.b64encode(numbers.float().numpy().tobytes()).decode() if how == "base64" else numbers.tolist()
