"""Run folders that people or programs have edited: each edit is an error of heed's, or tolerated rightly."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import heed
from heed.core.errors import ConfigError, HeedError, WeightsError
from heed.runs import Recipe, Run, load
from heed.runs.digests import SUMS
from heed.runs.info import info
from heed.show.progress import Silent
from heed.train import resume
from heed.train.memory import afforded
from heed.train.parallel import Group
from tests.train.support import language_model, recipe, resumed, trained

Edit: TypeAlias = "Callable[[Any], Any]"
DEEP = "[" * 5000 + "]" * 5000
HUGE = 10**30


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an average, without digests: those would notice every edit."""
    path = tmp_path_factory.mktemp("made") / "run"
    trained(path, "training.average.kind=ema")
    (path / "scores.json").write_text(json.dumps({"valid": {"loss": 1.0}}))
    for file in path.rglob(SUMS):
        file.unlink()
    return path


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "run")


class Heard(Silent):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def into(**fields: Any) -> Edit:
    """Fields by dotted place."""

    def edit(data: Any) -> Any:
        for place, value in fields.items():
            *path, last = place.split("__")
            node = data
            for step in path:
                node = node[int(step)] if isinstance(node, list) else node[step]
            node[last] = value
        return data

    return edit


def without(*path: str) -> Edit:
    def edit(data: Any) -> Any:
        node = data
        for step in path[:-1]:
            node = node[step]
        del node[path[-1]]
        return data

    return edit


def nested(levels: int) -> Any:
    node: Any = {"kind": "encoder"}
    for _ in range(levels):
        node = {"kind": "encoder", "model": node}
    return node


CONFIG: dict[str, Edit] = {
    "deeper than all": into(model__encoder__depth=10**9),
    "deeper than its tensors": into(model__encoder__depth=60_000),
    "a little deeper": into(model__encoder__depth=2),
    "wider than all": into(model__encoder__width=10**9, model__decoder__width=10**9),
    "wider than memory": into(model__encoder__width=10**18, model__decoder__width=10**18),
    "a little wider": into(model__encoder__width=32, model__decoder__width=32),
    "a vocabulary of 10^12": into(model__source=10**12),
    "more heads than all": into(model__encoder__mixer__0__heads=10**9),
    "a head of 10^9": into(model__encoder__mixer__0__head_size=10**9),
    "a hidden size of 10^15": into(model__encoder__feedforward__0__hidden=10**15),
    "a million experts": into(
        model__encoder__feedforward=[{"kind": "experts", "experts": 10**6, "expert": {"kind": "feedforward"}}]
    ),
    "60,000 experts": into(
        model__encoder__feedforward=[{"kind": "experts", "experts": 60_000, "expert": {"kind": "feedforward"}}]
    ),
    "no depth": into(model__encoder__depth=0),
    "a negative width": into(model__encoder__width=-16),
    "a depth in words": into(model__encoder__depth="many"),
    "a depth that is a flag": into(model__encoder__depth=True),
    "half a layer": into(model__encoder__depth=0.5),
    "no model": without("model"),
    "no task": without("task"),
    "another kind": into(model__kind="decoder"),
    "an unknown kind": into(model__kind="perceptron"),
    "a kind that is a list": into(model__kind=["seq2seq"]),
    "a model that is a number": into(model=3),
    "an unknown key": into(modell={}),
    "a model 900 levels deep": into(model=nested(900)),
    "a model 90 levels deep": into(model=nested(90)),
    "an edit of nothing": into(edits=[{"kind": "lora", "rank": 10**9, "on": "*"}]),
    "edits that are no list": into(edits=7),
}


@pytest.mark.parametrize("name", CONFIG)
def test_a_config_is_compared_with_the_tensors_before_anything_is_built(name: str, run: Path) -> None:
    file = run / "config.json"
    file.write_text(json.dumps(CONFIG[name](json.loads(file.read_text()))))
    begun = perf_counter()
    for verb in (load, lambda path: resume(path, (), Silent())):
        with pytest.raises(HeedError) as caught:
            verb(run)
        assert len(str(caught.value)) < 20_000
        assert "0x" not in str(caught.value)  # no addresses of torch's
    with suppress(HeedError):  # it tells what the config says, if that can be
        info(run)
    assert perf_counter() - begun < 20  # seconds on a busy machine; it is a part of one


WHOLE: dict[str, Edit] = {  # what may be otherwise and means the same, or what is another training
    "other data": into(data__held=13),
    "more steps": into(training__steps=7),
    "a null": into(base=None),
    "a seed of old": into(training__seed=2**62 - 1),
}


