"""The formats of tool calls, each as the models that were trained on it write them."""

from __future__ import annotations

import re
import secrets
from abc import abstractmethod
from collections.abc import Collection, Iterator
from typing import ClassVar

from .base import (
    CALLS_OF_ANSWER,
    LETTERS,
    LONGEST,
    TEXT,
    Call,
    CallReader,
    Marks,
    Said,
    ToolFormat,
    Wanted,
    alternatives,
    arguments,
    call,
    objects,
    overlap,
    quoted,
    read_json,
)

OPEN, CLOSE = "<tool_call>", "</tool_call>"
PYTHON = "<|python_tag|>"
KEYS = ("arguments", "parameters")  # of a call as JSON; models mistake one for the other
# What to look for next in JSON: outside of a text and in one.
NEXT = (re.compile(rf'"|{CLOSE}'), re.compile(r'"|\\.', re.DOTALL))
CALLS, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"


class Hermes(ToolFormat):
    """Hermes, Qwen: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, among other text, several if need be."""

    marks: ClassVar[tuple[str, ...]] = (OPEN, CLOSE)

    @classmethod
    def taught_by(cls, template: str) -> bool:
        return OPEN in template and "<function=" not in template and "<arg_key>" not in template

    @classmethod
    def reader(cls, names: Collection[str]) -> CallReader:
        return _Tagged(names)

    @classmethod
    def grammar(cls, wanted: Wanted, mark: Marks) -> str:
        inside = f'"\\n" call "\\n" {mark(CLOSE)}'
        rules = ["%llguidance {}"]
        if wanted.must:
            several = ' ("\\n" tag)*' if wanted.several else ""
            rules += [f"start: tag{several}", f"tag: {mark(OPEN)} {inside}"]
        else:
            rules += ["start: tag* TEXT" if wanted.several else "start: TEXT | tag", TEXT]
            if mark(OPEN) != quoted(OPEN):  # a special token
                rules += [f"tag: TEXT {mark(OPEN)} {inside}"]
            else:
                rules += [f"tag: open {inside}", f"open[lazy]: TEXT {mark(OPEN)}"]
        return "\n".join([*rules, objects(wanted.tools, cls.key)])


class _Tagged(CallReader):
    """Calls between two tags."""

    _inside = False
    _at, _quoted = 0, False  # how far the inside was searched for its closing tag, and whether a text of JSON is open

    def push(self, text: str) -> list[Said]:
        self._buffer += text
        return list(self._pushed())

    def _pushed(self) -> Iterator[Said]:
        while True:
            if not self._inside:
                begin = self._buffer.find(OPEN)
                cut = begin if begin >= 0 else len(self._buffer) - overlap(self._buffer, OPEN)
                yield from self._told(self._buffer[:cut])
                self._buffer = self._buffer[cut:]
                if begin < 0:
                    return
                self._inside, self._at, self._quoted = True, len(OPEN), False
            if (end := self._closing()) is None:
                if len(self._buffer) > LONGEST:
                    yield from self._left(len(self._buffer), None)
                return
            body = self._buffer[len(OPEN) : end].strip()
            read = read_json(body)
            found = None if read is None or body[read[1] :].strip() else self._call_of(read[0], *KEYS)
            yield from self._left(end + len(CLOSE), found)

    def _closing(self) -> int | None:
        """Where the closing tag is; one in a text of JSON is a part of that. Each character is looked at once."""
        while (found := NEXT[self._quoted].search(self._buffer, self._at)) is not None:
            if found[0] == CLOSE:
                return found.start()
            self._quoted ^= found[0] == '"'
            self._at = found.end()
        # What is at the end may be the beginning of a tag or of an escape.
        self._at = max(self._at, len(self._buffer) - (1 if self._quoted else len(CLOSE) - 1))
        return None

    def _left(self, end: int, found: Call | None) -> Iterator[Said]:
        """What is inside ends here: it was a call, or else is text."""
        self._inside = False
        whole, self._buffer = self._buffer[:end], self._buffer[end:]
        yield from self._told(whole) if found is None else self._called([found])

    def finish(self) -> list[Said]:
        found = None
        if self._inside and (read := read_json(self._buffer[len(OPEN) :].strip())) is not None:
            found = self._call_of(read[0], *KEYS)  # the end of the answer closes it
        return [*self._left(len(self._buffer), found), *self._rest()]


class Llama(ToolFormat):
    """Llama 3.1 and 3.2: the whole answer is {"name": ..., "parameters": {...}}, after <|python_tag|> or without it."""

    marks: ClassVar[tuple[str, ...]] = (PYTHON,)
    key: ClassVar[str] = "parameters"

    @classmethod
    def taught_by(cls, template: str) -> bool:
        return PYTHON in template or '{"name": function name, "parameters": ' in template

    @classmethod
    def reader(cls, names: Collection[str]) -> CallReader:
        return _Whole(names)

    @classmethod
    def grammar(cls, wanted: Wanted, mark: Marks) -> str:
        """It was taught to write one call, so one is what is enforced."""
        start = ["start: call"] if wanted.must else ["start: call | PLAIN |", "PLAIN: /[^{](.|\\n)*/"]
        return "\n".join(["%llguidance {}", *start, objects(wanted.tools, cls.key)])


