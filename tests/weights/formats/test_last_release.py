"""What the last release wrote is still read: names of tensors, kinds and keys of config.json, checkpoints of runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from heed.core.contract import Mixer, Where
from heed.mixers import Lsh
from heed.models import Decoder
from heed.parts.inputs.tokens import Narrow
from heed.parts.layers.norms import LayerNorm
from heed.runs import Run
from heed.train.checkpoint import PARTS
from heed.weights import load, write
from heed.weights.edits import LoRA, Quantised, edit, load_adapters, save_adapters
from heed.weights.formats import native
from heed.weights.formats.quantised import quantised
from tests.train.support import resumed, trained
from tests.weights.support import GOLDEN

OLD = {now: before for before, now in native.RENAMED.items()}
KINDS = {"vision": "viewer", "audio": "listener", "clip": "towers", "lsh": "hashed", "local": "ringed"}
KEYS = {"embeddings": "front", "embedding_norm": "front_norm"}


def decoder() -> Decoder:
    config = Decoder.Config(width=16, depth=1, vocabulary=11, mixer=Lsh.Config(heads=2), embedding_norm=LayerNorm())
    return config.build().eval()


def old_tensors(path: Path) -> None:
    """A file of tensors under the names of the last release."""
    held = load_file(path)
    renamed = {".".join(OLD.get(part, part) for part in name.split(".")): tensor for name, tensor in held.items()}
    save_file(renamed, path, {"format": "pt"})


def old_config(node: Any) -> Any:
    """A config under the kinds and keys of the last release."""
    if isinstance(node, list):
        return [old_config(one) for one in node]
    if not isinstance(node, dict):
        return node
    renamed = {KEYS.get(key, key): old_config(value) for key, value in node.items()}
    return renamed | ({"kind": KINDS.get(node["kind"], node["kind"])} if isinstance(node.get("kind"), str) else {})


@contextmanager
def warned(*words: str) -> Iterator[None]:
    """All of these are said to be called otherwise now."""
    with pytest.warns(DeprecationWarning, match="the old name will go") as told:
        yield
    said = " ".join(str(warning.message) for warning in told)
    assert all(word in said for word in words), said


def equal(one: nn.Module, other: nn.Module) -> bool:
    held, again = one.state_dict(), other.state_dict()
    return held.keys() == again.keys() and all(torch.equal(held[name], again[name]) for name in held)


@torch.no_grad()
def logits(model: Mixer[Any]) -> torch.Tensor:
    tokens = torch.tensor([[1, 2, 3, 4, 5]])
    y: torch.Tensor = model(tokens, Where.run(1, 5))[0]
    return y


def test_names_at_any_depth() -> None:
    assert native.current("front.table.weight") == "embeddings.table.weight"
    assert native.current("exp_avg.decoder.front.norm.bias") == "exp_avg.decoder.embeddings.norm.bias"
    assert native.current("stack.blocks.0.mixer.upfront.weight") == "stack.blocks.0.mixer.upfront.weight"


def test_weights_and_config_of_a_model(tmp_path: Path) -> None:
    model, path = decoder(), tmp_path / "model.safetensors"
    native.write(model, path)
    old_tensors(path)
    assert "front.norm.weight" in load_file(path)
    told = old_config(
        {"kind": "decoder", "mixer": {"kind": "lsh", "heads": 2}, "embedding_norm": {"kind": "layernorm"}}
    )
    with warned("'hashed' is called 'lsh' now", "front_norm is called embedding_norm now"):
        config = Decoder.Config.load({**told, "width": 16, "depth": 1, "vocabulary": 11})
    again = native.read(config.build, tmp_path).eval()
    assert torch.equal(logits(again), logits(model))
    filled = decoder()
    native.fill(filled, load_file(path))
    assert equal(filled, model)


@pytest.mark.parametrize("case", ["vit/cls", "reformer/lm_local_lsh", "bloom/lm"])
def test_quantised_checkpoints(case: str, tmp_path: Path) -> None:
    folder = tmp_path / "int8"
    opened = quantised(load(GOLDEN / case), Quantised(but="embeddings.table" if case == "bloom/lm" else ()))
    write(opened, folder)
    old_tensors(folder / "model.safetensors")
    held = json.loads((folder / "config.json").read_text())
    before = {**held, "model": old_config(held["model"])}
    for change in before["edits"]:
        change["but"] = [pattern.replace("embeddings.", "front.") for pattern in change["but"]]
    assert before["model"] != held["model"]
    (folder / "config.json").write_text(json.dumps(before))
    with warned("now; the old name will go"):
        again = load(folder)
    assert equal(again.model, opened.model)


def test_adapters(tmp_path: Path) -> None:
    def adapted() -> Decoder:
        config = Decoder.Config(width=16, depth=1, vocabulary=11, narrow=Narrow(size=8), tied=False)
        return edit(config.build(), LoRA(rank=2, on="embeddings.narrow"))

    one, other, path = adapted(), adapted(), tmp_path / "adapters.safetensors"
    nn.init.normal_(one.get_parameter("embeddings.narrow.b"))
    save_adapters(one, path)
    old_tensors(path)
    assert "front.narrow.a" in load_file(path)
    load_adapters(other, path)
    assert torch.equal(one.get_parameter("embeddings.narrow.b"), other.get_parameter("embeddings.narrow.b"))


@pytest.mark.parametrize("average", [(), ("training.average.kind=ema",)])
def test_a_run_is_resumed(average: tuple[str, ...], tmp_path: Path) -> None:
    """To the last bit: weights, optimizer and averaged weights of the last release go under their new names."""
    trained(tmp_path / "whole", *average)
    old, state = tmp_path / "old", tmp_path / "old" / "state" / "00000003"
    shutil.copytree(tmp_path / "whole", old)
    shutil.rmtree(old / "state" / "00000006")
    for file in (old / "model.safetensors", *(state / f"{part}.safetensors" for part in PARTS)):
        old_tensors(file)
    for sums in old.rglob("SHA256SUMS"):  # it wrote none
        sums.unlink()
    told = json.loads((state / "progress.json").read_text())
    told["sizes"] = {name: (state / name).stat().st_size for name in told["sizes"]}
    (state / "progress.json").write_text(json.dumps(told))
    assert any("front" in name for name in load_file(state / "optimizer.safetensors"))
    Run.open(old).model()
    resumed(old)
    for part in PARTS:
        one, other = (tmp_path / run / "state" / "00000006" / f"{part}.safetensors" for run in ("whole", "old"))
        assert one.read_bytes() == other.read_bytes(), part
    assert equal(Run.open(tmp_path / "whole").model(), Run.open(old).model())
