"""Recall: what is asked of a prompt, what the probes hold, and that a small model learns to copy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import heed
from heed.core.errors import ConfigError, InputError
from heed.data import Probes
from heed.models import Decoder
from heed.parts.outputs.loss import NO_LABEL
from heed.tasks import Recall
from heed.text import Word
from tests.tasks.pretrain.material import within
from tests.tasks.test_tasks import Some

BOTH = ("prompt", "answer")


def test_nothing_is_asked_of_a_prompt() -> None:
    rows = Some(("a b c :", "x y"), ("a :", "z"))
    tokenizer = Word().train(text for row in rows for text in row)
    task = Recall()
    batch = task.batch(task.corpus(rows, tokenizer).once())
    names = [[None if label == NO_LABEL else tokenizer.name(label) for label in row] for row in batch.labels.tolist()]
    assert names == [[None] * 4 + ["x", "y"], [None, None, "z", None, None, None]]
    assert batch.tokens == 3


def test_the_loss_is_that_of_the_answer() -> None:
    rows = Some(("a b c :", "x y"), ("a :", "z"))
    tokenizer, task = Word().train(text for row in rows for text in row), Recall()
    model = Decoder.Config(width=16, depth=1).sized(tokenizer.size).build().double().eval()
    items = task.corpus(rows, tokenizer).once()
    with torch.no_grad():
        together = task.loss(model, task.batch(items)).total
        alone = sum(task.loss(model, task.batch([item])).total for item in items)
    assert float(together) == pytest.approx(float(alone), rel=1e-12)


def test_a_key_is_asked_for_its_value() -> None:
    for prompt, answer in list(Probes(length=8, symbols=8, asked=3, held=50).split("valid", BOTH)):
        seen, _, rest = prompt.partition(" : ")
        symbols = seen.split()
        value = dict(zip(symbols[::2], symbols[1::2], strict=True))
        assert len(value) == 4  # keys differ
        assert answer.split() == [value[key] for key in rest.removesuffix(" :").split()]


def test_over_many_tokens_every_place_is_asked_for_and_every_value_told_equally_often() -> None:
    places, values, tokens = Counter[int](), Counter[str](), 0
    for prompt, answer in list(Probes(length=16, symbols=8, asked=2, held=6000).split("valid", BOTH)):
        seen, _, rest = prompt.partition(" : ")
        keys = seen.split()[::2]
        places.update(keys.index(key) for key in rest.removesuffix(" :").split())
        values.update(answer.split())
        tokens += len(prompt.split()) + len(answer.split())
    assert tokens > 100_000
    for counts in (places, values):
        assert len(counts) == 8
        assert all(within(count / counts.total(), 1 / 8, counts.total()) for count in counts.values())


def test_other_probes() -> None:
    copied = Probes(probe="copy", length=5, held=20).split("test", BOTH)
    turned = Probes(probe="reverse", length=5, held=20).split("test", BOTH)
    assert all(prompt == f"{answer} :" for prompt, answer in copied)
    assert all(prompt.split()[:-1] == answer.split()[::-1] for prompt, answer in turned)
    for prompt, answer in Probes(probe="induction", length=9, held=50).split("test", BOTH):
        symbols = prompt.split()
        assert symbols.count("s0") in (2, 3)  # two, and the answer may be the end itself
        assert symbols[symbols.index("s0") + 1] == answer


def test_splits_and_numbers_draw_apart_and_alike() -> None:
    source = Probes(held=100)
    train, valid = source.split("train", BOTH), source.split("valid", BOTH)
    assert train[3] == source.split("train", BOTH)[3] != train[4]
    assert len({train[index] for index in range(100)} & set(valid)) == 0
    assert train.endless
    assert not valid.endless
    with pytest.raises(IndexError):
        valid[100]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.length 6 holds 3 pairs .* 4 at least \(data\.asked\)"):
        Probes(length=6).split("train", BOTH)
    with pytest.raises(InputError, match=r"use task\.kind=recall"):
        Probes().split("train", ("text",))


def test_a_small_model_learns_to_look_back(tmp_path: Path) -> None:
    """Induction with four symbols: chance is one in three."""
    settings = {
        "data.probe": "induction",
        "data.symbols": 4,
        "data.length": 6,
        "training.evaluate": 300,
        "training.threads": 1,
    }
    heed.train("recall", out=tmp_path / "run", steps=300, batch=1024, settings=settings, quiet=True)
    found = heed.eval(tmp_path / "run", split="test", quiet=True)
    assert found["accuracy"] > 90
    assert found["exact"] == found["accuracy"]  # of one token each
    assert np.isfinite(found["loss"])
