"""Checkpoints of `transformers` in use through `heed.load`: what is said of words is what the reference says of ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import heed
from tests.pipelines.small import WORDS, worded

LONG = "the cat sat on a mat and then it slept and the dog ran home and then it slept on a mat"


def framed(text: str) -> Tensor:
    """The ids that the tokenizer of `worded` makes of a text."""
    named = [WORDS.index(word) for word in text.split()]
    return torch.tensor([[WORDS.index("[CLS]"), *named, WORDS.index("[SEP]")]])


def fills(model: Any, folder: Path, said: Callable[[Any, dict[str, Tensor]], dict[str, Tensor]]) -> None:
    """Words for a mask in a long text. The model lies in this folder already, its vocabulary are `WORDS`."""
    worded(folder)
    text = LONG.replace("it slept and", "it [MASK] and")
    (guesses,) = heed.load(folder).fill(text, top_k=len(WORDS))
    ids = framed(text)
    place = int((ids[0] == WORDS.index("[MASK]")).nonzero())
    p = said(model, {"input_ids": ids})["logits"][0, place].softmax(-1)
    assert [guess.p for guess in guesses] == pytest.approx(p.sort(descending=True).values.tolist(), rel=1e-9)


def classifies(model: Any, folder: Path, said: Callable[[Any, dict[str, Tensor]], dict[str, Tensor]]) -> None:
    """Two texts of different lengths, in one batch there, one by one here."""
    worded(folder)
    texts = [LONG, "the dog ran"]
    for text, guesses in zip(texts, heed.load(folder).classify(texts), strict=True):
        p = said(model, {"input_ids": framed(text)})["logits"][0].softmax(-1)
        assert [guess.p for guess in guesses] == pytest.approx(p.sort(descending=True).values.tolist(), rel=1e-9)
