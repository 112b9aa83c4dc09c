"""The studio's server: who may ask, what is refused, several pages at once, and readings that were let go."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heed.studio import Studio, studio_of
from heed.studio import studio as studio_module
from heed.studio.page import page
from tests.studio.serving import TOKEN, Live, running, studio_of_recorded
from tests.test_architecture import ROOT
from tests.weights.support import GOLDEN

GIVEN = {"model": "recorded", "text": "1 2 3"}


def refused(live: Live, path: str, status: int, body: object = None, **query: Any) -> str:
    """The message of a refusal, which must be one of this status."""
    found, raw = live.ask(path, body, **query)
    assert found == status, raw
    return str(json.loads(raw)["error"]["message"])


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (f"/{TOKEN}/", {}, 200),
        ("/", {}, 404),
        (f"/{TOKEN[:-1]}/", {}, 404),
        (f"/{TOKEN}x/api/opened", {}, 404),
        (f"/{TOKEN}/api/opened", {}, 200),
        (f"/{TOKEN}/api/opened", {"host": "evil.example"}, 421),
        (f"/{TOKEN}/api/opened", {"host": "127.0.0.1.evil.example"}, 421),
        (f"/{TOKEN}/api/opened", {"origin": "https://evil.example"}, 403),
        (f"/{TOKEN}/api/opened", {"origin": "null"}, 403),
        (f"/{TOKEN}/../../etc/passwd", {}, 404),
        (f"/{TOKEN}/api/%2e%2e/%2e%2e/etc/passwd", {}, 404),
    ],
)
def test_pages_of_others_learn_nothing(gpt2: Live, path: str, headers: dict[str, str], status: int) -> None:
    found, raw = gpt2.ask(path, headers=headers, whole=True)
    assert found == status
    assert status == 200 or b"recorded" not in raw


def test_a_form_of_another_site_is_no_request(gpt2: Live) -> None:
    status, _ = gpt2.ask("api/read", GIVEN, headers={"content-type": "text/plain"})
    assert status == 415


def test_the_page_may_run_what_is_in_it_and_ask_this_server_alone() -> None:
    text, rules = page()
    assert b"http://" not in text.replace(b"http://www.w3.org/", b"")  # names of SVG and MathML, which are not asked
    assert "connect-src 'self'" in rules
    assert "unsafe" not in rules
    assert "default-src 'none'" in rules


def test_what_cannot_be_is_refused_in_words(gpt2: Live) -> None:
    key = gpt2.json("api/read", GIVEN)["id"]
    at = {"id": key, "part": "self", "layer": 0, "head": "0"}
    assert "there is no model 'other'" in refused(gpt2, "api/read", 400, {**GIVEN, "model": "other"})
    assert "empty" in refused(gpt2, "api/read", 400, {**GIVEN, "text": "  "})
    assert "something else" in refused(gpt2, "api/read", 400, {**GIVEN, "text": "<b>no ids</b>"})
    assert "unknown" in refused(gpt2, "api/read", 400, {**GIVEN, "txet": "1"})
    assert "there is no token 99999" in refused(gpt2, "api/read", 400, {"model": "recorded", "ids": [1, 99999]})
    assert "there is no layer 7" in refused(gpt2, "api/map", 400, **{**at, "layer": 7})
    assert "no head 9" in refused(gpt2, "api/map", 400, **{**at, "head": "9"})
    assert "a head is a number" in refused(gpt2, "api/map", 400, **{**at, "head": "../x"})
    assert "no part 'cross'" in refused(gpt2, "api/map", 400, **{**at, "part": "cross"})
    assert "outside" in refused(gpt2, "api/exact", 400, **at, row=99, column=0)
    assert "whole number" in refused(gpt2, "api/exact", 400, **at, row="-1", column=0)
    assert "read it again" in refused(gpt2, "api/map", 410, **{**at, "id": "unknown"})


def test_only_kinds_are_drawn_and_no_files(gpt2: Live, tmp_path: Path) -> None:
    (tmp_path / "mask.toml").write_text('kind = "causal"')
    for kind in (str(tmp_path / "mask.toml"), "../mask.toml", "lstm2"):
        assert "there is no mask" in refused(gpt2, "api/drawn", 400, {"what": "mask", "kind": kind})
    assert "1 to 128 tokens" in refused(gpt2, "api/drawn", 400, {"what": "mask", "kind": "causal", "tokens": 5000})
    assert "kernel" in refused(gpt2, "api/drawn", 400, {"what": "kernel", "kind": "gaussian"})
    for what, some in gpt2.json("api/kinds").items():
        for one in some:
            found = gpt2.json("api/drawn", {"what": what, **one, "tokens": 32})
            assert len(found["squares"][0]["values"]) == 32, one


def test_long_texts_are_refused_before_anything_is_computed() -> None:
    studio = studio_of(GOLDEN / "rwkv/lm_state")  # it has places for any number of tokens
    (name,) = studio.sources
    with running(studio) as live:
        said = refused(live, "api/read", 400, {"model": name, "text": "1 " * 100_000})
        assert "100,000 tokens" in said
        assert "at most 4,096" in said
        assert "1,048,577" in refused(live, "api/read", 400, {"model": name, "text": "1" * 1_048_577})


def test_two_browsers_at_once_get_what_each_asked_for(gpt2: Live) -> None:
    key = gpt2.json("api/read", GIVEN)["id"]
    found: dict[int, bytes] = {}

    def ask(number: int) -> None:
        at = {"id": key, "part": "self", "layer": number % 2, "head": str(number % 4)}
        found[number] = gpt2.ask("api/map", **at)[1]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reading = gpt2.studio.reading(key)
    for number, raw in found.items():
        wanted = reading.weights(reading.layer("self", number % 2))[number % 4]
        np.testing.assert_array_equal(np.frombuffer(raw.split(b"\n", 1)[1], "<f4").reshape(wanted.shape), wanted)


def test_readings_are_let_go_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studio_module, "READINGS", 2)
    studio, m, _ = studio_of_recorded("gpt2/lm")
    del m.inspect  # it reads the ids that are sent
    with running(studio) as live:
        first, *others = (live.json("api/read", {"model": "recorded", "ids": [n, n + 1]})["id"] for n in range(3))
        assert live.ask("api/thumbnails", id=first, part="self")[0] == 410
        assert all(live.ask("api/thumbnails", id=one, part="self")[0] == 200 for one in others)


def test_a_table_is_no_program(tmp_path: Path) -> None:
    from heed.studio.maps import comma_separated

    table = comma_separated(np.ones((2, 2), np.float32), ("=1+1", 'a"b'), ("@x", "\t=y"))
    assert table.splitlines()[0] == '"","\'@x","\'\t=y"'
    assert table.splitlines()[1].startswith('"\'=1+1",')
    assert table.splitlines()[2].startswith('"a""b",')


def test_only_what_was_opened_can_be_opened(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "config.json").write_text("{}")
    (tmp_path / "elsewhere").symlink_to(GOLDEN / "gpt2" / "lm")
    studio = studio_of(tmp_path)
    assert list(studio.sources) == ["one"]
    assert isinstance(studio, Studio)
    with running(studio) as live:
        assert "no model '../one'" in refused(live, "api/model", 400, model="../one")


def test_a_mechanism_says_what_it_is(gpt2: Live) -> None:
    key = gpt2.json("api/read", GIVEN)["id"]
    told = gpt2.json("api/about", id=key, part="self", layer=0)
    assert told["kind"] == "Attention"
    assert "softmax" in told["text"]
    assert "Vaswani" in told["paper"]
    assert (ROOT / told["page"]).is_file()