@pytest.mark.parametrize("name", WHOLE)
def test_what_a_config_may_say(name: str, run: Path) -> None:
    file = run / "config.json"
    file.write_text(json.dumps(WHOLE[name](json.loads(file.read_text()))))
    load(run)
    assert resumed(run).finished


TEXTS: dict[str, tuple[str, str | bytes]] = {
    "config: nothing": ("config.json", ""),
    "config: not JSON": ("config.json", "{"),
    "config: a list": ("config.json", "[1]"),
    "config: 5,000 levels": ("config.json", DEEP),
    "config: 5,000 levels of tables": ("config.json", '{"a":' * 5000 + "1" + "}" * 5000),
    "config: a number of 5,000 digits": ("config.json", f'{{"task": {"9" * 5000}}}'),
    "config: not UTF-8": ("config.json", b"\xff\xfe{}"),
    "config: NUL": ("config.json", b"\0" * 100),
    "tokenizer: nothing": ("tokenizer.json", ""),
    "tokenizer: an empty table": ("tokenizer.json", "{}"),
    "tokenizer: a list": ("tokenizer.json", "[]"),
    "tokenizer: 5,000 levels": ("tokenizer.json", DEEP),
    "tokenizer: not UTF-8": ("tokenizer.json", b"\xff\xfe"),
    "weights: nothing": ("model.safetensors", b""),
    "weights: text": ("model.safetensors", b"hello, world"),
    "weights: a header of 2^63 bytes": ("model.safetensors", b"\xff" * 8),
    "weights: no tensors": ("model.safetensors", b"\x02\0\0\0\0\0\0\0{}"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_files_that_are_something_else(name: str, run: Path) -> None:
    file, text = TEXTS[name]
    (run / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(HeedError, match=file.replace(".", r"\.") + "|do not fit"):
        load(run)
    with suppress(HeedError):
        info(run)


def test_a_vocabulary_of_another_size_is_refused(run: Path) -> None:
    file = run / "tokenizer.json"
    data = json.loads(file.read_text())
    data["added_tokens"].append({**data["added_tokens"][0], "id": 10**6, "content": "<new>"})
    file.write_text(json.dumps(data))
    with pytest.raises(HeedError, match="vocabulary|tokenizer"):
        load(run)
    vocabulary = data["model"]["vocab"]
    data["added_tokens"].pop()
    vocabulary["x"] = 2**40
    file.write_text(json.dumps(data))
    with pytest.raises(HeedError, match="tokenizer"):
        load(run)


# --- what a checkpoint holds ---


def cast(name: str, dtype: torch.dtype) -> Edit:
    return lambda held: {**held, name: held[name].to(dtype)}


def cut(name: str) -> Edit:
    return lambda held: {**held, name: held[name].flatten()[:-1].clone()}


def first(held: dict[str, Tensor], moment: str) -> str:
    return next(name for name in held if name.startswith(moment) and held[name].dim() == 2)


STATE: dict[str, tuple[str, Edit]] = {
    "no random state": ("rng", lambda held: {}),
    "half a random state": ("rng", cut("cpu.0")),
    "random state in floats": ("rng", cast("cpu.0", torch.float32)),
    "random state of zeros": ("rng", lambda held: {"cpu.0": torch.full_like(held["cpu.0"], 255)}),
    "moments of another shape": ("optimizer", lambda held: cut(first(held, "exp_avg."))(held)),
    "squares of another shape": ("optimizer", lambda held: cut(first(held, "exp_avg_sq."))(held)),
    "moments in whole numbers": ("optimizer", lambda held: cast(first(held, "exp_avg."), torch.int64)(held)),
    "moments in bfloat16": ("optimizer", lambda held: cast(first(held, "exp_avg."), torch.bfloat16)(held)),
    "moments of nothing": ("optimizer", lambda held: {**held, "exp_avg.nothing": torch.zeros(2)}),
    "a moment alone": ("optimizer", lambda held: without(first(held, "exp_avg."))(held)),
    "steps to come": ("optimizer", lambda held: {n: t + 100 if n.startswith("step") else t for n, t in held.items()}),
    "steps before": ("optimizer", lambda held: {n: -t if n.startswith("step") else t for n, t in held.items()}),
    "steps of a vector": (
        "optimizer",
        lambda held: {n: t.expand(3).clone() if n.startswith("step") else t for n, t in held.items()},
    ),
    "no average": ("average", lambda held: {}),
    "an average of one weight less": ("average", lambda held: dict(list(held.items())[1:])),
    "an average of another shape": ("average", lambda held: cut(next(iter(held)))(held)),
    "an average in float64": ("average", lambda held: cast(next(iter(held)), torch.float64)(held)),
    "an average of something else": ("average", lambda held: {**held, "nothing": torch.zeros(2)}),
    "weights of another shape": ("model", lambda held: cut(next(iter(held)))(held)),
    "a weight less": ("model", lambda held: dict(list(held.items())[1:])),
    "weights in whole numbers": ("model", lambda held: cast(next(iter(held)), torch.int32)(held)),
}


@pytest.mark.parametrize("name", STATE)
def test_state_that_does_not_fit_is_damage(name: str, made: Path, run: Path) -> None:
    part, edit = STATE[name]
    place = run / "state" / "00000006"
    file = place / f"{part}.safetensors"
    save_file(edit(load_file(file)), file)
    progress = json.loads((place / "progress.json").read_text())
    progress["sizes"][file.name] = file.stat().st_size
    (place / "progress.json").write_text(json.dumps(progress))
    reporter = Heard()
    resume(run, (), reporter)
    told = "\n".join(reporter.lines)
    assert "00000006 is damaged" in told
    assert "after step 3 of 6" in told
    assert (run / "state" / "00000006" / file.name).read_bytes() == (
        made / "state" / "00000006" / file.name
    ).read_bytes()


# --- recipes ---


def test_a_recipe_that_the_machine_cannot_hold_is_refused_before_it_is_built(tmp_path: Path) -> None:
    from heed.train import train

    begun = perf_counter()
    for changes, words in {
        ("model.hidden=1000000000000",): r"000,\d\d\d,\d\d\d weights; to train it takes at least",
        ("model.width=1000000000",): "position code of",
        ("model.width=1000000000000000000000",): "cannot be built",
        ("training.max_memory=100000",): r"at least 0\.0 GB, and there are 0\.0 GB \(training\.max_memory\)",
    }.items():
        with pytest.raises(ConfigError, match=words):
            train(recipe(*changes), tmp_path / "run", Silent())
    with pytest.raises(ConfigError, match="depth is 1000000000; it must be less than or equal to 65536"):
        recipe("model.depth=1000000000")
    assert not (tmp_path / "run").exists()
    assert perf_counter() - begun < 30
    with pytest.raises(ConfigError, match="too many parts"):
        afforded(
            lambda: language_model("model.width=4", "model.depth=60000").build(3),
            recipe().training,
            Group(torch.device("cpu")),
        )


def test_memory_counts_gradients_moments_and_the_average(made: Path) -> None:
    build = Run.open(made).build
    held = sum(weight.nbytes for weight in build().parameters())
    buffers = sum(buffer.nbytes for buffer in build().buffers())
    for average, times in (("", 4), ("ema", 5)):
        settings = [f"training.average.kind={average}"] if average else []
        needed = times * held + buffers
        afforded(build, recipe(*settings, f"training.max_memory={needed}").training, Group(torch.device("cpu")))
        with pytest.raises(ConfigError, match="raise training.max_memory"):
            afforded(build, recipe(*settings, f"training.max_memory={needed - 1}").training, Group(torch.device("cpu")))


@pytest.mark.parametrize("levels", [90, 900, 20_000])
@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_deep_recipes_are_errors(suffix: str, levels: int, tmp_path: Path) -> None:
    file = tmp_path / f"recipe.{suffix}"
    if suffix == "toml":
        file.write_text("model = " + "{model = " * levels + "1" + "}" * levels)
    else:
        file.write_text('{"model": ' * levels + "1" + "}" * levels)
    with pytest.raises(ConfigError):
        Recipe.read(file)
    file.write_text("[" + ".".join(["model"] * levels) + "]\nkind = 'x'" if suffix == "toml" else "[" * levels)
    with pytest.raises(ConfigError):
        Recipe.read(file, ["training.steps=3"])
    with pytest.raises(ConfigError):
        heed.train(str(file), quiet=True)
    with pytest.raises(ConfigError):
        Recipe.read(heed.runs.find("dates"), [".".join(["model"] * levels) + "=3"])


def test_deep_mixers_are_errors(tmp_path: Path) -> None:
    file = tmp_path / "recipe.json"
    inside = '{"kind": "branches", "mixers": [' * 900 + '{"kind": "attention"}' + "]}" * 900
    file.write_text('{"model": {"kind": "decoder", "width": 8, "depth": 1, "mixer": ' + inside + "}}")
    with pytest.raises(ConfigError):
        Recipe.read(file)


@pytest.mark.timeout(60)  # 60,000 layers would be built for minutes
def test_weights_of_another_model_are_told_as_such(run: Path) -> None:
    file = run / "config.json"
    file.write_text(json.dumps(into(model__encoder__depth=60_000)(json.loads(file.read_text()))))
    with pytest.raises(WeightsError, match=r"far more parts \(layers, experts \.\.\.\) than its \d+ tensors"):
        load(run)
