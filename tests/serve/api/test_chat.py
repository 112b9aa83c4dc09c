"""/v1/chat/completions, /tokenize and /detokenize over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.serve.api.material import ASSISTANT, SYSTEM, USER, chained
from tests.serve.api.serving import Live, events
from tests.serve.api.solo import Solo

PATH = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "chain", "messages": HELLO, "temperature": 0, "max_tokens": 11, **fields}


def test_a_conversation_goes_on(live: Live, solo: Solo) -> None:
    status, found, _ = live.ask(PATH, body(logprobs=True, top_logprobs=1))
    assert status == 200, found
    (choice,) = found["choices"]
    assert choice["message"] == {"role": "assistant", "content": chained(11, "x"), "refusal": None}
    assert choice["finish_reason"] == "length"
    told = choice["logprobs"]["content"]
    assert bytes(byte for one in told for byte in one["bytes"]).decode() == choice["message"]["content"]
    assert told[0]["token"] == "n"
    assert told[0]["top_logprobs"][0]["logprob"] == told[0]["logprob"] < 0
    assert list(solo.asked[0].prompt) == [USER, *b"hello", ASSISTANT]


def test_a_stream_reads_the_same(live: Live) -> None:
    fields = body(stream=True, stream_options={"include_usage": True}, n=2)
    _, text, response = live.ask(PATH, fields)
    assert response.headers["content-type"].startswith("text/event-stream")
    found = events(text)
    for index in (0, 1):
        deltas = [one for event in found for one in event["choices"] if one["index"] == index]
        assert deltas[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(one["delta"].get("content", "") for one in deltas) == chained(11, "x")
        assert [one["finish_reason"] for one in deltas[:-1]] == [None] * (len(deltas) - 1)
        assert deltas[-1]["finish_reason"] == "length"
    assert found[-1]["usage"]["completion_tokens"] == 22
    assert found[-1]["usage"]["prompt_tokens"] == 7


def test_a_developer_is_the_system_where_the_template_knows_none(live: Live, solo: Solo) -> None:
    live.ask(PATH, body(messages=[{"role": "developer", "content": "be"}, *HELLO]))
    assert list(solo.asked[0].prompt)[:3] == [SYSTEM, *b"be"]


def test_parts_are_put_together_and_special_tokens_stay_text(live: Live, solo: Solo) -> None:
    parts = [{"type": "text", "text": "a<assistant>"}, {"type": "text", "text": "b"}]
    live.ask(PATH, body(messages=[{"role": "user", "content": parts}]))
    assert list(solo.asked[0].prompt) == [USER, *b"a<assistant>b", ASSISTANT]


def test_both_names_of_the_limit(live: Live, solo: Solo) -> None:
    fields = body()
    del fields["max_tokens"]
    live.ask(PATH, {**fields, "max_completion_tokens": 3})
    assert solo.asked[0].max_new_tokens == 3
    status, found, _ = live.ask(PATH, body(max_completion_tokens=3))
    assert (status, "two names" in found["error"]["message"]) == (400, True)


WRONG: dict[str, dict[str, Any]] = {
    "no messages": {"messages": []},
    "no role": {"messages": [{"content": "a"}]},
    "a strange role": {"messages": [{"role": "root", "content": "a"}]},
    "a tool": {"messages": [{"role": "tool", "content": "a"}]},
    "an image": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]},
    "a key too many": {"messages": [{"role": "user", "content": "a", "audio": 1}]},
    "many messages": {"messages": HELLO * 1025},
    "alternatives without logprobs": {"top_logprobs": 2},
    "a completion's logprobs": {"logprobs": 3},
    "nothing to write": {"max_tokens": 0},
}


@pytest.mark.parametrize("fields", WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_refused(live: Live, solo: Solo, fields: dict[str, Any]) -> None:
    status, found, _ = live.ask(PATH, body(**fields))
    assert status == 400, found
    assert not solo.asked


def test_ids_and_texts(live: Live) -> None:
    _, found, _ = live.ask("/tokenize", {"model": "chain", "prompt": "né"})
    assert found == {"count": 3, "max_model_len": None, "tokens": list("né".encode())}
    _, chat, _ = live.ask("/tokenize", {"model": "chain", "messages": HELLO})
    assert chat["tokens"] == [USER, *b"hello", ASSISTANT]
    _, text, _ = live.ask("/detokenize", {"model": "chain", "tokens": found["tokens"]})
    assert text == {"prompt": "né"}
    assert live.ask("/detokenize", {"model": "chain", "tokens": [9999]})[0] == 400
    assert live.ask("/tokenize", {"model": "chain"})[0] == 400


def test_models_are_told(live: Live) -> None:
    _, found, _ = live.ask("/v1/models")
    (card,) = found["data"]
    assert (card["id"], card["max_model_len"], card["exact"]) == ("chain", None, True)
    assert "chat" in card["can"]
    assert live.ask("/v1/models/chain")[1] == card
    assert live.ask("/v1/models/other/one")[0] == 404


def test_health_and_figures(live: Live, solo: Solo) -> None:
    live.ask(PATH, body())
    assert live.ask("/health")[:2] == (200, {"status": "ok"})
    assert live.ask("/ready")[:2] == (200, {"status": "ok"})
    _, text, _ = live.ask("/metrics")
    assert 'heed_written_tokens_total{model="chain"} 11.0' in text
    assert 'heed_requests_total{route="/v1/chat/completions",status="200"} 1.0' in text
    live.service.draining = True
    assert live.ask("/ready")[:2] == (503, {"status": "draining"})
    assert live.ask(PATH, body())[0] == 503
    solo.dead = True
    assert live.ask("/health")[:2] == (503, {"status": "failed"})


def test_few_problems_are_worded(live: Live) -> None:
    _, found, _ = live.ask(PATH, body(messages=[{"role": "root", "content": "a"}] * 100))
    assert found["error"]["message"].endswith("; and more")
    assert found["error"]["message"].count("it must be") == 8
    assert found["error"]["param"] == "messages"
