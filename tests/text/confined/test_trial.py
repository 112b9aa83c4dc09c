"""Patterns of strangers' tokenizers: those that take too long are an error, those of known models are not tried."""

from __future__ import annotations

import json
from pathlib import Path
from time import perf_counter

import pytest
import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers

from heed.core.errors import InputError
from heed.text import Bpe, Tokenizer
from heed.text.confined import trial
from heed.text.gguf import BYTE_LEVEL, split_by


def strange(
    split: str | None = None, replaced: str | None = None, decoded: str | None = None, content: str = "b"
) -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>"))
    if split is not None:
        inner.pre_tokenizer = pre_tokenizers.Split(Regex(split), "isolated")
    if replaced is not None:
        inner.normalizer = normalizers.Replace(Regex(replaced), content)
    if decoded is not None:
        inner.decoder = decoders.Sequence([decoders.Fuse(), decoders.Replace(Regex(decoded), "b")])
    return inner


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "SECONDS", 1)


@pytest.mark.usefixtures("quick")
def test_a_quadratic_pattern_is_ended() -> None:
    text = "a" * 100_000 + "b"
    for inner in (strange(split="a+$"), strange(replaced="a+$")):
        tokenizer = Tokenizer(inner)
        for read in (tokenizer.encode, tokenizer.encode_marked, tokenizer.framed):
            begun = perf_counter()
            with pytest.raises(InputError, match=r"took more than 1 seconds.*trial\.SECONDS"):
                read(text)
            assert perf_counter() - begun < 15  # of which a second is its own
        assert len(tokenizer.encode("a")) == 1  # what can be read still is, in a fresh process


@pytest.mark.usefixtures("quick")
def test_a_pattern_that_panics_says_nothing_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    for pattern in ("(a|a)*$", "(a+)+$", "^(a|aa)+$"):
        with pytest.raises(InputError, match="this tokenizer cannot read the text"):
            Tokenizer(strange(split=pattern)).encode("a" * 5_000 + "!")
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("quick")
def test_decoding_is_tried_too(capfd: pytest.CaptureFixture[str]) -> None:
    tokenizer = Tokenizer(strange(decoded="(a+)+$"))
    assert tokenizer.decode([0]) == "b"
    with pytest.raises(InputError, match="this tokenizer cannot write these ids"):
        tokenizer.decode([*[0] * 5_000, 1])
    assert capfd.readouterr().err == ""


def test_unknown_patterns_give_what_they_give() -> None:
    inner = strange(split="a+|b+")
    assert Tokenizer(inner).encode("a b") == inner.encode("a b").ids


def test_known_patterns_are_not_tried(tmp_path: Path) -> None:
    for how in BYTE_LEVEL.values():
        inner = tokenizers.Tokenizer(models.BPE(vocab={"a": 0}, merges=[]))
        inner.pre_tokenizer, inner.decoder = split_by(how), decoders.ByteLevel()
        assert trial.trial_of(inner) is None
    Bpe(size=300).train(["a text"]).save(tmp_path / "tokenizer.json")
    read = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert trial.trial_of(read) is None
    llama = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+"
    )
    assert trial.trial_of(strange(split=llama)) is None
    assert trial.trial_of(strange(split=llama + "|x+")) is not None
    assert trial.trial_of(strange(split=r"<a\+>|<b>")) is None  # nothing is repeated
    assert list(trial.patterns(json.loads('{"a": [{"pattern": {"Regex": "x"}}, {"Regex": "y"}]}'))) == ["x", "y"]
