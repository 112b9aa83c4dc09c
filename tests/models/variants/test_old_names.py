"""What was called otherwise in the last release still works, with a warning."""

from __future__ import annotations

from typing import Any

import pytest

import heed.models
from heed.core.config import kind_of
from heed.models import MODELS, Seq2seq
from heed.runs.recipe import Recipe

KINDS = {"overlapped": "sled_encoder", "xlnet_reader": "xlnet_encoder", "elmo_reader": "elmo_encoder"}
NAMES = {
    "Deep": "DeepDecoder",
    "ElmoReader": "ElmoEncoder",
    "Overlapped": "SledEncoder",
    "XLNetReader": "XLNetEncoder",
    "unlimited": "unlimiformer",
}
SIDE = {"vocabulary": 7, "width": 8, "depth": 1}


@pytest.mark.parametrize("old", KINDS)
def test_kinds(old: str) -> None:
    data: dict[str, Any] = {"data": {"kind": "files"}, "tokenizer": {"kind": "char"}, "task": {"kind": "causal"}}
    with pytest.warns(DeprecationWarning, match=f"kind '{old}' is called '{KINDS[old]}' now"):
        recipe = Recipe.load({**data, "model": {"kind": old, **SIDE}})
    assert kind_of(type(recipe.model)) == KINDS[old]
    assert type(recipe.model) is MODELS.named[KINDS[old]]


@pytest.mark.parametrize(("old", "kind"), [("overlapped", "sled_encoder"), ("listener", "audio")])
def test_encoders_of_encoder_decoders(old: str, kind: str) -> None:
    side = {**SIDE, "kind": old} if kind == "sled_encoder" else {"kind": old, "width": 8, "depth": 1}
    more = {} if kind == "sled_encoder" else {"embeddings": {"kind": "mels"}}
    with pytest.warns(DeprecationWarning, match=f"kind '{old}' is called '{kind}' now"):
        config = Seq2seq.Config.load({"encoder": {**side, **more}, "decoder": {**SIDE, "cross": {}}})
    assert config.encoder.kind == kind


@pytest.mark.parametrize("old", NAMES)
def test_names(old: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"heed.models.{old} is called heed.models.{NAMES[old]} now"):
        assert getattr(heed.models, old) is getattr(heed.models, NAMES[old])
