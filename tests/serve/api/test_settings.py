"""What `heed serve` takes: names of models, a file, amounts of memory; and what it says before anything is loaded."""

from __future__ import annotations

import re
import socket
import tomllib
from pathlib import Path

import pytest

from heed.core.errors import ConfigError, InputError
from heed.serve.api import NEEDED
from heed.serve.api.settings import ServeConfig, bytes_of, merged, named
from tests.cli.support import Shell
from tests.documents import ROOT

FILE = """
port = 9000
memory = "2GiB"
api_key_file = "keys"

[models]
small = "runs/small"
big = { path = "runs/big", quantise = "int8" }

[limits]
body = 4096
"""


@pytest.fixture
def heed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.setenv("COLUMNS", "120")
    return Shell(monkeypatch, capsys)


def test_models_are_called_by_their_folder_their_id_or_as_is_said(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "llama.gguf").touch()
    places = [str(tmp_path / "small") + "/", str(tmp_path / "llama.gguf"), "org/name"]
    assert list(named(places, ["x=a=b"])) == ["small", "llama", "org/name", "x"]
    assert named([], ["x=a=b"]) == {"x": "a=b"}
    with pytest.raises(InputError, match="two models are called 'small'"):
        named(places, [f"small={tmp_path}"])
    with pytest.raises(InputError, match="NAME=PATH"):
        named([], ["small"])


def test_the_command_line_goes_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text(FILE)
    found = merged(tmp_path / "serve.toml", {"port": 1, "host": None, "memory": "64KiB"}, {"more": "m"}, None)
    assert (found.port, found.memory, found.host, found.api_key_file) == (1, 1 << 16, "127.0.0.1", "keys")
    assert {name: one.path for name, one in found.models.items()} == {
        "small": "runs/small", "big": "runs/big", "more": "m",
    }  # fmt: skip
    assert [one.quantise for one in found.models.values()] == [None, "int8", None]
    assert found.limits.body == 4096
    assert {one.quantise for one in merged(None, {}, {"a": "b"}, "int4").models.values()} == {"int4"}
    with pytest.raises(InputError, match="no model is named"):
        merged(None, {}, {}, None)


def test_the_file_of_the_docs_is_one() -> None:
    page = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    found = ServeConfig.load(tomllib.loads(block))
    assert set(found.models) == {"small", "chat"}


def test_what_a_file_may_not_hold_is_named(tmp_path: Path) -> None:
    for text, problem in {
        "prot = 1": "did you mean port",
        "port = 99999": "65535",
        'memory = "much"': "no amount of memory",
        "[limits]\nbody = 1": "1024",
        "[models]\na = { path = 'b', remote_code = true }": "remote_code",
    }.items():
        (tmp_path / "serve.toml").write_text(text)
        with pytest.raises(ConfigError, match=problem):
            ServeConfig.read(tmp_path / "serve.toml")


def test_amounts_of_memory() -> None:
    assert [bytes_of(one) for one in ("1", "2KiB", "1.5 MB", "3g", 7)] == [1, 2048, 3 << 19, 3 << 30, 7]
    with pytest.raises(ValueError, match="memory"):
        bytes_of("-1GiB")


def test_what_is_wrong_is_told_before_models_are_loaded(heed: Shell, tmp_path: Path) -> None:
    assert "no model is named" in heed("serve", code=2).err
    assert "needs keys" in heed("serve", "nothing/here", "--host", "0.0.0.0", code=2).err
    assert "cannot be read" in heed("serve", "nothing/here", "--api-key-file", tmp_path / "none", code=2).err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told = heed("serve", "nothing/here", "--port", taken.getsockname()[1], code=2).err
    assert "cannot listen" in told
    assert "--port" in told


def test_a_missing_extra_says_how_to_install_it(heed: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from heed.serve import api

    for package in NEEDED:
        monkeypatch.setattr(api, "find_spec", lambda name, missing=package: None if name == missing else object())
        told = heed("serve", "nothing/here", code=2).err
        assert 'pip install "heed-attention[serve]"' in told
        assert package.replace("_", "-") in told
