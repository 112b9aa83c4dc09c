"""A line of a file of prompts, and the line that answers it.

With keywords as `generate` takes them:   {"prompt": "a text" or ids, "custom_id": "any", "max_new_tokens": 20, ...}
As OpenAI has it:    {"custom_id": "any", "url": "/v1/chat/completions", "body": {"messages": [...], "max_tokens": 20}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core.errors import InputError
from ...decode import Sample
from ...pipelines import GenerationConfig, GenerationPipeline
from ...pipelines.settings import GenerationKeywords
from ..answer import Completed
from ..request import Request

PROMPTS, CHATS = "/v1/completions", "/v1/chat/completions"
ENVELOPE = ("custom_id", "method", "url", "body")
FOREIGN = {"max_tokens": "max_new_tokens", "max_completion_tokens": "max_new_tokens"}
MORE = ("logit_bias", "ignore_eos")  # what the engine knows beside the keywords of `generate`
BESIDE = ("model", "user", "stream")  # what changes no answer in a file
NOT_HERE = ("prefix", "num_beams", "length_penalty", "num_return_sequences", "logprobs", "do_sample")
KNOWN = {*GenerationKeywords.__annotations__, *FOREIGN, *MORE} - {*NOT_HERE}
FINISH = {"end": "stop", "stop": "stop", "limit": "length"}


@dataclass(frozen=True)
class Asked:
    """What a line asks for. `problem`: why it cannot be."""

    number: int  # of the line, from 1
    custom_id: str | None = None
    url: str | None = None  # of a line as OpenAI has it
    model: str = ""
    request: Request | None = None
    problem: str | None = None

    def answer(self, made: Completed) -> dict[str, Any]:
        """The line that answers it."""
        usage = made.usage
        if self.url is None:
            told = {"text": made.text, "reason": made.reason, "prompt_tokens": usage.prompt_tokens}
            return {**self._named(), **told, "tokens": usage.completion_tokens}
        told = {"message": {"role": "assistant", "content": made.text}} if self.url == CHATS else {"text": made.text}
        count = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.completion_tokens}
        body = {
            "object": "chat.completion" if self.url == CHATS else "text_completion",
            "model": self.model,
            "choices": [{"index": 0, **told, "finish_reason": FINISH[made.reason]}],
            "usage": {**count, "total_tokens": sum(count.values())},
        }
        return {**self._named(), "response": {"status_code": 200, "body": body}, "error": None}

    def refused(self, problem: str) -> dict[str, Any]:
        """The line that says why there is no answer."""
        if self.url is None:
            return {**self._named(), "error": problem}
        return {**self._named(), "response": None, "error": {"message": problem}}

    def _named(self) -> dict[str, Any]:
        return {"line": self.number} if self.custom_id is None else {"line": self.number, "custom_id": self.custom_id}


def asked(raw: bytes, number: int, pipeline: GenerationPipeline, usual: GenerationConfig) -> Asked:
    """What a line asks for; what is wrong with it is told, not raised. Line n draws with `usual`'s seed + n - 1."""
    found = Asked(number)
    try:
        data = _object(raw)
        found = Asked(number, _custom_id(data), data.get("url"))
        if found.url is None:
            body = {name: value for name, value in data.items() if name != "custom_id"}
        else:
            body = _enclosed(data)
        prompt = _messages(body, pipeline) if found.url == CHATS else _prompt(body)
        request = _request(prompt, body, usual, number)
        return Asked(number, found.custom_id, found.url, str(body.get("model", "")), request)
    except InputError as error:
        return Asked(number, found.custom_id, found.url, problem=str(error))


def _object(raw: bytes) -> dict[str, Any]:
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise InputError(f"this is no line of JSON: {error}") from None
    if not isinstance(data, dict):
        raise InputError('this is no object; needed is {"prompt": ...}, or a line of a batch as OpenAI has it')
    return data


def _custom_id(data: Mapping[str, Any]) -> str | None:
    given = data.get("custom_id")
    if given is not None and not isinstance(given, str):
        raise InputError(f"custom_id is {given!r}; needed is a text")
    return given


def _enclosed(data: Mapping[str, Any]) -> dict[str, Any]:
    strange = [name for name in data if name not in ENVELOPE]
    if strange or data["url"] not in (PROMPTS, CHATS) or not isinstance(data.get("body"), dict):
        raise InputError(
            f"a line of a batch has {', '.join(ENVELOPE)}, the url {PROMPTS} or {CHATS}, and an object as its body"
        )
    return dict(data["body"])


def _prompt(body: Mapping[str, Any]) -> str | list[int]:
    given = body.get("prompt")
    if isinstance(given, str) or (isinstance(given, list) and given and all(type(one) is int for one in given)):
        return given
    raise InputError(f"prompt is {repr(given)[:40]}; needed is a text, or a list of ids")


def _messages(body: Mapping[str, Any], pipeline: GenerationPipeline) -> list[int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InputError("messages is not there; needed is a list of objects with role and content")
    if pipeline.tokenizer.chat is None:
        raise InputError(f"the model has no chat template, so it was not trained to chat; {PROMPTS} continues a text")
    plain = [{**one, "role": "system"} if _developer(one) else one for one in messages]
    return pipeline.tokenizer.prompt(plain)


def _developer(message: object) -> bool:
    return isinstance(message, dict) and message.get("role") == "developer"


def _request(prompt: str | list[int], body: Mapping[str, Any], usual: GenerationConfig, number: int) -> Request:
    given = {
        FOREIGN.get(name, name): value for name, value in body.items() if name not in ("prompt", "messages", *BESIDE)
    }
    strange = sorted(name for name in given if name not in KNOWN)
    if strange:
        raise InputError(f"{', '.join(strange)}: not for a line of a file; there are: {', '.join(sorted(KNOWN))}")
    config = usual.given("a line", {name: value for name, value in given.items() if name not in MORE})
    bias, ignore = given.get("logit_bias") or {}, given.get("ignore_eos", False)
    if not isinstance(bias, dict) or not all(str(key).isdecimal() for key in bias) or not isinstance(ignore, bool):
        raise InputError("logit_bias is an object of numbers by ids, and ignore_eos is true or false")
    strategy: Any = config.strategy
    if isinstance(strategy, Sample) and given.get("seed") is None:
        strategy = strategy.model_copy(update={"seed": (usual.seed or 0) + number - 1})
    try:
        return Request(
            prompt=prompt,
            max_new_tokens=config.max_new_tokens,
            sampling=strategy,
            stop=config.stop,
            ends=() if ignore else None,
            logit_bias={int(key): float(value) for key, value in bias.items()},
        )
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from None
