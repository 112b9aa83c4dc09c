"""What sentence-transformers writes beside an encoder is followed, or refused; never passed over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heed.core.errors import InputError
from heed.pipelines.encoder import Pooling
from heed.pipelines.sentences import Sentences

KINDS = "sentence_transformers.models."


def written(folder: Path, modules: list[str], pooling: dict[str, object] | None = None) -> Path:
    listed = [{"idx": i, "path": f"{i}_{kind}" if i else "", "type": KINDS + kind} for i, kind in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(listed))
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 4, **pooling}))
    return folder


def test_without_files_it_is_the_mean_of_length_one(tmp_path: Path) -> None:
    assert Sentences.of(tmp_path) == Sentences(Pooling("mean", unit=True), None)


@pytest.mark.parametrize(
    ("pooling", "pool"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode_cls_token": True}, "first"),
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode_lasttoken": True, "include_prompt": True}, "last"),
        ({"pooling_mode": "cls"}, "first"),
        ({}, "mean"),
    ],
)
def test_pooling_is_as_they_say(tmp_path: Path, pooling: dict[str, object], pool: str) -> None:
    found = Sentences.of(written(tmp_path, ["Transformer", "Pooling", "Normalize"], pooling))
    assert found.pooling == Pooling(pool, unit=True)  # type: ignore[arg-type]


def test_without_normalize_vectors_keep_their_length_and_texts_their_limit(tmp_path: Path) -> None:
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 256, "do_lower_case": false}')
    found = Sentences.of(written(tmp_path, ["Transformer", "Pooling"], {"pooling_mode_cls_token": True}))
    assert found == Sentences(Pooling("first", unit=False), 256)


@pytest.mark.parametrize(
    ("modules", "pooling", "message"),
    [
        (["Transformer", "Pooling", "Dense"], {}, "a Dense module, which heed does not have"),
        (
            ["Transformer", "Pooling"],
            {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True},
            "first and mean",
        ),
        (["Transformer", "Pooling"], {"pooling_mode_weightedmean_tokens": True}, "pools by pooling_mode_weightedmean"),
    ],
)
def test_what_heed_cannot_do_is_refused(
    tmp_path: Path, modules: list[str], pooling: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Sentences.of(written(tmp_path, modules, pooling))


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '[{"type": 3}]', '[{"type": "x.Pooling", "path": "../.."}]'])
def test_damaged_files_are_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "modules.json").write_text(text)
    with pytest.raises(InputError, match="modules.json"):
        Sentences.of(tmp_path)
