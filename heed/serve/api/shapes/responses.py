"""What is answered, typed, in OpenAI's shapes. Where those have a null (a chunk has no finish reason), it is there."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

Finish = Literal["stop", "length", "tool_calls"]


class Shape(BaseModel):
    """A part of a response."""

    model_config = ConfigDict(extra="forbid", defer_build=True)


def without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    """What is told of something that may be there in part."""
    return {name: value for name, value in fields.items() if value is not None}


class PromptDetails(Shape):
    """Of a prompt."""

    cached_tokens: int  # that were read before, for another request of the same key


class TokenUsage(Shape):
    """How many tokens were read and written."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    state_bytes: int | None  # that the states of the answers held at their ends


class CompletionLogprobs(Shape):
    """Of the tokens of a completion, as /v1/completions tells them. A first token that follows nothing has none."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class CompletionChoice(Shape):
    """One continuation, or a piece of it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Finish | None


class Completion(Shape):
    """Of /v1/completions; also a chunk of its stream."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: TokenUsage | None = None


class TopLogprob(Shape):
    """A token that could have stood there."""

    token: str
    logprob: float
    bytes: list[int] | None


class TokenLogprobs(TopLogprob):
    """A token of an answer, and those that could have stood in its place."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(Shape):
    """Of the tokens of an answer, as chats tell them."""

    content: list[TokenLogprobs]
    refusal: None = None


class FunctionDelta(Shape):
    """What is new of a call's name or arguments."""

    name: str | None = None
    arguments: str

    @model_serializer(mode="wrap")
    def _told(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_nulls(write(self))


class CallDelta(Shape):
    """What is new of a call: its name and what it is, or its arguments."""

    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionDelta

    @model_serializer(mode="wrap")
    def _told(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_nulls(write(self))


class FunctionOfCall(Shape):
    """A tool and its arguments, as JSON."""

    name: str
    arguments: str


class CallOfAnswer(Shape):
    """A call that the model asks for."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionOfCall


class AnswerMessage(Shape):
    """An answer: a text, calls, or both."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: list[CallOfAnswer] | None = None

    def put(self, piece: CallDelta) -> None:
        """More of a call."""
        if piece.id is not None:
            function = FunctionOfCall(name=piece.function.name or "", arguments="")
            self.tool_calls = [*(self.tool_calls or []), CallOfAnswer(id=piece.id, function=function)]
        assert self.tool_calls is not None  # a call begins with its name
        self.tool_calls[piece.index].function.arguments += piece.function.arguments

    @model_serializer(mode="wrap")
    def _told(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        found: dict[str, Any] = write(self)
        return found if self.tool_calls else {name: one for name, one in found.items() if name != "tool_calls"}


class ChatChoice(Shape):
    """One answer."""

    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: Finish


class ChatCompletion(Shape):
    """Of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: TokenUsage


class Delta(Shape):
    """What is new of an answer."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    tool_calls: list[CallDelta] | None = None

    @model_serializer(mode="wrap")
    def _told(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return without_nulls(write(self))


class ChunkChoice(Shape):
    """A piece of an answer."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: Finish | None


class ChatChunk(Shape):
    """Of a stream of /v1/chat/completions."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    usage: TokenUsage | None = None


class ModelCard(Shape):
    """A model that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: Literal["heed"] = "heed"
    parent: str | None  # the model whose weights it has, where it is an adapter
    can: list[str]
    max_model_len: int | None  # tokens that it has places for; None: any length
    exact: bool  # an answer is the same bits whatever else is asked at the time; else up to rounding


class ModelList(Shape):
    """Of /v1/models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class TokenizeResponse(Shape):
    """Of /tokenize."""

    count: int
    max_model_len: int | None
    tokens: list[int]


class DetokenizeResponse(Shape):
    """Of /detokenize."""

    prompt: str


class Embedding(Shape):
    """Of one text: numbers, or their float32 as base64."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(Shape):
    """How many tokens were read."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Shape):
    """Of /v1/embeddings."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class Status(Shape):
    """Of /health and /ready."""

    status: Literal["ok", "draining", "failed"]


class Problem(Shape):
    """What is wrong with a request."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(Shape):
    """Every refusal."""

    error: Problem
