"""Chat templates: messages to the text that a model was trained on (Jinja, as checkpoints bring it).

A template is untrusted code, so it runs in a process of its own (`confined/render.py`), sandboxed, in bounded memory,
and ended when it takes too long. That process is started for the first chat and serves those after it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..core.errors import InputError
from .confined.worker import Limits, Worker

Message: TypeAlias = Mapping[str, Any]

TEMPLATE = 1 << 20  # characters of a template; the longest known have some 20,000
RENDERED = 1 << 22  # characters that it may give
MEMORY = 1 << 29  # bytes that it may take, where the system can limit that
SECONDS = 5  # that it may take


def _renderer() -> Worker:
    return Worker("render.py", ("jinja2", "markupsafe"), lambda: Limits(MEMORY, SECONDS))


@dataclass(frozen=True)
class Chat:
    """A template with the special tokens that it may name (bos_token, eos_token, ...).

    `tooled`: another template for chats with tools, if there is one.
    """

    template: str
    tokens: Mapping[str, str] = field(default_factory=dict)
    tooled: str | None = None
    _worker: Worker = field(default_factory=_renderer, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for template in (self.template, self.tooled or ""):
            if len(template) > TEMPLATE:
                raise InputError(f"a chat template may have {TEMPLATE:,} characters; this one has {len(template):,}")

    def __reduce__(self) -> tuple[type[Chat], tuple[str, Mapping[str, str], str | None]]:
        return Chat, (self.template, self.tokens, self.tooled)

    def render(
        self,
        messages: Sequence[Message],
        *,
        prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **values: Any,
    ) -> str:
        """The text of a chat. `prompt`: up to where the completion begins. `values`: what else a template asks for.

        A message has a role ("system", "user", "assistant", ...) and a content: a text, or parts with a type.
        """
        asked = {
            **self.tokens,
            "documents": None,
            **values,
            "messages": checked(messages),
            "tools": None if tools is None else list(tools),
            "add_generation_prompt": prompt,
        }
        template = self.tooled if tools and self.tooled is not None else self.template
        try:
            request = json.dumps({"template": template, "values": asked, "longest": RENDERED}, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"messages, tools and values must be plain data, as JSON can hold it: {error}") from None
        answer = self._worker.ask(request)
        if "text" not in answer:
            raise InputError(f"the chat template cannot be rendered: {answer.get('error')}")
        return str(answer["text"])


def checked(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages, each with a role and a content."""
    listed: object = messages  # callers may not check types
    if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
        raise InputError('a chat is a list of messages, at least one: [{"role": "user", "content": "Hello"}]')
    return [_checked(message, f"message {number}") for number, message in enumerate(messages)]


def _checked(message: Message, place: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InputError(f"{place} is {type(message).__name__}; a table with role and content is needed")
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str) or not role:
        raise InputError(f"{place} has the role {role!r}; a text such as 'user' is needed")
    if content is None and not message.get("tool_calls"):
        raise InputError(f"{place} has no content")
    if content is not None and not isinstance(content, str):
        if not isinstance(content, Sequence):
            raise InputError(f"the content of {place} is {type(content).__name__}; a text or a list of parts is needed")
        for part in content:
            kind = part.get("type") if isinstance(part, Mapping) else None
            if not isinstance(kind, str) or (kind == "text" and not isinstance(part.get("text"), str)):
                raise InputError(f'{place} has a part that is not like {{"type": "text", "text": "Hello"}}: {part!r}')
    return dict(message)
