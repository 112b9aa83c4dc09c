"""/v1/responses, typed: what may be asked, what is answered, and the events of its stream. Nothing is stored."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic import BeforeValidator, Discriminator, Field, Strict, Tag, model_validator

from ....core.config import Config, Flag, Seed
from .conversation import (
    MESSAGES,
    PARTS,
    TOOLS,
    Arguments,
    CalledFunction,
    CallId,
    ChatMessage,
    ChatRequest,
    ChosenName,
    ChosenTool,
    Function,
    TextPart,
    Tool,
    ToolCall,
    ToolName,
    without_nulls_in,
)
from .requests import IDS, JsonSchema, Name, ResponseFormat, Text, small
from .responses import Shape

KINDS = ("message", "function_call", "function_call_output")  # of items
NEEDED = "a text or a list of items is needed"
ItemId = Annotated[str, Strict(), MaxLen(128)]
ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class InputPart(Config):
    """A piece of a message: of a user, or of an answer as it was told."""

    type: Literal["input_text", "output_text"]
    text: Text
    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()


Parts: TypeAlias = Annotated[tuple[InputPart, ...], MinLen(1), MaxLen(PARTS)]


class InputMessage(Config):
    """What was said."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: Text | Parts
    id: ItemId | None = None  # nothing is stored, so it is not looked at
    status: ItemStatus | None = None

    def chat(self) -> ChatMessage:
        """The same as chats have it."""
        if isinstance(self.content, str):
            return ChatMessage(role=self.role, content=self.content)
        return ChatMessage(
            role=self.role, content=tuple(TextPart(type="text", text=part.text) for part in self.content)
        )


class InputCall(Config):
    """A call that the model asked for."""

    type: Literal["function_call"]
    call_id: CallId
    name: ToolName
    arguments: Arguments
    id: ItemId | None = None
    status: ItemStatus | None = None

    def chat(self) -> ToolCall:
        """The same as chats have it."""
        return ToolCall(id=self.call_id, function=CalledFunction(name=self.name, arguments=self.arguments))


class CallOutput(Config):
    """What a tool gave."""

    type: Literal["function_call_output"]
    call_id: CallId
    output: Text | Parts
    id: ItemId | None = None
    status: ItemStatus | None = None

    def chat(self) -> ChatMessage:
        """The same as chats have it."""
        text = self.output if isinstance(self.output, str) else "".join(part.text for part in self.output)
        return ChatMessage(role="tool", tool_call_id=self.call_id, content=text)


def _kind(value: Any) -> str:
    found = value.get("type") or "message" if isinstance(value, dict) else value.type
    return found if found in KINDS else ""


def _items(value: Any) -> Any:
    """A text alone is what the user says; the kinds of items are told apart here, by name."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(NEEDED)
    for one in value:
        if isinstance(one, dict) and not _kind(one):
            kind = str(one["type"])[:80]
            raise ValueError(f"items of the type {kind!r} are not supported; there are {', '.join(KINDS)}")
    if all(isinstance(one, dict | Config) for one in value):
        return [without_nulls_in(one) for one in value]
    raise ValueError(NEEDED)


Item: TypeAlias = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[InputCall, Tag("function_call")]
    | Annotated[CallOutput, Tag("function_call_output")],
    Discriminator(_kind),
]


class TextForm(Config):
    """The form of an answer's text."""

    type: Literal["text", "json_object", "json_schema"]
    name: Annotated[str, Strict(), MaxLen(64)] = ""
    description: Annotated[str, Strict(), MaxLen(4096)] = ""
    schema_: Annotated[dict[str, Any], BeforeValidator(small)] | None = Field(default=None, alias="schema")
    strict: Flag = True  # schemas are followed, whatever is said here

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return without_nulls_in(value)

    @model_validator(mode="after")
    def _schema_for_its_type(self) -> Self:
        if (self.type == "json_schema") != (self.schema_ is not None):
            raise ValueError("schema goes with type: json_schema")
        return self


class TextSettings(Config):
    """How the text is written."""

    format: TextForm = TextForm(type="text")


class FlatTool(Function):
    """A tool, as this API has it: all in one table."""

    type: Literal["function"]

    def chat(self) -> Tool:
        """The same as chats have it."""
        own = Function(name=self.name, description=self.description, parameters=self.parameters, strict=self.strict)
        return Tool(type="function", function=own)


class FlatChoice(Config):
    """The tool that must be called."""

    type: Literal["function"]
    name: ToolName


