"""Chat templates: messages to the text that a model was trained on (Jinja, as checkpoints bring it).

A template is untrusted code, so it runs in a process of its own (`render.py`), sandboxed, in bounded memory,
and ended when it takes too long. That process is started for the first chat and serves those after it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ..core.errors import InputError

Message: TypeAlias = Mapping[str, Any]

TEMPLATE = 1 << 20  # characters of a template; the longest known have some 20,000
RENDERED = 1 << 22  # characters that it may give
MEMORY = 1 << 29  # bytes that it may take, where the system can limit that
SECONDS = 5  # that it may take
STARTING = 30  # seconds until the process must be ready, on a busy machine


class _Worker:
    """The process, while there is one. One request at a time; after a failure the next one gets a fresh process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None
        self._owner = 0  # a fork has the other process's pipes, and must not use them

    def ask(self, request: str) -> dict[str, Any]:
        """The answer to a request in JSON."""
        with self._lock:
            if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
                self._end()
                self._process = self._start()
            process, self._process = self._process, None  # whatever interrupts this, half an answer is never read
            answer = _exchange(process, request, SECONDS)
            if answer is None:
                self._end()
                return {"error": f"it took more than {SECONDS} seconds, or more memory than there is"}
            self._process = process
            return answer

    def _start(self) -> subprocess.Popen[bytes]:
        spec = [importlib.util.find_spec(name) for name in ("jinja2", "markupsafe")]
        places = {str(Path(one.origin).parents[1]) for one in spec if one is not None and one.origin}
        limits = [json.dumps(sorted(places)), str(MEMORY), str(SECONDS)]
        kept = {name: os.environ[name] for name in ("TZ", "SYSTEMROOT") if name in os.environ}  # nothing to spy on
        # Isolated: neither the environment nor the folder it is started in decide what it imports.
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("render.py")), *limits]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=kept
            )
        except OSError as error:
            raise InputError(f"the process for chat templates does not start: {error}") from None
        self._owner = os.getpid()
        self._end = weakref.finalize(self, _end, process, self._owner)
        if _exchange(process, "", STARTING) is None:
            self._end()
            raise InputError(f"the process for chat templates does not start; try: {sys.executable} -c 'import jinja2'")
        return process


@dataclass(frozen=True)
class Chat:
    """A template with the special tokens that it may name (bos_token, eos_token, ...).

    `tooled`: another template for chats with tools, if there is one.
    """

    template: str
    tokens: Mapping[str, str] = field(default_factory=dict)
    tooled: str | None = None
    _worker: _Worker = field(default_factory=_Worker, init=False, repr=False, compare=False)

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


# --- the process ---


def _exchange(process: subprocess.Popen[bytes], request: str, seconds: float) -> dict[str, Any] | None:
    """Send a request, if any, and wait for a line; None if the process ends before, by itself or by force."""
    assert process.stdin is not None
    assert process.stdout is not None
    late = threading.Event()

    def stop() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(seconds, stop)
    timer.start()
    try:
        if request:
            process.stdin.write(request.encode() + b"\n")
            process.stdin.flush()
        # A character beyond ASCII takes up to 12 bytes in JSON.
        answer = json.loads(process.stdout.readline(12 * RENDERED + 4096))
    except (OSError, ValueError):
        return None
    finally:
        timer.cancel()
        timer.join()
    return None if late.is_set() or not isinstance(answer, dict) else answer


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if owner == os.getpid():
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
