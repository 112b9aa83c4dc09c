"""What may be asked, typed, with a bound for every number, text and list. Names and meanings are OpenAI's, or vLLM's.

A field that is not here is refused by name. One that asks for nothing special (`frequency_penalty: 0`), as clients send
it unasked, is not there at all.
"""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Annotated, Any, Literal, Self, TypeAlias

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic import BeforeValidator, Field, Strict, model_validator

from ....core.config import Config, Flag, Seed
from ..wire.refusal import Refusal

CHARACTERS = 1 << 22  # of a prompt or a message; the body is bounded, too
IDS, PROMPTS = 1 << 20, 128  # tokens of a prompt, and prompts of a request
SCHEMA = 1 << 16  # characters of a JSON schema
CHOICES, ALTERNATIVES, BIASED, STOPS = 8, 20, 1024, 4

Text = Annotated[str, Strict(), MaxLen(CHARACTERS)]
Name = Annotated[str, Strict(), MinLen(1), MaxLen(256)]
TokenId = Annotated[int, Strict(), Ge(0), Le((1 << 31) - 1)]
Tokens = Annotated[int, Strict(), Ge(0), Le(IDS)]
Stop = Annotated[str, Strict(), MinLen(1), MaxLen(64)]
Bias = Annotated[float, Strict(), Ge(-100), Le(100)]
Penalty = Annotated[float, Strict(), Ge(-2), Le(2)]
Prompt: TypeAlias = str | tuple[str, ...] | tuple[int, ...] | tuple[tuple[int, ...], ...]

# Fields of other servers: values that ask for nothing special, and what to write instead, or why there is none.
OTHERS: dict[str, tuple[tuple[object, ...], str]] = {
    "frequency_penalty": ((0,), "/v1/completions and /v1/chat/completions have it"),
    "presence_penalty": ((0,), "/v1/completions and /v1/chat/completions have it"),
    "best_of": ((1,), "write n"),
    "use_beam_search": ((False,), "beams are not served; heed run --num-beams has them"),
    "suffix": (("",), "models are asked to continue a text, not to fill a gap"),
    "tools": (([],), "conversations have tools: /v1/chat/completions, /v1/responses"),
    "tool_choice": (("none",), "conversations have tools: /v1/chat/completions, /v1/responses"),
    "parallel_tool_calls": ((True, False), "conversations have tools: /v1/chat/completions, /v1/responses"),
    "functions": (([],), "write tools"),
    "function_call": (("none",), "write tool_choice"),
    "modalities": ((["text"],), "answers are text"),
    "audio": ((), "answers are text"),
    "store": ((False,), "nothing is stored"),
    "metadata": (({},), "nothing is stored"),
    "previous_response_id": ((), "nothing is stored; send the conversation as input"),
    "conversation": ((), "nothing is stored; send the conversation as input"),
    "background": ((False,), "answers are given while the client waits"),
    "prompt_cache_key": ((), "prompts that begin alike are read once anyway, for each key and user"),
    "safety_identifier": ((), "write user"),
    "truncation": (("disabled",), "a conversation that is too long is refused, not cut"),
    "include": (([],), "an answer is a text and calls; there is no more to be included"),
    "max_tool_calls": ((), "calls are made by the client, which may count them"),
    "reasoning": (({},), "models are not asked how long to think"),
    "service_tier": (("auto", "default"), "all requests are treated alike"),
    "min_tokens": ((0,), "an answer ends where the model ends it; ignore_eos goes on to max_tokens"),
    "skip_special_tokens": ((True,), "texts come without special tokens"),
    "reasoning_effort": ((), "models are not asked how long to think"),
    "web_search_options": ((), "no addresses are fetched"),
    "dimensions": ((), "embeddings have as many numbers as the model gives"),
}


def without_neutral(data: dict[str, Any], own: Container[str] = ()) -> dict[str, Any]:
    """The fields but those that ask for nothing special; a refusal of those of other servers that ask for something.

    `own`: fields that this request has, whatever others have not.
    """
    kept = dict(data)
    for name, (neutral, instead) in OTHERS.items():
        if name in kept and name not in own:
            value = kept.pop(name)
            if not any(type(value) in {type(one), float, int} and value == one for one in neutral):
                raise Refusal(400, f"{name} is not supported: {instead}", name, code="unsupported_field")
    return kept


def _several(value: Any) -> Any:
    """A stop string alone is a list of one."""
    return (value,) if isinstance(value, str) else value


