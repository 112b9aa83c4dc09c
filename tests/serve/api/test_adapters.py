"""Adapters under their own names: over one copy of the weights, beside their base, each as it answers alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import heed
from heed.core.errors import ConfigError, InputError
from heed.pipelines import Pipeline
from heed.serve import Engine, Limits
from heed.serve.api.adapters import file_in, share, with_adapter
from heed.serve.api.settings import AdapterSource, ModelSource, ServeConfig, adapters_named, merged
from heed.serve.api.starting import loaded
from heed.weights import Folder
from heed.weights.adapters import Tuned, write_adapter
from heed.weights.edits import LoRA, edit
from heed.weights.edits.lora import adapters, load_adapters, save_adapters
from tests.serve.api.serving import Live, running

ASKED: dict[str, Any] = {"prompt": "ab ", "temperature": 0, "max_tokens": 12}


@torch.no_grad()
def tuned(folder: Path, seed: int) -> Pipeline:
    """The model with adapters that change what it says."""
    found = heed.load(folder)
    edit(found.model, LoRA(rank=4, on="*.feedforward.*"))
    draw = torch.Generator().manual_seed(seed)
    for layer in adapters(found.model).values():
        layer.a.copy_(torch.randn(layer.a.shape, generator=draw))
        layer.b.copy_(torch.randn(layer.b.shape, generator=draw))
    return found


@pytest.fixture(scope="module")
def places(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An adapter in heed's layout, and one in peft's."""
    here = tmp_path_factory.mktemp("adapters")
    (here / "ours").mkdir()
    save_adapters(tuned(folder, 0).model, here / "ours" / "adapters.safetensors")
    other = tuned(folder, 1)
    assert other.opened is not None
    checkpoint = Folder.open(folder).checkpoint
    told = Tuned(other.model, other.opened.table, other.opened.config, checkpoint.tensors, str(folder))
    write_adapter(told, here / "theirs")
    return {"ours": here / "ours", "theirs": here / "theirs"}


@pytest.fixture(scope="module")
def config(folder: Path, places: dict[str, Path]) -> ServeConfig:
    given = adapters_named([f"ours={places['ours']}", f"theirs={places['theirs']}@base"])
    return merged(None, {"adapters": given}, {"base": str(folder)}, None)


@pytest.fixture(scope="module")
def models(config: ServeConfig) -> dict[str, Pipeline]:
    return dict(loaded(config))


@pytest.fixture(scope="module")
def live(config: ServeConfig, models: dict[str, Pipeline]) -> Iterator[Live]:
    with Engine(models, Limits(memory=1 << 26, rows=8)) as engine, running(engine, parents=config.parents) as found:
        yield found


def test_each_answers_as_it_does_alone(live: Live, folder: Path, models: dict[str, Pipeline]) -> None:
    alone = {"base": heed.load(folder), "ours": tuned(folder, 0), "theirs": tuned(folder, 1)}
    said = {}
    for name, pipeline in alone.items():
        status, found, _ = live.ask("/v1/completions", {"model": name, **ASKED})
        assert status == 200, found
        said[name] = found["choices"][0]["text"]
        assert said[name] == pipeline.generate(ASKED["prompt"], max_new_tokens=12, temperature=0)
    assert len(set(said.values())) == 3, "they say something else"
    assert len(adapters(models["base"].model)) == 0


def test_weights_are_held_once(models: dict[str, Pipeline]) -> None:
    places = {one.data_ptr() for one in models["base"].model.parameters()}
    for name in ("ours", "theirs"):
        own = [one for one in models[name].model.parameters() if one.data_ptr() not in places]
        parts = [part for layer in adapters(models[name].model).values() for part in (layer.a, layer.b)]
        assert {id(one) for one in own} == {id(part) for part in parts}, "nothing but the adapters is its own"


def test_what_differs_is_not_shared(folder: Path) -> None:
    base, other = heed.load(folder), heed.load(folder)
    weight = next(iter(other.model.parameters()))
    with torch.no_grad():
        weight[0, 0] += 1
    whole = sum(one.nbytes for one in base.model.parameters())
    assert share(base.model, other.model) == whole - weight.nbytes
    assert next(iter(other.model.parameters())) is weight
    assert share(base.model, other.model) == 0


def test_models_are_told_with_their_base(live: Live) -> None:
    cards = {one["id"]: one["parent"] for one in live.ask("/v1/models")[1]["data"]}
    assert cards == {"base": None, "ours": "base", "theirs": "base"}
    status, found, _ = live.ask("/v1/completions", {"model": "other", **ASKED})
    assert (status, found["error"]["param"]) == (404, "model")


def test_quantised_weights_are_shared_too(folder: Path, places: dict[str, Path]) -> None:
    source = ModelSource(path=str(folder), quantise="int8")
    base = heed.load(folder, quantise="int8")
    found = with_adapter(base, source, AdapterSource(path=str(places["ours"])))
    places_ = {one.data_ptr() for one in (*base.model.parameters(), *base.model.buffers()) if one.numel()}
    own = [one for one in (*found.model.parameters(), *found.model.buffers()) if one.data_ptr() not in places_]
    adapted = sum(part.nbytes for layer in adapters(found.model).values() for part in (layer.a, layer.b))
    assert sum(one.nbytes for one in own) == adapted
    again = heed.load(folder, quantise="int8")
    load_adapters(again.model, file_in(places["ours"]))
    wanted = again.generate("ab ", max_new_tokens=4, temperature=0)
    assert found.generate("ab ", max_new_tokens=4, temperature=0) == wanted


def test_what_is_no_adapter_is_told(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="NAME=FOLDER"):
        adapters_named(["a"])
    with pytest.raises(InputError, match="NAME=FOLDER"):
        adapters_named(["a=b@"])
    with pytest.raises(InputError, match="two adapters"):
        adapters_named(["a=b", "a=c"])
    assert adapters_named(["a=org@v/b@m"]) == {"a": {"path": "org@v/b", "model": "m"}}
    one = {"models": {"m": "x"}}
    with pytest.raises(ConfigError, match="are called 'm'"):
        ServeConfig.load({**one, "adapters": {"m": "y"}})
    with pytest.raises(ConfigError, match="models are m"):
        ServeConfig.load({**one, "adapters": {"a": {"path": "y", "model": "n"}}})
    with pytest.raises(ConfigError, match="a=FOLDER@MODEL"):
        ServeConfig.load({"models": {"m": "x", "n": "y"}, "adapters": {"a": "y"}})
    with pytest.raises(InputError, match="is not there"):
        file_in(tmp_path / "none")
    with pytest.raises(InputError, match="holds 0"):
        file_in(tmp_path)
