"""/v1/completions over HTTP, on a model whose answers are known."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from heed.pipelines import TextGeneration
from tests.serve.api.material import ASSISTANT, BEGIN, CHAIN, END, chained
from tests.serve.api.serving import Live, events
from tests.serve.api.solo import Solo

PATH = "/v1/completions"


def asked(live: Live, **fields: Any) -> Any:
    status, found, _ = live.ask(PATH, {"model": "chain", "temperature": 0, "max_tokens": 22, **fields})
    assert status == 200, found
    return found


def joined(found: list[dict[str, Any]], index: int = 0) -> str:
    return "".join(one["text"] for event in found for one in event["choices"] if one["index"] == index)


def test_greedy(live: Live) -> None:
    found = asked(live, prompt="ab ")
    assert found["choices"] == [
        {"index": 0, "text": chained(22), "logprobs": None, "finish_reason": "length"},
    ]
    assert chained(22) == CHAIN * 2
    assert found["usage"]["prompt_tokens"], found["usage"]["completion_tokens"] == (3, 22)
    assert found["usage"]["total_tokens"] == 25
    assert found["usage"]["state_bytes"] > 0


@pytest.mark.parametrize("count", range(1, 13))
def test_characters_are_whole_and_a_stream_reads_the_same(live: Live, count: int) -> None:
    whole = asked(live, prompt=" ", max_tokens=count)["choices"][0]["text"]
    assert whole == chained(count)
    _, text, _ = live.ask(
        PATH, {"model": "chain", "prompt": " ", "temperature": 0, "max_tokens": count, "stream": True}
    )
    pieces = [one["text"] for event in events(text) for one in event["choices"]]
    assert "".join(pieces) == whole
    assert all("\ufffd" not in piece for piece in pieces[:-1]), "a character was cut between chunks"


@pytest.mark.parametrize("stop", ["🎉", "é🎉", "好 n", ["好", "🎉"], "n"])
def test_stop_strings_never_leak(live: Live, stop: str | list[str]) -> None:
    fields = {"prompt": " ", "stop": stop, "logprobs": 0}
    found = asked(live, **fields)["choices"][0]
    first = min(chained(40).find(one) for one in ([stop] if isinstance(stop, str) else stop))
    assert found["text"] == chained(40)[:first]
    assert found["finish_reason"] == "stop"
    body = {"model": "chain", "temperature": 0, "max_tokens": 22, "stream": True, **fields}
    streamed = events(live.ask(PATH, body)[1])
    assert joined(streamed) == found["text"]
    told = [
        name for event in streamed for one in event["choices"] for name in (one["logprobs"] or {"tokens": []})["tokens"]
    ]
    assert told == (found["logprobs"] or {"tokens": []})["tokens"]
    assert len(told) == len(found["text"].encode())


def test_an_end_token_ends_and_ignore_eos_goes_on(live: Live) -> None:
    assert asked(live, prompt="!", max_tokens=5)["choices"][0] == {
        "index": 0, "text": "", "logprobs": None, "finish_reason": "stop",
    }  # fmt: skip
    more = asked(live, prompt="!", max_tokens=5, ignore_eos=True)
    assert more["choices"][0]["finish_reason"] == "length"
    assert more["choices"][0]["text"] == chained(4, "x")  # the end token has no text


def test_several_prompts_and_answers(live: Live) -> None:
    found = asked(live, prompt=["né", " "], n=2, max_tokens=4)["choices"]
    assert [one["index"] for one in found] == [0, 1, 2, 3]
    assert [one["text"] for one in found] == [chained(4, "é")] * 2 + [chained(4)] * 2


def test_a_prompt_that_is_answered_twice_was_read_once(live: Live) -> None:
    once, twice = (asked(live, prompt=["né", " "], n=n, max_tokens=4)["usage"] for n in (1, 2))
    assert once["prompt_tokens"] == twice["prompt_tokens"]
    assert 2 * once["completion_tokens"] == twice["completion_tokens"]


def test_ids_are_prompts(live: Live) -> None:
    alone = asked(live, prompt=list(b"ab "))
    assert alone["choices"][0]["text"] == chained(22)
    both = asked(live, prompt=[list(b"ab "), list("né".encode())], max_tokens=3)
    assert [one["text"] for one in both["choices"]] == [chained(3), chained(3, "é")]


def test_draws_follow_the_seed_alone(live: Live) -> None:
    def drawn(**fields: Any) -> list[str]:
        return [one["text"] for one in asked(live, prompt=" ", temperature=1.5, max_tokens=30, **fields)["choices"]]

    first = drawn(seed=7, n=3)
    assert first == drawn(seed=7, n=3)
    assert len(set(first)) == 3
    assert drawn(seed=8) == [first[1]], "answer i draws as a request of its own with seed + i"


def test_bias_forbids_and_forces(real: Live) -> None:
    found = asked(real, prompt=" ", max_tokens=3, logit_bias={str(ord("x")): 100})
    assert found["choices"][0]["text"] == "xxx"


def test_logprobs_are_those_of_the_model(live: Live, pipeline: TextGeneration) -> None:
    found = asked(live, prompt=" ", max_tokens=3, logprobs=2)["choices"][0]["logprobs"]
    assert found["tokens"] == ["n", "bytes:\\xc3", "bytes:\\xa9"]
    logits = pipeline([list(b" n\xc3\xa9")]).logits[0].detach().log_softmax(-1)
    wanted = [float(logits[place, byte]) for place, byte in enumerate(b"n\xc3\xa9")]
    assert found["token_logprobs"] == pytest.approx(wanted, abs=1e-5)
    assert [max(top.values()) for top in found["top_logprobs"]] == pytest.approx(wanted, abs=1e-5)
    assert found["text_offset"] == [0, 1, 1]


def test_a_prompt_is_scored_as_lm_eval_asks(real: Live, pipeline: TextGeneration) -> None:
    ids = [BEGIN, *"né x".encode()]
    found = asked(real, prompt=[ids], max_tokens=1, logprobs=1, echo=True, seed=1234)["choices"][0]
    told = found["logprobs"]
    logits = pipeline([ids]).logits[0].detach().log_softmax(-1)
    wanted = [float(logits[place, index]) for place, index in enumerate(ids[1:])]
    assert told["token_logprobs"][0] is None
    assert told["top_logprobs"][0] is None
    assert told["token_logprobs"][1:-1] == pytest.approx(wanted, abs=1e-5)
    greedy = [
        one == max(top.values()) for one, top in zip(told["token_logprobs"], told["top_logprobs"], strict=True) if top
    ]
    assert greedy == [True, True, True, False, False, True]  # n, é's two bytes; " " and "x" are not what follows
    assert found["text"] == "né xn"
    assert told["text_offset"] == [0, 0, 1, 1, 2, 3, 4]


def test_a_prompt_alone_is_scored(real: Live) -> None:
    found = asked(real, prompt="né", max_tokens=0, logprobs=0, echo=True)["choices"][0]
    assert found["text"] == "né"
    assert len(found["logprobs"]["tokens"]) == 3
    assert found["finish_reason"] == "length"


def test_every_answer_echoes_its_own_prompt(real: Live) -> None:
    found = asked(real, prompt=["né", " "], n=2, max_tokens=2, echo=True)["choices"]
    assert [one["text"] for one in found] == ["né" + chained(2, "é")] * 2 + [" " + chained(2)] * 2


def test_echo_in_a_stream(real: Live) -> None:
    body = {"model": "chain", "prompt": "né", "temperature": 0, "max_tokens": 4, "echo": True, "stream": True}
    found = events(real.ask(PATH, {**body, "stream_options": {"include_usage": True}})[1])
    assert joined(found) == "né" + chained(4, "é")
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["completion_tokens"] == 4


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown": ({"temprature": 1}, "temprature", "did you mean temperature"),
    "of other servers": ({"best_of": 3}, "best_of", "write n"),
    "too great a penalty": ({"frequency_penalty": 2.5}, "frequency_penalty", "2"),
    "tools": ({"tools": [{"type": "function"}]}, "tools", "not supported"),
    "ids of no vocabulary": ({"prompt": [1 << 31]}, "prompt", "beyond every vocabulary"),
    "a wrong type": ({"temperature": "1"}, "temperature", "number"),
    "true is no number": ({"n": True}, "n", "integer"),
    "too many": ({"n": 9}, "n", "8"),
    "too many stops": ({"stop": ["a"] * 5}, "stop", "4"),
    "a long stop": ({"stop": "a" * 65}, "stop", "64"),
    "an empty stop": ({"stop": ""}, "stop", "1"),
    "many logprobs": ({"logprobs": 21}, "logprobs", "20"),
    "an endless answer": ({"max_tokens": 1 << 40}, "max_tokens", "1048576"),
    "no prompt": ({"prompt": []}, "prompt", "needed"),
    "mixed prompts": ({"prompt": ["a", 1]}, "prompt", "needed"),
    "many prompts": ({"prompt": ["a"] * 129}, "prompt", "128"),
    "ids of nothing": ({"prompt": [99999]}, "", "vocabulary"),
    "a negative id": ({"prompt": [-1]}, "prompt", "negative"),
    "a bias of a word": ({"logit_bias": {"cat": 1}}, "logit_bias", "integer"),
    "too great a bias": ({"logit_bias": {"5": 101}}, "logit_bias", "100"),
    "too many biases": ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias", "1,024"),
    "a seed that is none": ({"seed": -1}, "seed", "0"),
    "options of no stream": ({"stream_options": {"include_usage": True}}, "", "stream: true"),
    "many answers": ({"prompt": ["a"] * 40, "n": 8}, "n", "128"),
}


@pytest.mark.parametrize(("fields", "param", "text"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(real: Live, fields: dict[str, Any], param: str, text: str) -> None:
    status, found, _ = real.ask(PATH, {"model": "chain", "prompt": "a", **fields})
    assert status == 400, found
    assert text in found["error"]["message"]
    assert found["error"]["type"] == "invalid_request_error"
    if param:
        assert found["error"]["param"] == param


def test_what_asks_for_nothing_special_passes(live: Live) -> None:
    neutral = {"frequency_penalty": 0, "presence_penalty": 0.0, "best_of": 1, "store": False, "tools": [], "user": None}
    assert asked(live, prompt=" ", max_tokens=3, **neutral)["choices"][0]["text"] == chained(3)


def test_penalties_keep_tokens_away(real: Live) -> None:
    """A token that was written is less probable the more often it was, or once; below 0 it is more so."""
    fields = {"model": "chain", "prompt": " ", "temperature": 0, "max_tokens": 120, "logprobs": 0}

    def written(**more: float) -> list[str]:
        status, found, _ = real.ask(PATH, {**fields, **more})
        assert status == 200, found
        return list(found["choices"][0]["logprobs"]["tokens"])

    plain = written()
    once, often = written(presence_penalty=2), written(frequency_penalty=2)
    assert Counter(plain).most_common(1)[0][1] > Counter(often).most_common(1)[0][1]
    assert len(set(plain)) < len(set(often))
    assert written(presence_penalty=0, frequency_penalty=0) == plain
    assert written(presence_penalty=-2, frequency_penalty=-2) != often
    assert once == written(presence_penalty=2)


def test_an_unknown_model_is_not_found(live: Live) -> None:
    for name in ("other", "../chain", "/etc/passwd"):
        status, found, _ = live.ask(PATH, {"model": name, "prompt": "a"})
        assert (status, found["error"]["param"]) == (404, "model")
        assert "chain" in found["error"]["message"]


def test_settings_reach_the_engine(live: Live, solo: Solo) -> None:
    more = {"frequency_penalty": 0.5, "presence_penalty": -1}
    given = {"top_k": 5, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1, "temperature": 0.7, "seed": 3}
    asked(live, prompt=" ", **given, **more, user="u")
    (request,) = solo.asked
    assert (request.frequency_penalty, request.presence_penalty) == (0.5, -1)
    how = request.sampling.dump()
    assert how == {
        "kind": "sample", "repetition": 1.1, "temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.1, "seed": 3,
    }  # fmt: skip
    assert request.owner == "/u"


def test_names_of_special_tokens(live: Live) -> None:
    assert live.service.models["chain"].namer.name(END) == "</s>"
    assert live.service.models["chain"].namer.bytes(ASSISTANT) == b""
