"""Conversations, typed: messages, tools that a model may ask to be called, and the calls themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import AfterValidator, BeforeValidator, Field, Strict, model_validator
from pydantic_core import from_json

from ....core.config import Config, Flag
from .requests import ALTERNATIVES, Generating, Name, Text, Tokens, small

MESSAGES, PARTS, CALLS, TOOLS = 1024, 64, 64, 128
ARGUMENTS = 1 << 16  # characters of the arguments of a call

CallId = Annotated[str, Strict(), MinLen(1), MaxLen(128)]
ToolName = Annotated[str, Strict(), Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


def without_nulls_in(value: Any) -> Any:
    """null is the same as leaving out: clients send an answer back as they got it."""
    return {name: one for name, one in value.items() if one is not None} if isinstance(value, dict) else value


class TextPart(Config):
    """A piece of a message."""

    type: Literal["text"]
    text: Text


def arguments_in(text: str) -> dict[str, Any]:
    """The arguments of a call, as templates take them."""
    try:
        found = from_json(text or "{}", allow_inf_nan=False)
    except ValueError as error:
        raise ValueError(f"arguments are not valid JSON: {error}") from None
    if isinstance(found, dict):
        return found
    raise ValueError(f"arguments are a JSON {type(found).__name__}; an object is needed")


def _readable(text: str) -> str:
    arguments_in(text)
    return text


Arguments = Annotated[str, Strict(), MaxLen(ARGUMENTS), AfterValidator(_readable)]  # JSON


class CalledFunction(Config):
    """A tool and its arguments."""

    name: ToolName
    arguments: Arguments


class ToolCall(Config):
    """A call that a model asked for."""

    id: CallId
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Config):
    """What was said, and in which role; or what a tool gave."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[tuple[TextPart, ...], MinLen(1), MaxLen(PARTS)] | None = None
    name: Annotated[str, Strict(), MinLen(1), MaxLen(64)] | None = None
    tool_calls: Annotated[tuple[ToolCall, ...], MaxLen(CALLS)] = ()
    tool_call_id: CallId | None = None  # of the call that a tool answers

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return without_nulls_in(value)

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"tool_calls in a message of the role {self.role}; only the assistant asks for calls")
        if (self.tool_call_id is not None) != (self.role == "tool"):
            raise ValueError("tool_call_id goes with the role tool, and tells which call is answered")
        if self.content is None and not self.tool_calls:
            raise ValueError("a message without content; only an assistant that asks for calls may have none")
        return self

    def plain(self) -> dict[str, Any]:
        """As chat templates take it."""
        parts = "".join(part.text for part in self.content) if isinstance(self.content, tuple) else self.content
        found: dict[str, Any] = {"role": self.role, "content": parts or ""}  # not all templates bear a null
        if self.name is not None:
            found["name"] = self.name
        if self.tool_call_id is not None:
            found["tool_call_id"] = self.tool_call_id
        if self.tool_calls:
            found["tool_calls"] = [
                {
                    "id": one.id,
                    "type": one.type,
                    "function": {"name": one.function.name, "arguments": arguments_in(one.function.arguments)},
                }
                for one in self.tool_calls
            ]
        return found


class Function(Config):
    """What a tool is called, what it is for, and what it takes."""

    name: ToolName
    description: Annotated[str, Strict(), MaxLen(ARGUMENTS)] = ""
    parameters: Annotated[dict[str, Any], BeforeValidator(small)] = Field(default_factory=dict)  # a JSON schema
    strict: Flag = False  # the arguments fit the schema, even where the model decides whether to call

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return without_nulls_in(value)

    @model_validator(mode="after")
    def _takes_an_object(self) -> Self:
        if self.parameters.get("type", "object") != "object":
            raise ValueError(f"parameters of {self.name} must be a schema of an object")
        return self

    @property
    def schema_of_arguments(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        return {"type": "object", **({} if self.parameters else {"properties": {}}), **self.parameters}


class Tool(Config):
    """Something that a model may ask to be called."""

    type: Literal["function"]
    function: Function

    def plain(self) -> dict[str, Any]:
        """As chat templates take it."""
        own = self.function
        told = {"name": own.name, "description": own.description, "parameters": own.schema_of_arguments}
        return {"type": "function", "function": told}


class ChosenName(Config):
    """The name of a tool."""

    name: ToolName


class ChosenTool(Config):
    """The tool that must be called."""

    type: Literal["function"]
    function: ChosenName


Tools = Annotated[tuple[Tool, ...], MaxLen(TOOLS)]
ToolChoice: TypeAlias = Literal["none", "auto", "required"] | ChosenTool
Messages = Annotated[tuple[ChatMessage, ...], MinLen(1), MaxLen(MESSAGES)]


class ChatRequest(Generating):
    """A conversation to be continued."""

    messages: Messages
    max_completion_tokens: Tokens | None = None
    logprobs: Flag = False
    top_logprobs: Annotated[int, Strict(), Ge(0), Le(ALTERNATIVES)] | None = None
    tools: Tools = ()
    tool_choice: ToolChoice | None = None  # None: auto if there are tools
    parallel_tool_calls: Flag = True  # else one call at most

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs goes with logprobs: true")
        if None not in {self.max_tokens, self.max_completion_tokens} and self.max_tokens != self.max_completion_tokens:
            raise ValueError("max_tokens and max_completion_tokens are two names of one thing; give one")
        return self

    @model_validator(mode="after")
    def _tools_agree(self) -> Self:
        names = [tool.function.name for tool in self.tools]
        twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
        if twice is not None:
            raise ValueError(f"two tools are called {twice}")
        if not names and self.tool_choice not in {None, "none", "auto"}:
            raise ValueError("tool_choice goes with tools")
        if self.forced is not None and self.forced not in names:
            raise ValueError(f"tool_choice is {self.forced}; the tools are {', '.join(names)}")
        formed = self.structured_outputs is not None or self.response_format is not None
        if self.callable and formed and (self.response_format is None or self.response_format.type != "text"):
            raise ValueError(
                'tools and a format of answers exclude each other; leave out one, or set tool_choice: "none"'
            )
        return self

    @property
    def forced(self) -> str | None:
        """The tool that must be called, if there is one."""
        return self.tool_choice.function.name if isinstance(self.tool_choice, ChosenTool) else None

    @property
    def callable(self) -> tuple[Function, ...]:
        """The tools that may be called in the answer."""
        if self.tool_choice == "none":
            return ()
        return tuple(tool.function for tool in self.tools if self.forced in {None, tool.function.name})

    @property
    def must_call(self) -> bool:
        """Whether the answer must be a call."""
        return self.tool_choice == "required" or self.forced is not None


class TokenizeRequest(Config):
    """A text, or a conversation, whose ids are asked for."""

    model: Name
    prompt: Text | None = None
    messages: Messages | None = None
    tools: Tools = ()
    add_special_tokens: Flag = True  # of a text: those that stand around it when it is continued

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give prompt or messages, one of both")
        if self.tools and self.messages is None:
            raise ValueError("tools go with messages")
        return self


def as_templates_take(messages: tuple[ChatMessage, ...], template: str) -> list[Mapping[str, Any]]:
    """Plain messages. A template that knows no developer is told of the system; what a tool gave has its name."""
    names = {call.id: call.function.name for message in messages for call in message.tool_calls}
    found = list[Mapping[str, Any]]()
    for message in messages:
        plain = message.plain()
        if message.role == "developer" and "developer" not in template:
            plain["role"] = "system"
        if message.tool_call_id is not None and message.tool_call_id in names:
            plain.setdefault("name", names[message.tool_call_id])
        found.append(plain)
    return found
