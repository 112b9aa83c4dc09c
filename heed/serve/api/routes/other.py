"""The routes that generate nothing: models, tokens, health, metrics, the description."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.responses import Response

from ....pipelines import TextGeneration
from ..exchange import Exchange
from ..service import NamedModel
from ..shapes.conversation import TokenizeRequest
from ..shapes.requests import DetokenizeRequest
from ..shapes.responses import DetokenizeResponse, ModelCard, ModelList, Status, TokenizeResponse
from ..talk import rendered
from ..wire.metrics import TYPE
from ..wire.sending import told


async def models(exchange: Exchange[None]) -> Response:
    """All models."""
    return told(ModelList(data=[card(served) for served in exchange.service.models.values()]))


async def model(exchange: Exchange[None]) -> Response:
    """One model."""
    return told(card(exchange.service.model(exchange.request.path_params["model"])))


def card(served: NamedModel) -> ModelCard:
    """What is told of a model."""
    info = served.info
    can = () if info.pipeline is None else info.pipeline.can
    return ModelCard(
        id=served.name,
        created=served.created,
        parent=served.parent,
        can=list(can),
        max_model_len=info.context,
        exact=bool(info.exact),
    )


async def tokenize(exchange: Exchange[TokenizeRequest]) -> Response:
    """The ids of a text or of a conversation."""
    asked, served = exchange.asked, exchange.service.model(exchange.asked.model)
    if asked.messages is not None:
        ids = await rendered(exchange.service, served, asked.messages, asked.tools)
    else:
        framed = asked.add_special_tokens and isinstance(served.pipeline, TextGeneration)
        work = partial(exchange.service.engine.tokenize, asked.prompt or "", model=served.name, framed=framed)
        ids = await exchange.service.prepared(work)
    return told(TokenizeResponse(count=len(ids), max_model_len=served.info.context, tokens=ids))


async def detokenize(exchange: Exchange[DetokenizeRequest]) -> Response:
    """The text of ids."""
    asked, served = exchange.asked, exchange.service.model(exchange.asked.model)
    text = await exchange.service.prepared(
        partial(exchange.service.engine.detokenize, list(asked.tokens), model=served.name)
    )
    return told(DetokenizeResponse(prompt=text))


async def health(exchange: Exchange[None]) -> Response:
    """Whether the engine lives. This alone needs no key."""
    alive = exchange.service.engine.health().alive
    return told(Status(status="ok" if alive else "failed"), 200 if alive else 503)


async def ready(exchange: Exchange[None]) -> Response:
    """Whether requests are taken."""
    if not exchange.service.engine.health().alive:
        return told(Status(status="failed"), 503)
    draining = exchange.service.draining
    return told(Status(status="draining" if draining else "ok"), 503 if draining else 200)


async def metrics(exchange: Exchange[None]) -> Response:
    """For Prometheus."""
    found = exchange.service.metrics
    for name, statistics in exchange.service.engine.statistics().items():
        for gauge, what in GAUGES.items():
            found.gauge(gauge, what, name, float(getattr(statistics, gauge)))
    return Response(await asyncio.to_thread(found.text), media_type=TYPE)


GAUGES = {  # of the engine's statistics
    "waiting": "Requests that wait.",
    "running": "Requests that are read or written.",
    "preempted": "Requests that were put off for want of memory, since the start.",
    "bytes_used": "Bytes of state that are in use.",
    "bytes_budget": "Bytes of state that there are.",
    "prefix_bytes": "Bytes of state that are kept for prompts that begin alike.",
    "ticks": "Steps of the engine, since the start.",
    "tick_seconds": "Seconds of them.",
}


async def openapi(exchange: Exchange[None]) -> Response:
    """The description of the API."""
    from ..app import ROUTES  # the table that this function is in
    from ..shapes.openapi import described
    from ..wire.sending import plain

    return plain(described(ROUTES, exchange.service.version, keyed=bool(exchange.service.guard.keys.owners)))
