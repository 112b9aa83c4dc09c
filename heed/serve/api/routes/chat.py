"""/v1/chat/completions: a conversation goes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from starlette.responses import Response

from ..exchange import Exchange
from ..shapes.conversation import ChatRequest
from ..shapes.responses import (
    AnswerMessage,
    CallDelta,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatLogprobs,
    ChunkChoice,
    Delta,
    FunctionDelta,
)
from ..talk import Piece, Talk
from ..tokens import Told
from ..tools.base import Call
from ..wire.sending import WAITING, Events, event, told, while_there


async def chat(exchange: Exchange[ChatRequest]) -> Response:
    """The next message of a conversation."""
    talk = await Talk.begin(exchange, exchange.asked)
    turns = Turns(exchange.asked, talk)
    if exchange.asked.stream:
        return Events(exchange.telling(turns.stream()), exchange.service.bounds.reading)
    return told(await while_there(exchange.request, turns.whole()))


class Turns:
    """The answers as chunks of a stream, or the chunks put together."""

    def __init__(self, asked: ChatRequest, talk: Talk) -> None:
        self._asked, self._talk, self._served, self._answers = asked, talk, talk.served, talk.answers
        self._calls = [0] * len(talk.answers.all)  # that each answer has asked for

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
                if piece is not None:
                    _join(found[piece.index], piece)
        for one in found:
            if one.message.tool_calls and not one.message.content:
                one.message.content = None
        return ChatCompletion(
            id=f"chatcmpl-{self._answers.id}",
            created=self._answers.created,
            model=self._served.name,
            system_fingerprint=self._answers.service.fingerprint,
            choices=found,
            usage=self._answers.usage,
        )

    async def _choices(self) -> AsyncGenerator[ChunkChoice | None, None]:
        async with aclosing(self._talk.pieces()) as pieces:
            async for piece in pieces:
                if piece is None:
                    yield None
                    continue
                for choice in self._told(piece):
                    yield choice

    def _told(self, piece: Piece) -> Iterator[ChunkChoice]:
        """The chunks of what came: texts and calls in their order, log-probabilities with the first."""
        logprobs = self._logprobs(piece)
        for delta in self._deltas(piece):
            yield ChunkChoice(index=piece.number, delta=delta, logprobs=logprobs, finish_reason=None)
            logprobs = None
        if logprobs is not None or piece.finish is not None:
            delta = Delta() if piece.finish is not None else Delta(content="")
            yield ChunkChoice(index=piece.number, delta=delta, logprobs=logprobs, finish_reason=piece.finish)

    def _logprobs(self, piece: Piece) -> ChatLogprobs | None:
        if not self._asked.logprobs or piece.event.token is None:
            return None
        own = [Told(piece.event.token, piece.event.logprob, piece.event.top)]
        return self._served.namer.chat(own, top=self._asked.top_logprobs or 0)

    def _deltas(self, piece: Piece) -> Iterator[Delta]:
        for one in piece.said:
            if isinstance(one, str):
                yield Delta(content=one)
            else:
                yield from self._call(piece.number, one)

    def _call(self, number: int, call: Call) -> Iterator[Delta]:
        """A call: first its name, then its arguments."""
        place = self._calls[number]
        self._calls[number] += 1
        named = FunctionDelta(name=call.name, arguments="")
        yield Delta(tool_calls=[CallDelta(index=place, id=self._talk.identity(), type="function", function=named)])
        yield Delta(tool_calls=[CallDelta(index=place, function=FunctionDelta(arguments=call.arguments))])

    def _chunk(self, choices: list[ChunkChoice], *, usage: bool = False) -> ChatChunk:
        return ChatChunk(
            id=f"chatcmpl-{self._answers.id}",
            created=self._answers.created,
            model=self._served.name,
            system_fingerprint=self._answers.service.fingerprint,
            choices=choices,
            usage=self._answers.usage if usage else None,
        )


def _join(whole: ChatChoice, piece: ChunkChoice) -> None:
    whole.message.content = (whole.message.content or "") + (piece.delta.content or "")
    whole.finish_reason = piece.finish_reason or whole.finish_reason
    for call in piece.delta.tool_calls or []:
        whole.message.put(call)
    if whole.logprobs is not None and piece.logprobs is not None:
        whole.logprobs.content += piece.logprobs.content
