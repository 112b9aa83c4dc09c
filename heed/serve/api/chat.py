"""/v1/chat/completions: a conversation goes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial

from starlette.responses import Response

from ..answer import Event
from ..request import Request
from .answers import Answers, finish_of, sampling_of
from .exchange import Exchange
from .service import NamedModel, Service
from .shapes.requests import ChatMessage, ChatRequest, developer_as_system
from .shapes.responses import (
    AnswerMessage,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatLogprobs,
    ChunkChoice,
    Delta,
)
from .tokens import Told
from .wire.refusal import Refusal
from .wire.sending import WAITING, Events, event, told, while_there


async def chat(exchange: Exchange[ChatRequest]) -> Response:
    """The next message of a conversation."""
    asked, served = exchange.asked, exchange.service.model(exchange.asked.model)
    ids = await rendered(exchange.service, served, asked.messages)
    most = asked.max_tokens if asked.max_completion_tokens is None else asked.max_completion_tokens
    if most == 0:
        raise Refusal(400, "max_tokens is 0; an answer has at least one token", "max_tokens")
    request = Request(
        prompt=ids,
        model=served.name,
        max_new_tokens=most,
        sampling=sampling_of(asked, served.pipeline.strategy),
        ends=() if asked.ignore_eos else None,
        stop=asked.stop,
        logit_bias=asked.logit_bias,
        allow=await exchange.service.grammar(served, asked),
        logprobs=(asked.top_logprobs or 0) if asked.logprobs else None,
        owner=exchange.owner_of(asked.user),
        deadline=exchange.service.bounds.answering,
    )
    answers = await Answers.to(exchange.service, served, [request], asked.n)
    exchange.answered(answers)
    turns = Turns(asked, served, answers)
    if asked.stream:
        return Events(exchange.telling(turns.stream()), exchange.service.bounds.reading)
    return told(await while_there(exchange.request, turns.whole()))


async def rendered(service: Service, served: NamedModel, messages: tuple[ChatMessage, ...]) -> list[int]:
    """The ids of a conversation, by the model's own template."""
    if not served.chats:
        raise Refusal(
            400,
            f"{served.name} has no chat template, so it was not trained to chat; /v1/completions continues a text",
            "model",
            code="wrong_model",
        )
    tokenizer = served.pipeline.tokenizer
    template = "" if tokenizer.chat is None else tokenizer.chat.template
    plain = developer_as_system(messages, template)
    return await service.prepared(partial(tokenizer.prompt, plain), template=True)


class Turns:
    """The answers as chunks of a stream, or the chunks put together."""

    def __init__(self, asked: ChatRequest, served: NamedModel, answers: Answers) -> None:
        self._asked, self._served, self._answers = asked, served, answers

    async def stream(self) -> AsyncGenerator[str, None]:
        """The events of a stream. Each answer begins with its role."""
        for number in range(len(self._answers.all)):
            role = Delta(role="assistant", content="")
            yield event(self._chunk([ChunkChoice(index=number, delta=role, logprobs=None, finish_reason=None)]))
        async with aclosing(self._choices()) as choices:
            async for choice in choices:
                yield WAITING if choice is None else event(self._chunk([choice]))
        if self._asked.stream_options is not None and self._asked.stream_options.include_usage:
            yield event(self._chunk([], usage=True))

    async def whole(self) -> ChatCompletion:
        """The whole response."""
        found: list[ChatChoice] = []
        for number in range(len(self._answers.all)):
            logprobs = ChatLogprobs(content=[]) if self._asked.logprobs else None
            message = AnswerMessage(content="")
            found.append(ChatChoice(index=number, message=message, logprobs=logprobs, finish_reason="stop"))
        async with aclosing(self._choices()) as choices:
            async for piece in choices:
                if piece is None:
                    continue
                own = found[piece.index]
                own.message.content += piece.delta.content or ""
                own.finish_reason = piece.finish_reason or own.finish_reason
                if own.logprobs is not None and piece.logprobs is not None:
                    own.logprobs.content += piece.logprobs.content
        return ChatCompletion(
            id=f"chatcmpl-{self._answers.id}",
            created=self._answers.created,
            model=self._served.name,
            system_fingerprint=self._answers.service.fingerprint,
            choices=found,
            usage=self._answers.usage,
        )

    async def _choices(self) -> AsyncGenerator[ChunkChoice | None, None]:
        async with aclosing(self._answers.events()) as events:
            async for came in events:
                if came is None:
                    yield None
                elif (piece := self._piece(*came)) is not None:
                    yield piece

    def _piece(self, number: int, event: Event) -> ChunkChoice | None:
        finish, logprobs = finish_of(event), None
        if self._asked.logprobs and event.token is not None:
            own = [Told(event.token, event.logprob, event.top)]
            logprobs = self._served.namer.chat(own, top=self._asked.top_logprobs or 0)
        if not event.text and logprobs is None and finish is None:
            return None
        delta = Delta(content=event.text) if event.text or finish is None else Delta()
        return ChunkChoice(index=number, delta=delta, logprobs=logprobs, finish_reason=finish)

    def _chunk(self, choices: list[ChunkChoice], *, usage: bool = False) -> ChatChunk:
        return ChatChunk(
            id=f"chatcmpl-{self._answers.id}",
            created=self._answers.created,
            model=self._served.name,
            system_fingerprint=self._answers.service.fingerprint,
            choices=choices,
            usage=self._answers.usage if usage else None,
        )