class ResponsesRequest(Config):
    """A conversation to be continued. Nothing of it is stored."""

    model: Name
    input: Annotated[
        tuple[Item, ...], BeforeValidator(_items, json_schema_input_type=str | list[Item]), MaxLen(MESSAGES)
    ]
    instructions: Text | None = None  # said before all else, by the developer
    max_output_tokens: Annotated[int, Strict(), Ge(1), Le(IDS)] | None = None
    temperature: Annotated[float, Strict(), Ge(0), Le(100)] | None = None
    top_p: Annotated[float, Strict(), Gt(0), Le(1)] | None = None
    seed: Seed | None = None  # which OpenAI has not here
    stream: Flag = False
    text: TextSettings = TextSettings()
    tools: Annotated[tuple[FlatTool, ...], MaxLen(TOOLS)] = ()
    tool_choice: Literal["none", "auto", "required"] | FlatChoice = "auto"
    parallel_tool_calls: Flag = True
    user: Annotated[str, Strict(), MaxLen(256)] = ""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        self.chat()
        return self

    def chat(self) -> ChatRequest:
        """The same as /v1/chat/completions is asked."""
        chosen, form = self.tool_choice, self.text.format
        named = None if isinstance(chosen, str) else ChosenTool(type="function", function=ChosenName(name=chosen.name))
        schema = None if form.schema_ is None else JsonSchema.load({"name": form.name, "schema": form.schema_})
        return ChatRequest(
            model=self.model,
            messages=self._messages(),
            max_completion_tokens=self.max_output_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            stream=self.stream,
            response_format=None if form.type == "text" else ResponseFormat(type=form.type, json_schema=schema),
            tools=tuple(tool.chat() for tool in self.tools),
            tool_choice=chosen if isinstance(chosen, str) else named,
            parallel_tool_calls=self.parallel_tool_calls,
            user=self.user,
        )

    def _messages(self) -> tuple[ChatMessage, ...]:
        """Calls that follow one another, or a text of the assistant, are one message."""
        found = [] if self.instructions is None else [ChatMessage(role="developer", content=self.instructions)]
        for item in self.input:
            if not isinstance(item, InputCall):
                found.append(item.chat())
                continue
            last = found[-1] if found and found[-1].role == "assistant" else None
            calls = (*(last.tool_calls if last is not None else ()), item.chat())
            if last is not None:
                found.pop()
            content = None if last is None else last.content
            found.append(ChatMessage(role="assistant", content=content, tool_calls=calls))
        return tuple(found)


# --- answers ---


class OutputText(Shape):
    """The text of an answer."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[None] = Field(default_factory=list)
    logprobs: list[None] = Field(default_factory=list)


class OutputMessage(Shape):
    """An answer's text."""

    type: Literal["message"] = "message"
    id: str
    status: ItemStatus
    role: Literal["assistant"] = "assistant"
    content: list[OutputText]


class OutputCall(Shape):
    """A call that an answer asks for."""

    type: Literal["function_call"] = "function_call"
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


class InputDetails(Shape):
    """Of what was read."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(Shape):
    """Of what was written."""

    reasoning_tokens: int = 0


class ResponseUsage(Shape):
    """How many tokens were read and written."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails = OutputDetails()
    total_tokens: int


class Incomplete(Shape):
    """Why an answer is not whole."""

    reason: Literal["max_output_tokens"]


class Failure(Shape):
    """Why there is no answer."""

    code: str
    message: str


class Answered(Shape):
    """Of /v1/responses. What was asked for is told again, as OpenAI does."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: Failure | None = None
    incomplete_details: Incomplete | None = None
    model: str
    output: list[OutputMessage | OutputCall]
    usage: ResponseUsage | None = None
    instructions: str | None
    max_output_tokens: int | None
    temperature: float | None
    top_p: float | None
    text: dict[str, Any]
    tools: list[dict[str, Any]]
    tool_choice: str | dict[str, Any]
    parallel_tool_calls: bool
    previous_response_id: None = None
    store: Literal[False] = False
    truncation: Literal["disabled"] = "disabled"
    metadata: dict[str, str] = Field(default_factory=dict)
    user: str | None


class StreamEvent(Shape):
    """An event of a stream: its type, its number, and what it tells."""

    type: str
    sequence_number: int
    response: Answered | None = None
    output_index: int | None = None
    item_id: str | None = None
    content_index: int | None = None
    item: OutputMessage | OutputCall | None = None
    part: OutputText | None = None
    delta: str | None = None
    text: str | None = None
    name: str | None = None
    arguments: str | None = None
    logprobs: list[None] | None = None
