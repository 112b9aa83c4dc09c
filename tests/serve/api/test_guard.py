"""What keeps strangers out, one test per line of the list: hosts, sites, keys, bodies, queues, logs."""

from __future__ import annotations

import base64
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heed.core.errors import ConfigError, InputError
from heed.serve.api.app import ROUTES
from heed.serve.api.wire.guard import Guard, Keys
from tests.serve.api.serving import KEY, OTHER, Live, events, running, until
from tests.serve.api.solo import Solo

BODY = {"model": "chain", "prompt": " ", "temperature": 0, "max_tokens": 2}
BEARER = {"Authorization": f"Bearer {KEY}"}
PATH = "/v1/completions"


@pytest.fixture
def keyed(solo: Solo) -> Iterator[Live]:
    with running(solo, keys=(KEY, OTHER)) as server:
        yield server


# --- hosts and sites ---


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "[::2]"])
def test_a_strange_host_is_not_answered(live: Live, host: str) -> None:
    status, found, _ = live.ask("/v1/models", headers={"Host": host})
    assert status in {400, 421}, found  # an empty one is no HTTP
    assert live.ask("/health", headers={"Host": host})[0] in {400, 421}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"])
def test_this_machine_has_several_names(live: Live, host: str) -> None:
    assert live.ask("/v1/models", headers={"Host": host})[0] == 200


def test_pages_of_other_sites_may_not_call(live: Live, solo: Solo) -> None:
    assert live.ask(PATH, BODY, headers={"Origin": "http://evil.example"})[0] == 403
    assert live.ask(PATH, BODY, headers={"Origin": "null"})[0] == 403
    assert live.ask(PATH, BODY, headers={"Origin": f"http://127.0.0.1:{live.port}"})[0] == 200
    assert len(solo.asked) == 1


def test_forms_are_no_json(live: Live) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert live.ask(PATH, BODY, headers={"Content-Type": kind})[0] == 415


def test_others_are_let_in_with_keys_only(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="api-key-file"):
        Guard.of(Keys({}), "0.0.0.0")
    for host in ("127.0.0.1", "localhost", "::1"):
        Guard.of(Keys({}), host)
    (tmp_path / "keys").write_text(f"# mine\n\n{KEY}\n")
    Guard.of(Keys.read(tmp_path / "keys"), "0.0.0.0")


# --- keys ---


@pytest.mark.parametrize("route", [one for one in ROUTES if not one.open], ids=lambda one: one.path)
def test_every_route_is_denied_without_a_key(keyed: Live, route: Any) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY}, {"Authorization": "Bearer"}):
        status, found, response = keyed.ask(route.path, BODY if route.asks else None, headers=headers)
        assert status == 401, (route.path, found)
        assert found["error"]["type"] == "authentication_error"
        assert response.headers["www-authenticate"]


@pytest.mark.parametrize("path", ["/nothing", "/v1", "//v1/models", "/health/../v1/models", "/v1/models%00", "/HEALTH"])
def test_what_is_no_route_is_denied_too(keyed: Live, path: str) -> None:
    assert keyed.ask(path)[0] == 401
    assert keyed.ask(path, headers=BEARER)[0] == 404


def test_health_alone_is_open(keyed: Live) -> None:
    assert [route.path for route in ROUTES if route.open] == ["/health"]
    assert keyed.ask("/health")[0] == 200
    assert keyed.ask("/health", b"{}", method="POST")[0] == 401


def test_a_key_opens(keyed: Live, solo: Solo) -> None:
    assert keyed.ask(PATH, BODY, headers=BEARER)[0] == 200
    assert keyed.ask(PATH, BODY, headers={"Authorization": f"bearer  {OTHER}"})[0] == 200
    password = base64.b64encode(f"me:{KEY}".encode()).decode()
    assert keyed.ask("/", headers={"Authorization": f"Basic {password}"})[0] == 200
    assert keyed.ask("/")[2].headers["www-authenticate"].startswith("Basic")  # a browser asks for it by itself
    first, second = (request.owner for request in solo.asked)
    assert first != second, "requests of two keys have two owners, so they share no prefix"
    assert KEY not in first


