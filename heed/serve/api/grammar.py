"""Answers of a form: JSON by a schema, or what a regular expression matches. llguidance says which tokens may follow.

Grammars are compiled within its limits, off the event loop; each answer has a matcher of its own.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ...core.errors import InputError, MissingExtra
from ...text import Tokenizer
from .shapes.requests import Generating
from .wire.refusal import Refusal

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

ANY = {"type": "object"}  # of response_format json_object


class Grammar:
    """Which tokens may follow those that were written: a constraint for `Request.allow`, asked once for every token."""

    def __init__(self, matcher: LLMatcher, vocabulary: int, ends: Collection[int]) -> None:
        self._matcher, self._vocabulary, self._ends = matcher, vocabulary, tuple(ends)
        self._read = 0  # tokens that the matcher has seen

    def fresh(self) -> Grammar:
        """The same for another answer, of which nothing is written yet."""
        return Grammar(self._matcher.deep_copy(), self._vocabulary, self._ends)

    def __call__(self, written: tuple[int, ...]) -> Tensor | Collection[int]:
        for token in written[self._read :]:
            self._matcher.consume_token(token)
        self._read = len(written)
        if self._matcher.is_stopped() and not self._matcher.is_error():
            return self._ends
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        if self._matcher.is_error():
            raise InputError(f"the format cannot be followed any further: {self._matcher.get_error()[:200]}")
        found = np.unpackbits(bits, bitorder="little")[: self._vocabulary].astype(bool)
        mask = torch.zeros(self._vocabulary, dtype=torch.bool)
        mask[: len(found)] = torch.from_numpy(found)
        return mask


class Grammars:
    """What compiles formats for one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, ends: Collection[int]) -> None:
        if find_spec("llguidance") is None:
            raise MissingExtra.of("llguidance", "serve")
        if not ends:
            raise InputError("this model has no token that ends an answer, which a format needs")
        self._vocabulary, self._ends = vocabulary, ends
        self._tokenizer = _guiding(tokenizer, list(ends))

    def of(self, asked: Generating, calls: str = "") -> Grammar | None:
        """The grammar of what was asked for, if it was a format; or that of tool calls, in llguidance's Lark."""
        from llguidance import LLMatcher

        source, field = (str(LLMatcher.grammar_from_lark(calls)), "tools") if calls else _source(asked)
        if not source:
            return None
        if asked.ignore_eos:
            raise Refusal(400, f"{field} ends an answer, and ignore_eos goes on; leave out one", "ignore_eos")
        matcher = LLMatcher(self._tokenizer, source, log_level=0)
        if matcher.is_error():
            raise Refusal(400, f"{field}: {matcher.get_error()[:500]}", field, code="invalid_format")
        return Grammar(matcher, self._vocabulary, self._ends)


def wants_format(asked: Generating) -> bool:
    """Whether an answer must have a form."""
    given = asked.response_format
    return asked.structured_outputs is not None or (given is not None and given.type != "text")


def _source(asked: Generating) -> tuple[str, str]:
    """The grammar as llguidance takes it, and the field that it is of."""
    from llguidance import LLMatcher

    given, other = asked.response_format, asked.structured_outputs
    if other is not None:
        return str(LLMatcher.grammar_from_regex(other.regex)), "structured_outputs"
    if given is None or given.type == "text":
        return "", ""
    schema: dict[str, Any] = ANY if given.json_schema is None else given.json_schema.schema_ or {}
    try:
        return str(LLMatcher.grammar_from_json_schema(json.dumps(schema, allow_nan=False))), "response_format"
    except ValueError as error:
        raise Refusal(400, f"response_format: {error}", "response_format", code="invalid_format") from None


def _guiding(tokenizer: Tokenizer, ends: list[int]) -> LLTokenizer:
    """The tokenizer as llguidance reads it: a file, since a text would be taken for the name of one on the hub."""
    from llguidance import LLTokenizer

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "tokenizer.json"
        tokenizer.save(place)
        try:
            return LLTokenizer(str(place), eos_token=ends)
        except ValueError as error:
            raise InputError(f"this tokenizer cannot be guided: {error}") from None
