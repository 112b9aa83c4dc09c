"""/v1/responses: a conversation goes on, told in items and in events of many kinds. Nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from ....core.errors import HeedError
from ..exchange import Exchange
from ..shapes.responding import (
    Answered,
    Failure,
    Incomplete,
    InputDetails,
    OutputCall,
    OutputMessage,
    OutputText,
    ResponsesRequest,
    ResponseUsage,
    StreamEvent,
)
from ..talk import Talk
from ..tools.base import Call
from ..wire.refusal import refusal_of
from ..wire.sending import WAITING, Events, told, while_there


async def respond(exchange: Exchange[ResponsesRequest]) -> Response:
    """What follows a conversation, or a text of a user."""
    talk = await Talk.begin(exchange, exchange.asked.chat())
    reply = Reply(exchange, talk)
    if exchange.asked.stream:
        return Events(reply.stream(), exchange.service.bounds.reading, done="")
    return told(await while_there(exchange.request, reply.whole()))


class Reply:
    """The events of an answer; the whole answer is the last of them."""

    def __init__(self, exchange: Exchange[ResponsesRequest], talk: Talk) -> None:
        self._exchange, self._asked, self._talk = exchange, exchange.asked, talk
        self._output = list[OutputMessage | OutputCall]()
        self._open: OutputMessage | None = None  # the text that is being written
        self._count = 0  # events

    async def stream(self) -> AsyncGenerator[str, None]:
        """The events as they are sent; what goes wrong is one of them, as the status has been sent."""
        try:
            async with aclosing(self._events()) as events:
                async for one in events:
                    yield WAITING if one is None else _written(one)
        except HeedError as error:
            self._exchange.failure = error
            refusal = refusal_of(error)
            failed = self._answered("failed")
            failed.error = Failure(code=refusal.code or "server_error", message=str(refusal.data()["error"]["message"]))
            yield _written(self._event("response.failed", response=failed))

    async def whole(self) -> Answered:
        """The whole response."""
        last: Answered | None = None
        async with aclosing(self._events()) as events:
            async for one in events:
                last = last if one is None or one.response is None else one.response
        assert last is not None  # the stream begins with one
        return last

    async def _events(self) -> AsyncGenerator[StreamEvent | None, None]:
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._answered("in_progress"))
        cut = False
        async with aclosing(self._talk.pieces()) as pieces:
            async for piece in pieces:
                if piece is None:
                    yield None
                    continue
                cut = piece.finish == "length"
                for said in piece.said:
                    for one in self._texts(said) if isinstance(said, str) else self._call(said):
                        yield one
        for one in self._closed(whole=not cut):
            yield one
        answered = self._answered("incomplete" if cut else "completed")
        answered.usage = self._usage()
        if cut:
            answered.incomplete_details = Incomplete(reason="max_output_tokens")
        yield self._event(f"response.{answered.status}", response=answered)

    def _texts(self, text: str) -> Iterator[StreamEvent]:
        """A piece of text, which may begin a message."""
        if self._open is None:
            self._open = OutputMessage(id=self._name("msg"), status="in_progress", content=[])
            self._output.append(self._open)
            yield self._item("response.output_item.added", self._open)
            self._open.content.append(OutputText(text=""))
            yield self._part("response.content_part.added", self._open)
        self._open.content[0].text += text
        yield self._part("response.output_text.delta", self._open, delta=text, logprobs=[], part=None)

    def _closed(self, *, whole: bool = True) -> Iterator[StreamEvent]:
        """The text ends here."""
        if self._open is None:
            return
        item, self._open = self._open, None
        item.status = "completed" if whole else "incomplete"
        yield self._part("response.output_text.done", item, text=item.content[0].text, logprobs=[], part=None)
        yield self._part("response.content_part.done", item)
        yield self._item("response.output_item.done", item)

    def _call(self, call: Call) -> Iterator[StreamEvent]:
        """A call: its name, then its arguments."""
        yield from self._closed()
        item = OutputCall(
            id=self._name("fc"), call_id=self._talk.identity(), name=call.name, arguments="", status="in_progress"
        )
        self._output.append(item)
        yield self._item("response.output_item.added", item)
        where: dict[str, Any] = {"item_id": item.id, "output_index": len(self._output) - 1}
        item.arguments, item.status = call.arguments, "completed"
        kind = "response.function_call_arguments"
        yield self._event(f"{kind}.delta", **where, delta=call.arguments)
        yield self._event(f"{kind}.done", **where, name=call.name, arguments=call.arguments)
        yield self._item("response.output_item.done", item)

    def _item(self, kind: str, item: OutputMessage | OutputCall) -> StreamEvent:
        return self._event(kind, output_index=len(self._output) - 1, item=item.model_copy(deep=True))

    def _part(self, kind: str, item: OutputMessage, **fields: Any) -> StreamEvent:
        where = {"item_id": item.id, "output_index": len(self._output) - 1, "content_index": 0}
        return self._event(kind, **{**where, "part": item.content[0].model_copy(), **fields})

    def _event(self, kind: str, **fields: Any) -> StreamEvent:
        self._count += 1
        return StreamEvent(type=kind, sequence_number=self._count - 1, **fields)

    def _name(self, kind: str) -> str:
        return f"{kind}_{self._talk.answers.id}{len(self._output)}"

    def _usage(self) -> ResponseUsage:
        usage = self._talk.answers.usage
        return ResponseUsage(
            input_tokens=usage.prompt_tokens,
            input_tokens_details=InputDetails(cached_tokens=usage.prompt_tokens_details.cached_tokens),
            output_tokens=usage.completion_tokens,
            total_tokens=usage.total_tokens,
        )

    def _answered(self, status: Any) -> Answered:
        asked, answers = self._asked, self._talk.answers
        chosen = asked.tool_choice
        return Answered(
            id=f"resp_{answers.id}",
            created_at=answers.created,
            status=status,
            model=self._talk.served.name,
            output=[item.model_copy(deep=True) for item in self._output],
            instructions=asked.instructions,
            max_output_tokens=asked.max_output_tokens,
            temperature=asked.temperature,
            top_p=asked.top_p,
            text=asked.text.model_dump(by_alias=True, exclude_none=True),
            tools=[tool.model_dump() for tool in asked.tools],
            tool_choice=chosen if isinstance(chosen, str) else chosen.model_dump(),
            parallel_tool_calls=asked.parallel_tool_calls,
            user=asked.user or None,
        )


def _written(one: StreamEvent) -> str:
    """An event with its name before it, as OpenAI's client reads them; what it does not tell is left out."""
    kept = {name for name in type(one).model_fields if getattr(one, name) is not None}
    return f"event: {one.type}\ndata: {one.model_dump_json(include=kept)}\n\n"
