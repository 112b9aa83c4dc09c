"""/v1/completions: a text goes on, or is scored."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.responses import Response

from ....pipelines import Text2TextGeneration
from ...answer import Event
from ...request import Request
from ..answers import Answers, finish_of, sampling_of
from ..exchange import Exchange
from ..service import NamedModel
from ..shapes.requests import CompletionRequest, Prompt
from ..shapes.responses import Completion, CompletionChoice, CompletionLogprobs
from ..tokens import Told
from ..wire.refusal import Refusal
from ..wire.sending import WAITING, Events, event, told, while_there

USUAL = 16  # tokens, if nothing else is said, as OpenAI has it


async def complete(exchange: Exchange[CompletionRequest]) -> Response:
    """Continue the prompts."""
    asked, served = exchange.asked, exchange.service.model(exchange.asked.model)
    allow = await exchange.service.grammar(served, asked)
    requests = [replace(_request(exchange, served, prompt), allow=allow) for prompt in prompts_of(asked.prompt)]
    answers = await Answers.to(exchange.service, served, requests, asked.n)
    exchange.answered(answers)
    pieces = Pieces(asked, served, answers)
    if asked.stream:
        return Events(exchange.telling(pieces.stream()), exchange.service.bounds.reading)
    return told(await while_there(exchange.request, pieces.whole()))


def prompts_of(given: Prompt) -> list[str | tuple[int, ...]]:
    """Each prompt: a text, or ids."""
    if isinstance(given, str):
        return [given]
    found: Any = given  # its first item tells of which kind all are
    return [found] if isinstance(found[0], int) else list(found)


def _request(exchange: Exchange[CompletionRequest], served: NamedModel, prompt: str | tuple[int, ...]) -> Request:
    asked, seq2seq = exchange.asked, isinstance(served.pipeline, Text2TextGeneration)
    if seq2seq and asked.echo:
        raise Refusal(400, f"{served.name} answers a source, which is no part of the answer: echo cannot be", "echo")
    return Request(
        prompt=() if seq2seq else prompt,
        source=prompt if seq2seq else None,
        model=served.name,
        max_new_tokens=USUAL if asked.max_tokens is None else asked.max_tokens,  # 0: the prompt is scored
        sampling=sampling_of(asked, served.pipeline.strategy),
        ends=() if asked.ignore_eos else None,
        stop=asked.stop,
        logit_bias=asked.logit_bias,
        frequency_penalty=asked.frequency_penalty,
        presence_penalty=asked.presence_penalty,
        logprobs=asked.logprobs,
        prompt_logprobs=asked.logprobs if asked.echo else None,
        owner=exchange.owner_of(asked.user),
        deadline=exchange.service.bounds.answering,
    )


class Pieces:
    """The answers as chunks of a stream, or the chunks put together: both ways read the same."""

    def __init__(self, asked: CompletionRequest, served: NamedModel, answers: Answers) -> None:
        self._asked, self._served, self._answers = asked, served, answers
        self._offsets: dict[int, int] = {}  # characters of an answer so far

    async def stream(self) -> AsyncGenerator[str, None]:
        """The events of a stream."""
        async with aclosing(self._chunks()) as chunks:
            async for choice in chunks:
                yield WAITING if choice is None else event(self._body([choice]))
        if self._asked.stream_options is not None and self._asked.stream_options.include_usage:
            yield event(self._body([], usage=True))

    async def whole(self) -> Completion:
        """The whole response."""
        choices = [
            CompletionChoice(index=number, text="", logprobs=None, finish_reason=None)
            for number in range(len(self._answers.all))
        ]
        async with aclosing(self._chunks()) as chunks:
            async for piece in chunks:
                if piece is not None:
                    _join(choices[piece.index], piece)
        return self._body(choices, usage=True)

    async def _chunks(self) -> AsyncGenerator[CompletionChoice | None, None]:
        async with aclosing(self._answers.events()) as events:
            async for came in events:
                if came is None:
                    yield None
                    continue
                number, event = came
                if number not in self._offsets and self._asked.echo:
                    yield await self._echoed(number, event)
                if (piece := self._piece(number, event)) is not None:
                    yield piece

    async def _echoed(self, number: int, event: Event) -> CompletionChoice:
        """The prompt, with its log-probabilities if they were asked for."""
        ids, given = self._answers.all[number].prompt, prompts_of(self._asked.prompt)[number // self._asked.n]
        engine, name = self._answers.service.engine, self._served.name
        decoded = partial(engine.detokenize, list(ids), model=name)
        text = given if isinstance(given, str) else await self._answers.service.prepared(decoded)
        known = event.prompt_logprobs or (None,) * len(ids)
        tokens = [
            Told(index, None if one is None else one[0], () if one is None else one[1])
            for index, one in zip(ids, known, strict=True)
        ]
        logprobs = None if event.prompt_logprobs is None else self._named(tokens, 0)
        self._offsets[number] = len(text)
        return CompletionChoice(index=number, text=text, logprobs=logprobs, finish_reason=None)

    def _piece(self, number: int, event: Event) -> CompletionChoice | None:
        finish, logprobs, begin = finish_of(event), None, self._offsets.get(number, 0)
        if self._asked.logprobs is not None and event.token is not None:
            logprobs = self._named([Told(event.token, event.logprob, event.top)], begin)
        self._offsets[number] = begin + len(event.text)
        if not event.text and logprobs is None and finish is None:
            return None
        return CompletionChoice(index=number, text=event.text, logprobs=logprobs, finish_reason=finish)

    def _named(self, tokens: list[Told], begin: int) -> CompletionLogprobs:
        return self._served.namer.completion(tokens, begin, top=self._asked.logprobs or 0)

    def _body(self, choices: list[CompletionChoice], *, usage: bool = False) -> Completion:
        return Completion(
            id=f"cmpl-{self._answers.id}",
            created=self._answers.created,
            model=self._served.name,
            system_fingerprint=self._answers.service.fingerprint,
            choices=choices,
            usage=self._answers.usage if usage else None,
        )


def _join(whole: CompletionChoice, piece: CompletionChoice) -> None:
    whole.text += piece.text
    whole.finish_reason = piece.finish_reason or whole.finish_reason
    if piece.logprobs is None:
        return
    if whole.logprobs is None:
        whole.logprobs = piece.logprobs
        return
    whole.logprobs.tokens += piece.logprobs.tokens
    whole.logprobs.token_logprobs += piece.logprobs.token_logprobs
    whole.logprobs.text_offset += piece.logprobs.text_offset
    if whole.logprobs.top_logprobs is not None and piece.logprobs.top_logprobs is not None:
        whole.logprobs.top_logprobs += piece.logprobs.top_logprobs
