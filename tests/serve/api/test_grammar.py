"""Answers of a form, from a model that would never write one by itself: whole, in streams, many at once."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.serve.api.schemas import schema
from tests.serve.api.serving import Live, events

pytest.importorskip("llguidance", reason="llguidance is not installed: pip install heed-attention[serve]")
HELLO = [{"role": "user", "content": "hello"}]
PATH = "/v1/chat/completions"
SCHEMA = {
    "type": "object",
    "properties": {"who": {"enum": ["né", "🎉"]}, "old": {"type": "boolean"}, "more": {"type": ["null"]}},
    "required": ["who", "old", "more"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}


def formed(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}


def test_every_answer_fits_the_schema(real: Live) -> None:
    body = {"model": "chain", "messages": HELLO, "max_tokens": 200, "n": 8, "seed": 1, "temperature": 3}
    status, found, _ = real.ask(PATH, {**body, "response_format": formed(SCHEMA)})
    assert status == 200, found
    answers = [json.loads(one["message"]["content"]) for one in found["choices"]]
    assert {one["finish_reason"] for one in found["choices"]} == {"stop"}
    assert all(set(one) == {"who", "old", "more"} and one["who"] in {"né", "🎉"} for one in answers)
    assert len({json.dumps(one) for one in answers}) > 1, "each answer has a matcher of its own"
    streamed = events(real.ask(PATH, {**body, "stream": True, "response_format": formed(SCHEMA)})[1])
    for index in range(8):
        pieces = [one["delta"].get("content", "") for e in streamed for one in e["choices"] if one["index"] == index]
        assert json.loads("".join(pieces)) == answers[index]


def test_a_regular_expression_is_matched(real: Live) -> None:
    body = {"model": "chain", "prompt": " ", "n": 4, "seed": 2, "max_tokens": 60, "temperature": 2}
    found = real.ask("/v1/completions", {**body, "structured_outputs": {"regex": "[0-9]{3}-(né|好)x?"}})[1]
    assert all(re.fullmatch("[0-9]{3}-(né|好)x?", one["text"]) for one in found["choices"]), found


WRONG: dict[str, dict[str, Any]] = {
    "no schema": {"response_format": {"type": "json_schema"}},
    "a strange type": {"response_format": {"type": "yaml"}},
    "a schema that is none": {"response_format": formed({"type": "cat"})},
    "a schema from elsewhere": {"response_format": formed({"$ref": "http://evil.example/schema.json"})},
    "a large schema": {"response_format": formed({"enum": ["a" * 70_000]})},
    "a regex that is none": {"structured_outputs": {"regex": "(a"}},
    "both": {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
    "no end": {"structured_outputs": {"regex": "a"}, "ignore_eos": True},
}


@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG)
def test_what_is_no_form_is_refused(real: Live, fields: dict[str, Any]) -> None:
    status, found, _ = real.ask(PATH, {"model": "chain", "messages": HELLO, "max_tokens": 5, **fields})
    assert status == 400, found
    assert real.ask("/health")[0] == 200


def test_a_regex_of_billions_of_states_hinders_nobody(real: Live) -> None:
    form = {"regex": "((((a{1,999}){1,999}){1,999}){1,999}b){1,999}"}
    body = {"model": "chain", "messages": HELLO, "max_tokens": 5, "structured_outputs": form}
    assert real.ask(PATH, body)[0] in {200, 400, 500}, "it is compiled as it is met, or refused by a limit"
    assert real.ask("/v1/completions", {"model": "chain", "prompt": " ", "max_tokens": 2})[0] == 200


def answers_fit(real: Live, numbers: range) -> None:
    """Every answer of a model without sense, drawn wildly, is JSON and fits its schema."""
    jsonschema: Any = pytest.importorskip("jsonschema")
    wrong, seen = list[str](), set[str]()
    for number in numbers:
        asked, stream = schema(number), number % 5 == 0
        body = {"model": "chain", "messages": HELLO, "max_tokens": 4000, "seed": number, "temperature": 3}
        status, found, _ = real.ask(PATH, {**body, "stream": stream, "response_format": formed(asked)})
        assert status == 200, (number, found, asked)
        if stream:
            pieces = [one for event in events(found) for one in event["choices"]]
            text, why = "".join(one["delta"].get("content", "") for one in pieces), pieces[-1]["finish_reason"]
        else:
            text, why = found["choices"][0]["message"]["content"], found["choices"][0]["finish_reason"]
        if why != "stop":
            wrong.append(f"{number} is not whole after 4,000 tokens: {text[-80:]!r}")
            continue
        try:
            jsonschema.Draft202012Validator(asked, format_checker=jsonschema.FormatChecker()).validate(json.loads(text))
        except (ValueError, jsonschema.ValidationError) as error:
            wrong.append(f"{number}: {text!r} {error}"[:400])
        seen.add(text)
    assert not wrong, "\n".join(wrong)
    assert len(seen) > len(numbers) // 2, "they are not all alike"


def test_answers_fit_many_schemas(real: Live) -> None:
    answers_fit(real, range(25))


@pytest.mark.slow
def test_answers_fit_500_schemas(real: Live) -> None:
    answers_fit(real, range(25, 525))