def test_keys_are_compared_in_the_same_time(keyed: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def noted(a: bytes, b: bytes) -> bool:
        seen.append((a, b))
        return compare(a, b)

    monkeypatch.setattr(hmac, "compare_digest", noted)
    keyed.ask("/v1/models", headers=BEARER)
    assert len(seen) == 2, "every key is compared, by compare_digest"
    assert {len(one) for pair in seen for one in pair} == {32}


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "short\n", "with space 0123456789\n", "ключ-0123456789abcdef\n", "k" * 513]
)
def test_a_file_of_bad_keys_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "keys").write_text(text)
    with pytest.raises(ConfigError, match="key"):
        Keys.read(tmp_path / "keys")
    with pytest.raises(ConfigError, match="cannot be read"):
        Keys.read(tmp_path / "none")


# --- bodies ---

HOSTILE: dict[str, tuple[bytes, int]] = {
    "too large": (b'{"model": "' + b"a" * 40_000 + b'"}', 413),
    "deep lists": (b"[" * 30_000, 400),
    "deep objects": (b'{"a":' * 4_000 + b"1" + b"}" * 4_000, 400),
    "deep in a field": (b'{"model": "chain", "prompt": ' + b"[" * 190 + b"]" * 190 + b"}", 400),
    "NaN": (b'{"model": "chain", "prompt": "a", "temperature": NaN}', 400),
    "Infinity": (b'{"model": "chain", "prompt": "a", "temperature": Infinity}', 400),
    "a number without end": (b'{"model": "chain", "prompt": "a", "temperature": 1e999}', 400),
    "an integer without end": (b'{"model": "chain", "prompt": "a", "seed": ' + b"9" * 30_000 + b"}", 400),
    "not UTF-8": (b'{"model": "chain", "prompt": "\xff"}', 400),
    "half a surrogate": (b'{"model": "chain", "prompt": "\\ud800"}', 400),
    "a list": (b"[]", 400),
    "nothing": (b"", 400),
    "not JSON": (b"model=chain", 400),
    "twice": (b'{"model": "chain"}{"model": "chain"}', 400),
}


