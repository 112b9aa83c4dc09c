"""What a format of tool calls is: how calls are known in a text that grows, and the grammar of answers with them."""

from __future__ import annotations

import json
import secrets
import string
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

from ..shapes.conversation import Function

LONGEST, CALLS_OF_ANSWER = 1 << 16, 64  # characters of a call, and calls, beyond which an answer is text
LETTERS = string.ascii_letters + string.digits
TEXT = "TEXT: /(.|\\n)*/"  # of a grammar: any text


class Call(NamedTuple):
    """A call that a model asks for."""

    name: str
    arguments: str  # JSON, an object


Said: TypeAlias = str | Call
Marks: TypeAlias = "Callable[[str], str]"  # a marker as a grammar has it: its special token, or its letters


@dataclass(frozen=True)
class Wanted:
    """Which calls an answer may hold."""

    tools: tuple[Function, ...]
    must: bool  # it is nothing but calls
    several: bool  # more than one

    @property
    def enforced(self) -> bool:
        """Whether there is something to be enforced while it is written."""
        return self.must or not self.several or any(tool.strict for tool in self.tools)


class ToolFormat(ABC):
    """How a family of models writes calls."""

    marks: ClassVar[tuple[str, ...]]  # texts around calls, which may be special tokens that a text would not show
    key: ClassVar[str] = "arguments"  # what stands before the arguments

    @classmethod
    @abstractmethod
    def taught_by(cls, template: str) -> bool:
        """Whether a chat template writes calls so."""

    @classmethod
    @abstractmethod
    def reader(cls, names: Collection[str]) -> CallReader:
        """What takes one answer apart; calls are those of tools that were given."""

    @classmethod
    @abstractmethod
    def grammar(cls, wanted: Wanted, mark: Marks) -> str:
        """The grammar of an answer, in llguidance's Lark."""

    @classmethod
    def identity(cls) -> str:
        """A new name for a call."""
        return f"call_{secrets.token_hex(12)}"


class CallReader(ABC):
    """Takes an answer apart while it grows. What is no call of a tool that was given stays text.

    A call is told when it is whole, so that only right ones are. Blanks before calls are left out.
    """

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._buffer = ""  # what may become a call, or is one so far
        self._blank = ""  # blanks that are text only if text follows
        self._calls = 0

    @abstractmethod
    def push(self, text: str) -> list[Said]:
        """More of the answer: what is certain now."""

    @abstractmethod
    def finish(self) -> list[Said]:
        """No more comes: what was held back."""

    def _told(self, text: str) -> Iterator[Said]:
        """Text, but for blanks at its end, which wait for what comes."""
        whole = self._blank + text
        kept = whole.rstrip()
        self._blank = whole[len(kept) :]
        if kept:
            yield kept

    def _called(self, calls: Sequence[Call]) -> Iterator[Said]:
        """Calls; blanks before them are no text."""
        self._blank = ""
        self._calls += len(calls)
        yield from calls

    def _rest(self) -> Iterator[Said]:
        """Blanks at the end are text where there is no call."""
        if self._blank and not self._calls:
            yield self._blank
        self._blank = ""

    def _call_of(self, found: Any, *keys: str) -> Call | None:
        """A call as JSON has it: a name and arguments under one of these keys."""
        if not isinstance(found, dict) or not isinstance(found.get("name"), str) or found["name"] not in self._names:
            return None
        given = next((found[key] for key in keys if key in found), None)
        return call(found["name"], given)


def call(name: str, given: Any) -> Call | None:
    """A call with these arguments, if they are an object that JSON can tell."""
    if not isinstance(given, dict):
        return None
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:  # half a character, which JSON can only tell by its number
        text = json.dumps(given, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    return Call(name, text)


def read_json(text: str) -> tuple[Any, int] | None:
    """The JSON value that a text begins with, and where it ends; None: there is none, or not yet."""
    try:
        return json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None


def overlap(text: str, marker: str) -> int:
    """How many characters at the end of a text may begin the marker."""
    most = min(len(text), len(marker) - 1)
    return next((size for size in range(most, 0, -1) if marker.startswith(text[-size:])), 0)


def quoted(text: str) -> str:
    """A text as a grammar has it."""
    return json.dumps(text, ensure_ascii=False)


def objects(tools: Sequence[Function], key: str) -> str:
    """Rules of a call as JSON, one for each tool: {"name": "...", "arguments": {...}}."""
    rules = []
    for place, tool in enumerate(tools):
        begin = quoted(f'{{"name": "{tool.name}", "{key}": ')
        rules.append(f'call_{place}: {begin} arguments_{place} "}}"')
    return "\n".join([alternatives("call", len(tools)), *rules, arguments(tools)])


def alternatives(name: str, count: int) -> str:
    """A rule that is one of several."""
    return f"{name}: " + " | ".join(f"{name}_{place}" for place in range(count))


def arguments(tools: Sequence[Function]) -> str:
    """Rules of the arguments of each tool."""
    schemas = (json.dumps(tool.schema_of_arguments, allow_nan=False) for tool in tools)
    return "\n".join(f"arguments_{place}: %json {schema}" for place, schema in enumerate(schemas))
