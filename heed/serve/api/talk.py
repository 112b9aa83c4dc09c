"""A conversation that goes on: rendered by the model's template, answered, and taken apart into text and tool calls.

/v1/chat/completions and /v1/responses tell the same talk in two shapes.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple

from ...core.errors import InputError
from ..answer import Event
from ..request import Request
from .answers import Answers, finish_of, sampling_of
from .exchange import Exchange
from .service import NamedModel, Service
from .shapes.conversation import ChatRequest, Messages, Tools, as_templates_take
from .shapes.responses import Finish
from .tools import format_of
from .tools.base import Call, CallReader, Said, ToolFormat, Wanted, quoted
from .wire.refusal import Refusal


class Piece(NamedTuple):
    """What came of one answer."""

    number: int  # of the answer
    said: list[Said]
    event: Event
    finish: Finish | None


class Talk:
    """The answers to a conversation, piece by piece."""

    def __init__(self, served: NamedModel, answers: Answers, calls: Calls | None) -> None:
        self.served, self.answers, self._calls = served, answers, calls
        self._readers = [None if calls is None else calls.reader() for _ in answers.all]
        self._called = [0] * len(answers.all)

    @classmethod
    async def begin(cls, exchange: Exchange[Any], asked: ChatRequest) -> Talk:
        """Have it answered."""
        service = exchange.service
        served = service.model(asked.model)
        calls = Calls.of(served, asked) if asked.callable else None
        ids = await rendered(service, served, asked.messages, () if asked.tool_choice == "none" else asked.tools)
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
            frequency_penalty=asked.frequency_penalty,
            presence_penalty=asked.presence_penalty,
            allow=await service.grammar(served, asked, "" if calls is None else calls.grammar()),
            logprobs=(asked.top_logprobs or 0) if asked.logprobs else None,
            owner=exchange.owner_of(asked.user),
            deadline=service.bounds.answering,
        )
        answers = await Answers.to(service, served, [request], asked.n)
        exchange.answered(answers)
        return cls(served, answers, calls)

    def identity(self) -> str:
        """A new name for a call."""
        assert self._calls is not None  # or there would be none
        return self._calls.format.identity()

    async def pieces(self) -> AsyncGenerator[Piece | None, None]:
        """What comes; None when nothing came for a while."""
        async with aclosing(self.answers.events()) as events:
            async for came in events:
                yield None if came is None else self._piece(*came)

    def _piece(self, number: int, event: Event) -> Piece:
        reader, finish = self._readers[number], finish_of(event)
        if reader is None or self._calls is None:
            return Piece(number, [event.text] if event.text else [], event, finish)
        text = self._calls.mark_of(event.token) + event.text
        said = reader.push(text) + (reader.finish() if finish is not None else [])
        said = [one for one in said if isinstance(one, str) or self._takes(number)]
        if finish == "stop" and self._called[number]:
            finish = "tool_calls"
        return Piece(number, said, event, finish)

    def _takes(self, number: int) -> bool:
        """Whether one more call is told."""
        assert self._calls is not None
        self._called[number] += 1
        return self._calls.wanted.several or self._called[number] == 1


class Calls:
    """The calls that a model may ask for in an answer, and how it writes them."""

    def __init__(self, served: NamedModel, format_: type[ToolFormat], wanted: Wanted) -> None:
        self.format, self.wanted = format_, wanted
        self._marks = {index: mark for mark in format_.marks if (index := served.namer.special(mark)) is not None}

    @classmethod
    def of(cls, served: NamedModel, asked: ChatRequest) -> Calls:
        """Those of a request; a refusal where the model's template knows no tools."""
        chat = served.pipeline.tokenizer.chat
        found = None if chat is None else format_of(chat.template if chat.tooled is None else chat.tooled)
        if found is None:
            raise Refusal(
                400,
                f"the chat template of {served.name} knows no tools, or writes calls in a way that is not known here",
                "tools",
                code="wrong_model",
            )
        one = asked.forced is not None or not asked.parallel_tool_calls
        return cls(served, found, Wanted(asked.callable, asked.must_call, not one))

    def grammar(self) -> str:
        """The grammar of the answer; "" where none has to be kept."""
        if not self.wanted.enforced:
            return ""
        ids = {mark: index for index, mark in self._marks.items()}
        return self.format.grammar(self.wanted, lambda mark: f"<[{ids[mark]}]>" if mark in ids else quoted(mark))

    def reader(self) -> CallReader:
        """What takes one answer apart."""
        return self.format.reader([tool.name for tool in self.wanted.tools])

    def mark_of(self, token: int | None) -> str:
        """The marker that a token is: special tokens have no text otherwise."""
        return "" if token is None else self._marks.get(token, "")


async def rendered(service: Service, served: NamedModel, messages: Messages, tools: Tools = ()) -> list[int]:
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
    plain, told = as_templates_take(messages, template), [tool.plain() for tool in tools] or None
    try:
        return await service.prepared(partial(tokenizer.prompt, plain, tools=told), template=True)
    except InputError as error:
        raise Refusal(400, str(error), "messages") from None


def texts_in(said: list[Said]) -> str:
    """The text in what was said."""
    return "".join(one for one in said if isinstance(one, str))


def calls_in(said: list[Said]) -> list[Call]:
    """The calls in it."""
    return [one for one in said if not isinstance(one, str)]