@pytest.mark.parametrize(("raw", "status"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_bodies_are_refused(solo: Solo, raw: bytes, status: int) -> None:
    with running(solo, body=32_768) as live:
        got, found, _ = live.ask(PATH, raw)
        assert got == status, found
        assert found["error"]["message"]
        assert len(json.dumps(found)) < 3_000, "an answer does not give a large body back"
        assert found["error"]["code"] == "invalid_json" or not any(word in raw for word in (b"NaN", b"Infinity"))
        assert live.ask("/health")[0] == 200
    assert not solo.asked


def test_a_body_without_a_length_is_bounded_too(solo: Solo) -> None:
    with running(solo, body=32_768) as live, live.raw() as wire:
        wire.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n")
        wire.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        wire.sendall(b"8000\r\n" + b" " * 0x8000 + b"\r\n" + b"1000\r\n" + b" " * 0x1000 + b"\r\n")
        assert wire.recv(100).startswith(b"HTTP/1.1 413")


MANY: dict[str, Any] = {
    "stops": {"stop": ["a"] * 10**6},
    "ids": {"prompt": [1] * 10**6 + [-1]},
    "prompts": {"prompt": ["a"] * 10**6},
    "biases": {"logit_bias": {str(index): 1 for index in range(10**5)}},
    "fields": {f"f{index}": 1 for index in range(10**5)},
    "messages": {"messages": [{"role": "user", "content": "a"}] * 10**5},
}


@pytest.mark.parametrize("fields", MANY.values(), ids=MANY)
def test_a_million_of_anything_is_refused_at_once(live: Live, fields: dict[str, Any]) -> None:
    raw = json.dumps({"model": "chain", "prompt": "a", **fields}, separators=(",", ":")).encode()
    path = "/v1/chat/completions" if "messages" in fields else PATH
    begin = time.monotonic()
    status, found, _ = live.ask(path, raw)
    assert status == 400, found
    assert len(json.dumps(found)) < 3_000
    assert time.monotonic() - begin < 10, "most of it is a busy machine; a bound that is not there takes minutes"


def test_a_request_of_many_fields_is_not_looked_through(live: Live) -> None:
    status, found, _ = live.ask(PATH, {**BODY, **{f"f{index}": 1 for index in range(200)}})
    assert (status, found["error"]["message"]) == (400, "204 fields; a request has at most 128")


# --- queues, and what is told ---


def test_so_many_texts_are_prepared_at_once(live: Live) -> None:
    live.service._preparing = live.service.bounds.texts
    status, found, response = live.ask("/tokenize", {"model": "chain", "prompt": "a"})
    assert (status, found["error"]["code"], response.headers["retry-after"]) == (429, "busy", "1")
    live.service._preparing -= 1
    assert live.ask("/tokenize", {"model": "chain", "prompt": "a"})[0] == 200


def test_a_full_queue_says_when_to_come_again(live: Live, solo: Solo) -> None:
    solo.full = True
    status, found, response = live.ask(PATH, {**BODY, "stream": True})
    assert (status, response.headers["retry-after"]) == (429, "3")
    assert found["error"]["type"] == "rate_limit_error"


def test_a_dead_engine_is_told(live: Live, solo: Solo) -> None:
    solo.dead = True
    assert live.ask(PATH, BODY)[0] == 503


def test_a_failure_is_told_without_its_message(live: Live, solo: Solo, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("SECRET of the prompt")

    monkeypatch.setattr(solo, "submit", broken)
    status, found, _ = live.ask(PATH, BODY)
    assert status == 500
    assert "SECRET" not in json.dumps(found)
    (failure,) = [line for line in live.lines() if line["event"] == "failure"]
    assert failure["kind"] == "RuntimeError"
    assert any("broken" in place for place in failure["places"])
    assert "SECRET" not in live.log.getvalue()


@pytest.mark.parametrize("error", [RuntimeError("SECRET"), InputError("the constraint allows nothing")])
def test_a_failure_ends_its_request_alone(live: Live, solo: Solo, error: Exception) -> None:
    solo.fails = error
    body = {**BODY, "max_tokens": 9}
    status, found, _ = live.ask(PATH, body)
    assert (status, found["error"]["code"]) == (500, "request_failed")
    status, text, _ = live.ask(PATH, {**body, "stream": True})
    *pieces, last = events(text)
    assert status == 200
    assert "".join(one["choices"][0]["text"] for one in pieces) == "né"
    assert last["error"] == found["error"]
    assert ("SECRET" in text, "allows nothing" in text) == (False, isinstance(error, InputError))
    until(lambda: sum(line["event"] == "failure" for line in live.lines()) == 2)
    assert "SECRET" not in live.log.getvalue()
    assert [line["kind"] for line in live.lines() if line["event"] == "failure"] == [type(error).__name__] * 2
    solo.fails = None
    assert live.ask(PATH, BODY)[0] == 200


def test_the_log_holds_no_prompts_answers_keys_or_queries(keyed: Live) -> None:
    secret = "xyzzy-secret"
    chat = {"model": "chain", "messages": [{"role": "user", "content": secret}], "max_tokens": 2, "user": secret}
    keyed.ask(PATH, {**BODY, "prompt": secret}, headers=BEARER)
    keyed.ask("/v1/chat/completions", chat, headers=BEARER)
    keyed.ask(PATH, {**BODY, secret: 1}, headers=BEARER)
    keyed.ask(f"/{secret}?{secret}", headers=BEARER)
    keyed.ask(PATH, {"model": secret, "prompt": "a"}, headers=BEARER)
    keyed.ask("/v1/models", headers={"Authorization": f"Bearer {secret}"})
    keyed.ask("/v1/models", headers={"Origin": secret})
    until(lambda: len(keyed.lines()) == 7)
    text = keyed.log.getvalue()
    assert secret not in text
    assert KEY not in text
    lines = [line for line in keyed.lines() if line["event"] == "request"]
    assert [line["status"] for line in lines] == [200, 200, 400, 404, 404, 401, 403]
    assert lines[0]["tokens"] == 2
    assert lines[0]["owner"]


def test_headers_that_browsers_obey(live: Live) -> None:
    _, text, response = live.ask("/")
    rules = response.headers["content-security-policy"]
    assert "default-src 'none'" in rules
    assert "unsafe" not in rules
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert "https://" not in text, "nothing comes from elsewhere"
    assert "server" not in response.headers
