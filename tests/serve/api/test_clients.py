"""Clients that nobody here wrote: openai's, sync and async, streaming or not; schemathesis on the whole description."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heed.serve.api.app import ROUTES
from tests.serve.api.material import chained
from tests.serve.api.serving import KEY, Live, running, until
from tests.serve.api.solo import Solo

openai: Any = pytest.importorskip("openai")
HELLO: Any = [{"role": "user", "content": "hello"}]
ASKED: dict[str, Any] = {"model": "chain", "temperature": 0, "max_tokens": 22}


def test_openai(real: Live) -> None:
    with openai.OpenAI(base_url=f"{real.url}/v1", api_key="none", max_retries=0) as client:
        assert [one.id for one in client.models.list()] == ["chain"]
        assert client.models.retrieve("chain").id == "chain"
        whole = client.chat.completions.create(messages=HELLO, **ASKED, logprobs=True, top_logprobs=2)
        assert whole.choices[0].message.content == chained(22, "x")
        assert len(whole.choices[0].logprobs.content) == 22
        assert all(len(one.top_logprobs) == 2 for one in whole.choices[0].logprobs.content)
        assert whole.usage.completion_tokens == 22
        stream = client.chat.completions.create(
            messages=HELLO, **ASKED, stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
        assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == chained(22, "x")
        assert chunks[-1].usage == whole.usage
        text = client.completions.create(prompt=["né", " "], **ASKED, extra_body={"top_k": 3, "ignore_eos": True})
        assert [one.text for one in text.choices] == [chained(22, "é"), chained(22)]
        parts = client.completions.create(prompt=" ", **ASKED, stream=True)
        assert "".join(one.choices[0].text for one in parts) == chained(22)


def test_openai_async(real: Live) -> None:
    async def asked() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{real.url}/v1", api_key="none", max_retries=0) as client:

            async def one(number: int) -> str:
                if number % 2:
                    found = await client.chat.completions.create(messages=HELLO, **ASKED)
                    return str(found.choices[0].message.content)
                chunks = await client.chat.completions.create(messages=HELLO, **ASKED, stream=True)
                return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

            return await asyncio.gather(*map(one, range(12)))

    assert set(asyncio.run(asked())) == {chained(22, "x")}


def test_errors_are_those_that_openai_raises(solo: Solo) -> None:
    with running(solo, keys=(KEY,)) as live:
        base = f"{live.url}/v1"
        with (
            openai.OpenAI(base_url=base, api_key="sk-wrong", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError, match="key"),
        ):
            client.models.list()
        with openai.OpenAI(base_url=base, api_key=KEY, max_retries=0) as client:
            with pytest.raises(openai.NotFoundError) as missing:
                client.completions.create(model="none", prompt="a")
            assert missing.value.param == "model"
            with pytest.raises(openai.BadRequestError, match="best_of") as wrong:
                client.completions.create(model="chain", prompt="a", best_of=3)
            assert (wrong.value.param, wrong.value.code) == ("best_of", "unsupported_field")
            solo.full = True
            with pytest.raises(openai.RateLimitError):
                client.completions.create(model="chain", prompt="a")


def test_leaving_a_stream_ends_it(live: Live, solo: Solo) -> None:
    solo.pause = 0.02
    asked = {**ASKED, "max_tokens": 400, "prompt": " ", "stream": True}
    with openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client:
        stream = client.completions.create(**asked)
        next(iter(stream))
        stream.close()
    until(lambda: solo.cancelled)


@pytest.mark.parametrize("examples", [3, pytest.param(25, marks=pytest.mark.slow)])
def test_the_description_holds_for_whatever_is_sent(real: Live, examples: int) -> None:
    """Requests that fit the description, and those that do not: never a failure of the server."""
    schemathesis: Any = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

    schema = schemathesis.openapi.from_url(f"{real.url}/openapi.json")
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) == len(ROUTES) - 1, "all but the description itself"
    quick = settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    for operation in operations:

        @quick
        @given(case=operation.as_strategy())
        def holds(case: Any) -> None:
            if isinstance(case.body, dict) and case.body.get("stream"):
                case.body["stream"] = False
                case.body.pop("stream_options", None)
            case.call_and_validate(checks=[not_a_server_error, status_code_conformance, response_schema_conformance])

        holds()
