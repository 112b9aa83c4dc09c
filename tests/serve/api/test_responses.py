"""/v1/responses: what openai's client asks and reads, whole, in streams, with forms and with calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from heed.pipelines import TextGeneration
from heed.serve import Engine, Limits
from heed.serve.api.tools.formats import Hermes
from tests.serve.api.material import ASSISTANT, SYSTEM, USER, chained
from tests.serve.api.serving import Live, running
from tests.serve.api.solo import Scripted, Solo
from tests.serve.api.test_tools import CASES, ONE, TEMPLATES, TOOLS, TWO, spelt, taught_by

PATH = "/v1/responses"
FLAT: list[dict[str, Any]] = [{"type": "function", **one["function"]} for one in TOOLS]
ASKED: dict[str, Any] = {"model": "chain", "input": "hello", "temperature": 0, "max_output_tokens": 22}


@pytest.fixture(scope="module")
def hermes(pipeline: TextGeneration) -> TextGeneration:
    return taught_by(pipeline, TEMPLATES[Hermes])


@pytest.fixture(scope="module")
def scripted(hermes: TextGeneration) -> Iterator[Live]:
    with running(Scripted({"hermes": hermes})) as live:
        yield live


def read(text: str) -> list[dict[str, Any]]:
    """The events of a stream: each has its name before it, they are numbered, nothing follows the last."""
    parts = [part for part in text.split("\n\n") if part and not part.startswith(":")]
    found = []
    for number, part in enumerate(parts):
        name, data = part.split("\n")
        one = json.loads(data.removeprefix("data: "))
        assert name == f"event: {one['type']}"
        assert one["sequence_number"] == number
        found.append(one)
    return found


def without_names(found: dict[str, Any]) -> Any:
    """What two responses to one request have in common."""
    kept = json.loads(json.dumps(found))
    for item in kept["output"]:
        item.pop("id", None)
        item.pop("call_id", None)
    return {name: value for name, value in kept.items() if name not in {"id", "created_at"}}


def test_a_text_is_answered(live: Live, solo: Solo) -> None:
    status, found, _ = live.ask(PATH, {**ASKED, "instructions": "be"})
    assert status == 200, found
    (item,) = found["output"]
    assert (item["role"], item["status"], found["status"]) == ("assistant", "incomplete", "incomplete")
    assert item["content"] == [{"type": "output_text", "text": chained(22, "x"), "annotations": [], "logprobs": []}]
    assert found["incomplete_details"] == {"reason": "max_output_tokens"}
    assert found["usage"]["output_tokens"] == 22
    assert (found["store"], found["previous_response_id"], found["instructions"]) == (False, None, "be")
    assert list(solo.asked[0].prompt) == [SYSTEM, *b"be", USER, *b"hello", ASSISTANT]


@pytest.mark.parametrize("case", [one for one in CASES if CASES[one][0] is Hermes])
def test_a_stream_tells_the_same(scripted: Live, case: str) -> None:
    _, text, wanted = CASES[case]
    scripted.service.engine.script = spelt(text)  # type: ignore[attr-defined]
    asked = {"model": "hermes", "input": "hello", "tools": FLAT, "max_output_tokens": 300}
    status, whole, _ = scripted.ask(PATH, asked)
    assert status == 200, whole
    said = [one["content"][0]["text"] if one["type"] == "message" else one["arguments"] for one in whole["output"]]
    assert said == [one if isinstance(one, str) else one.arguments for one in wanted]
    found = read(scripted.ask(PATH, {**asked, "stream": True})[1])
    assert [one["type"] for one in found[:2]] == ["response.created", "response.in_progress"]
    assert without_names(found[-1]["response"]) == without_names(whole)
    texts = dict.fromkeys(range(len(wanted)), "")
    for one in found:
        if one["type"].endswith(".delta"):
            texts[one["output_index"]] += one["delta"]
    assert list(texts.values()) == said
    done = [one["item"] for one in found if one["type"] == "response.output_item.done"]
    assert done == found[-1]["response"]["output"]


def test_whole_characters_only(live: Live) -> None:
    for count in range(1, 13):
        body = {**ASKED, "max_output_tokens": count}
        whole = live.ask(PATH, body)[1]["output"]
        deltas = [one["delta"] for one in read(live.ask(PATH, {**body, "stream": True})[1]) if "delta" in one]
        text = "".join(one["content"][0]["text"] for one in whole)
        assert "".join(deltas) == text == chained(count, "x")
        assert all("\ufffd" not in one for one in deltas[:-1])


def test_items_are_messages(scripted: Live) -> None:
    engine: Any = scripted.service.engine
    engine.script = spelt("so")
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": ONE.arguments, "id": "fc_1"}
    other = {"type": "function_call", "call_id": "c2", "name": "add", "arguments": TWO.arguments}
    parts = [{"type": "output_text", "text": "Well.", "annotations": [], "logprobs": []}]
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "he"}, {"type": "input_text", "text": "llo"}]},
        {"type": "message", "role": "assistant", "status": "completed", "id": "msg_1", "content": parts},
        call,
        other,
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "3"}]},
    ]
    status, found, _ = scripted.ask(PATH, {"model": "hermes", "input": items, "tools": FLAT})
    assert status == 200, found
    assert list(engine.asked[-1].prompt) == spelt(
        f"<system>weather;add;<user>hello<assistant><tool_call>weather{ONE.arguments}</tool_call>"
        f"<tool_call>add{TWO.arguments}</tool_call>Well.<assistant>weather=rain<assistant>add=3<assistant>"
    )


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "store": ({"store": True}, "store", "nothing is stored"),
    "a response before": ({"previous_response_id": "resp_1"}, "previous_response_id", "nothing is stored"),
    "a conversation": ({"conversation": "c"}, "conversation", "nothing is stored"),
    "in the background": ({"background": True}, "background", "not supported"),
    "thinking": ({"reasoning": {"effort": "high"}}, "reasoning", "not supported"),
    "more": ({"include": ["message.output_text.logprobs"]}, "include", "not supported"),
    "cutting": ({"truncation": "auto"}, "truncation", "not supported"),
    "nothing": ({"input": []}, "input", "needed"),
    "ids": ({"input": [1, 2]}, "input", "needed"),
    "an image": ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input", "type"),
    "a strange item": ({"input": [{"type": "item_reference", "id": "a"}]}, "input", "item_reference"),
    "a type that is none": ({"input": [{"type": {"a": 1}}]}, "input", "not supported"),
    "arguments": (
        {"input": [{"type": "function_call", "call_id": "a", "name": "a", "arguments": "["}]}, "input", "valid JSON",
    ),
    "a strange form": ({"text": {"format": {"type": "grammar"}}}, "text", "it must be"),
    "no schema": ({"text": {"format": {"type": "json_schema"}}}, "text", "schema goes with"),
    "how much is said": ({"text": {"verbosity": "low"}}, "text", "verbosity"),
    "a tool of others": ({"tools": [{"type": "web_search"}]}, "tools", "type"),
    "no tools": ({"tool_choice": "required"}, "", "goes with tools"),
    "chat's limit": ({"max_tokens": 3}, "max_tokens", "unknown"),
    "nothing to write": ({"max_output_tokens": 0}, "max_output_tokens", "1"),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "text"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(live: Live, fields: dict[str, Any], param: str, text: str) -> None:
    status, found, _ = live.ask(PATH, {**ASKED, **fields})
    assert status == 400, found
    assert text in found["error"]["message"]
    assert found["error"]["param"] == (param or None)


def test_what_asks_for_nothing_special_passes(live: Live) -> None:
    neutral = {"store": False, "include": [], "truncation": "disabled", "background": False, "metadata": {}}
    assert live.ask(PATH, {**ASKED, **neutral, "reasoning": None, "tools": []})[0] == 200


def test_what_fails_in_a_stream_is_told(live: Live, solo: Solo) -> None:
    solo.fails = RuntimeError("SECRET")
    last = read(live.ask(PATH, {**ASKED, "stream": True})[1])[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"]["code"] == "request_failed"
    assert "SECRET" not in json.dumps(last)


# --- openai's client ---


@pytest.fixture
def client(real: Live) -> Iterator[Any]:
    openai: Any = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{real.url}/v1", api_key="none", max_retries=0) as found:
        yield found


def test_openai_creates_and_streams(client: Any) -> None:
    whole = client.responses.create(**ASKED)
    assert whole.output_text == chained(22, "x")
    stream = list(client.responses.create(**ASKED, stream=True))
    assert "".join(one.delta for one in stream if one.type == "response.output_text.delta") == chained(22, "x")
    assert stream[-1].response.usage == whole.usage
    more = [{"role": "user", "content": "hello"}, *whole.output, {"role": "user", "content": "so"}]
    assert client.responses.create(**{**ASKED, "input": more}).output_text == chained(22, "x")


def test_openai_parses(client: Any) -> None:
    pytest.importorskip("llguidance")
    from pydantic import BaseModel

    class Found(BaseModel):
        good: bool
        none: None

    asked = {**ASKED, "max_output_tokens": 300, "temperature": 3, "seed": 1}
    seed = {"extra_body": {"seed": asked.pop("seed")}}
    found = client.responses.parse(**asked, **seed, text_format=Found)
    assert isinstance(found.output_parsed, Found)
    with client.responses.stream(**asked, **seed, text_format=Found) as stream:
        kinds = {one.type for one in stream}
        assert stream.get_final_response().output_parsed == found.output_parsed
    assert {"response.created", "response.output_text.delta", "response.completed"} <= kinds


def test_openai_reads_calls(hermes: TextGeneration) -> None:
    openai: Any = pytest.importorskip("openai")
    pytest.importorskip("llguidance")
    with (
        Engine({"hermes": hermes}, Limits(memory=1 << 26, rows=4)) as engine,
        running(engine) as live,
        openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client,
    ):
        asked = {"model": "hermes", "input": "hello", "tools": FLAT, "tool_choice": {"type": "function", "name": "add"}}
        whole = client.responses.create(**asked)
        (call,) = whole.output
        assert (call.type, call.name, set(json.loads(call.arguments))) == ("function_call", "add", {"a"})
        again = [*client.responses.create(**{**asked, "temperature": 0}, stream=True)]
        done = next(one for one in again if one.type == "response.function_call_arguments.done")
        assert set(json.loads(done.arguments)) == {"a"}
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
        more = {**asked, "input": [{"role": "user", "content": "hello"}, call, result], "tool_choice": "none"}
        assert client.responses.create(**more, max_output_tokens=5).output_text
        chats = {"model": "hermes", "messages": [{"role": "user", "content": "hello"}], "tools": TOOLS}
        with client.chat.completions.stream(**chats, tool_choice="required", seed=1, temperature=2) as stream:
            kinds = {one.type for one in stream}
            final = stream.get_final_completion().choices[0].message
        assert "tool_calls.function.arguments.done" in kinds
        message = (
            client.chat.completions.create(**chats, tool_choice="required", seed=1, temperature=2).choices[0].message
        )
        (one,) = message.tool_calls[:1]
        assert one.function.arguments == final.tool_calls[0].function.arguments
        results = [{"role": "tool", "tool_call_id": call.id, "content": "3"} for call in message.tool_calls]
        answered = {**chats, "messages": [*chats["messages"], message, *results], "tool_choice": "none"}
        assert client.chat.completions.create(**answered, max_tokens=5).choices[0].message.content