def _few(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > BIASED:
        raise ValueError(f"{len(value):,} tokens; at most {BIASED:,} are taken")
    if isinstance(value, dict):  # names in JSON are texts; those that are no numbers stay and are told
        return {
            int(key) if key.isascii() and key.isdecimal() and len(key) <= 10 else key: v for key, v in value.items()
        }
    return value


def small(value: Any) -> Any:
    if isinstance(value, dict) and len(json.dumps(value)) > SCHEMA:
        raise ValueError(f"a schema of more than {SCHEMA:,} characters")
    return value


def _prompts(value: Any) -> Any:
    """A text, texts, ids, or lists of ids; told here, because a union tells the problems of all four."""
    if isinstance(value, str):
        if len(value) > CHARACTERS:
            raise ValueError(f"{len(value):,} characters; at most {CHARACTERS:,} are taken")
        return value
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("a text, a list of texts, a list of ids or a list of lists of ids is needed")
    if all(type(one) is int for one in value):
        return _ids(value)
    if len(value) > PROMPTS:
        raise ValueError(f"{len(value):,} prompts; at most {PROMPTS} are taken in one request")
    if all(isinstance(one, str) for one in value):
        return tuple(value)
    if all(isinstance(one, list | tuple) and one and all(type(index) is int for index in one) for one in value):
        return tuple(map(_ids, value))
    raise ValueError("a text, a list of texts, a list of ids or a list of lists of ids is needed")


def _ids(value: Any) -> tuple[int, ...]:
    if len(value) > IDS:
        raise ValueError(f"{len(value):,} ids; at most {IDS:,} are taken")
    if not 0 <= min(value) <= max(value) < 1 << 31:
        raise ValueError("an id that is negative or beyond every vocabulary")
    return tuple(value)


Stops = Annotated[tuple[Stop, ...], BeforeValidator(_several, json_schema_input_type=str | list[str]), MaxLen(STOPS)]


class StreamOptions(Config):
    """What a stream tells beside the text."""

    include_usage: Flag = False  # a last chunk with the number of tokens


class JsonSchema(Config):
    """A schema of answers, with the name that OpenAI gives it."""

    name: Annotated[str, Strict(), MaxLen(64)] = ""
    description: Annotated[str, Strict(), MaxLen(4096)] = ""
    schema_: Annotated[dict[str, Any], BeforeValidator(small)] | None = Field(default=None, alias="schema")
    strict: Flag = True  # schemas are followed, whatever is said here


class ResponseFormat(Config):
    """The form of an answer."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _schema_for_its_type(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("json_schema goes with type: json_schema")
        return self


class StructuredOutputs(Config):
    """A form that OpenAI has not, as vLLM has it: the whole answer is matched."""

    regex: Annotated[str, Strict(), MinLen(1), MaxLen(4096)]


class Generating(Config):
    """What completions and chats have in common."""

    model: Name
    max_tokens: Tokens | None = None
    temperature: Annotated[float, Strict(), Ge(0), Le(100)] | None = None
    top_p: Annotated[float, Strict(), Gt(0), Le(1)] | None = None
    top_k: Annotated[int, Strict(), Ge(-1), Le(IDS)] | None = None  # -1 and 0: all, as elsewhere
    min_p: Annotated[float, Strict(), Ge(0), Le(1)] | None = None
    repetition_penalty: Annotated[float, Strict(), Ge(1e-3), Le(1e3)] | None = None
    frequency_penalty: Penalty = 0.0  # for each time that a token was written; OpenAI's bounds
    presence_penalty: Penalty = 0.0  # if it was written at all
    seed: Seed | None = None
    n: Annotated[int, Strict(), Ge(1), Le(CHOICES)] = 1
    stop: Stops = ()
    logit_bias: Annotated[dict[TokenId, Bias], BeforeValidator(_few)] = Field(default_factory=dict)
    ignore_eos: Flag = False
    stream: Flag = False
    stream_options: StreamOptions | None = None
    user: Annotated[str, Strict(), MaxLen(256)] = ""  # those of one key take turns
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None

    @model_validator(mode="after")
    def _options_of_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options goes with stream: true")
        if self.structured_outputs is not None and self.response_format is not None:
            raise ValueError("response_format and structured_outputs are two forms of one answer; give one")
        return self


class CompletionRequest(Generating):
    """A text to be continued, or scored: `echo` gives the prompt back, with its log-probabilities if asked for."""

    prompt: Annotated[Prompt, BeforeValidator(_prompts)]
    echo: Flag = False
    logprobs: Annotated[int, Strict(), Ge(0), Le(ALTERNATIVES)] | None = None


def texts(value: Any) -> Any:
    """A text alone is a list of one; ids are told apart here, because the message for a list would say little."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not found or not all(isinstance(one, str) for one in found):
        raise ValueError("a text or a list of texts is needed; ids are not embedded")
    return tuple(found)


class EmbeddingRequest(Config):
    """Texts whose embeddings are asked for."""

    model: Name
    input: Annotated[tuple[Text, ...], BeforeValidator(texts, json_schema_input_type=str | list[str]), MaxLen(PROMPTS)]
    encoding_format: Literal["float", "base64"] = "float"
    user: Annotated[str, Strict(), MaxLen(256)] = ""


class DetokenizeRequest(Config):
    """Ids whose text is asked for."""

    model: Name
    tokens: Annotated[tuple[TokenId, ...], MaxLen(IDS)]