class _Whole(CallReader):
    """Calls that are all of an answer; several are parted by semicolons or blanks."""

    _plain: bool | None = None  # it is a text, or begins like a call; None: that is not known yet

    def push(self, text: str) -> list[Said]:
        if self._plain:
            return list(self._told(text))
        self._buffer += text
        if self._plain is None:
            begun = self._buffer.lstrip()
            if begun.startswith(("{", PYTHON)):
                self._plain = False
            elif not PYTHON.startswith(begun):
                return self._as_text()
        return []

    def finish(self) -> list[Said]:
        rest, calls = self._buffer.lstrip().removeprefix(PYTHON).strip(), list[Call]()
        while rest and len(calls) < CALLS_OF_ANSWER and (read := read_json(rest)) is not None:
            found = self._call_of(read[0], *KEYS)
            if found is None:
                break
            calls.append(found)
            rest = rest[read[1] :].lstrip("; \n")
        said = list(self._called(calls)) if calls and not rest else self._as_text()
        return [*said, *self._rest()]

    def _as_text(self) -> list[Said]:
        self._plain = True
        text, self._buffer = self._buffer, ""
        return list(self._told(text))


class Mistral(ToolFormat):
    """Mistral: after some text or none `[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]`, and then nothing."""

    marks: ClassVar[tuple[str, ...]] = (CALLS,)

    @classmethod
    def taught_by(cls, template: str) -> bool:
        return CALLS in template

    @classmethod
    def reader(cls, names: Collection[str]) -> CallReader:
        return _Listed(names)

    @classmethod
    def grammar(cls, wanted: Wanted, mark: Marks) -> str:
        several = ' (", " call)*' if wanted.several else ""
        return "\n".join([*_after_text(wanted, mark), f'calls: " [" call{several} "]"', objects(wanted.tools, cls.key)])

    @classmethod
    def identity(cls) -> str:
        """Nine letters and digits: its templates refuse others."""
        return "".join(secrets.choice(LETTERS) for _ in range(9))


class Tekken(Mistral):
    """Mistral since 2025: [TOOL_CALLS]name[ARGS]{...}, once for each call."""

    marks: ClassVar[tuple[str, ...]] = (CALLS, ARGS, CALL_ID)

    @classmethod
    def taught_by(cls, template: str) -> bool:
        return CALLS in template and ARGS in template

    @classmethod
    def reader(cls, names: Collection[str]) -> CallReader:
        return _Named(names)

    @classmethod
    def grammar(cls, wanted: Wanted, mark: Marks) -> str:
        several = f" ({mark(CALLS)} call)*" if wanted.several else ""
        names = [quoted(tool.name) for tool in wanted.tools]
        each = (f"call_{place}: {name} {mark(ARGS)} arguments_{place}" for place, name in enumerate(names))
        tools = [alternatives("call", len(wanted.tools)), *each, arguments(wanted.tools)]
        return "\n".join([*_after_text(wanted, mark), f"calls: call{several}", *tools])


def _after_text(wanted: Wanted, mark: Marks) -> list[str]:
    """The beginning of a grammar of calls that end an answer, behind a marker."""
    if wanted.must:
        return ["%llguidance {}", f"start: {mark(CALLS)} calls"]
    if mark(CALLS) != quoted(CALLS):
        return ["%llguidance {}", f"start: TEXT {mark(CALLS)} calls | TEXT", TEXT]
    return ["%llguidance {}", "start: open calls | TEXT", f"open[lazy]: TEXT {mark(CALLS)}", TEXT]


class _Behind(CallReader):
    """Text, and calls behind a marker up to the end."""

    _behind = False

    def push(self, text: str) -> list[Said]:
        self._buffer += text
        if self._behind:
            return []
        begin = self._buffer.find(CALLS)
        cut = begin if begin >= 0 else len(self._buffer) - overlap(self._buffer, CALLS)
        self._behind = begin >= 0
        text, self._buffer = self._buffer[:cut], self._buffer[cut:]
        return list(self._told(text))

    def finish(self) -> list[Said]:
        found = self._read(self._buffer.removeprefix(CALLS)) if self._behind else []
        said = self._called(found) if found else self._told(self._buffer)
        self._buffer = ""
        return [*said, *self._rest()]

    @abstractmethod
    def _read(self, body: str) -> list[Call]:
        """All calls behind the marker; none if one of them is wrong."""


class _Listed(_Behind):
    """Calls in a list."""

    def _read(self, body: str) -> list[Call]:
        read = read_json(body.strip())
        if read is None or not isinstance(read[0], list) or body.strip()[read[1] :].strip():
            return []
        if len(read[0]) > CALLS_OF_ANSWER:
            return []
        calls = [self._call_of(one, *KEYS) for one in read[0]]
        return [one for one in calls if one is not None] if None not in calls else []


class _Named(_Behind):
    """Calls one behind the other, each with its own marker."""

    def _read(self, body: str) -> list[Call]:
        calls = list[Call]()
        rest = body
        while rest and len(calls) <= CALLS_OF_ANSWER:
            name, args, rest = rest.partition(ARGS)
            read = read_json(rest.lstrip())
            name = name.partition(CALL_ID)[0].strip()
            if not args or read is None or name not in self._names:
                return []
            found = call(name, read[0])
            rest = rest.lstrip()[read[1] :].strip()
            if found is None or (rest and not rest.startswith(CALLS)):
                return []
            calls.append(found)
            rest = rest.removeprefix(CALLS)
        return calls if len(calls) <= CALLS_OF_ANSWER else []
