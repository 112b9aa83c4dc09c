"""Edits in training: part of the recipe, rebuilt from it; a run that begins from another, or from a checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from heed import weights
from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError, RunError, WeightsError
from heed.kernels import written_out
from heed.models import Decoder
from heed.parts.layers.bitnet import PackedTernaryLinear, TernaryLinear
from heed.parts.layers.lora import LoraLinear
from heed.runs import Run, load
from heed.runs.convert import convert, edited, merged
from heed.show.progress import Silent
from heed.text import Byte, Char
from heed.train import resume, train
from heed.train.start import Outcome
from heed.weights import edits
from heed.weights.edits import LoRA
from heed.weights.formats import native as own
from heed.weights.formats.safetensors import Stored
from tests.train.support import language_model, same_run
from tests.weights.support import GOLDEN

LORA = ("edits.kind=lora", "edits.rank=2", "edits.on=*.query")
BITS = ("edits.kind=bitlinear",)


def trained(path: Path, *changes: str) -> Outcome:
    return train(language_model("training.optimizer.lr=0.01", *changes), path, Silent())


def scores(model: Any) -> Tensor:
    with torch.no_grad():
        made: Tensor = model(torch.arange(20, 32)[None], Where.run(1, 12))[0]
    return made


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without edits, to begin from."""
    return trained(tmp_path_factory.mktemp("runs") / "plain").run.path


def test_a_run_with_bits_rebuilds_itself_and_is_packed(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", *BITS).run
    model = Run.open(run.path).model()
    assert sum(isinstance(layer, TernaryLinear) for layer in model.modules()) == 6
    assert "bitlinear" in (run.path / "README.md").read_text()
    small = edited(run.path, tmp_path / "packed", edits.Packed())
    again = Run.open(small.path).model()
    assert sum(isinstance(layer, PackedTernaryLinear) for layer in again.modules()) == 6
    with written_out():  # the same sums in the same order
        assert torch.equal(scores(again), scores(model))
    torch.testing.assert_close(
        scores(again), scores(model), rtol=0, atol=0.05
    )  # a channel is rounded to the next number
    assert load(small.path).generate("x") == load(run.path).generate("x")
    assert "| split | holds |" in (small.path / "README.md").read_text()
    with pytest.raises(ConfigError, match="edits cannot be changed in a run that goes on"):
        resume(run.path, ["edits=[]"], Silent())


def test_a_run_with_bits_goes_on_bit_for_bit(tmp_path: Path) -> None:
    trained(tmp_path / "whole", *BITS)
    trained(tmp_path / "cut", *BITS, "training.steps=3")
    resume(tmp_path / "cut", ["training.steps=6"], Silent())
    whole, cut = (load_file(tmp_path / name / "state/00000003/model.safetensors") for name in ("whole", "cut"))
    assert whole.keys() == cut.keys()  # the schedule ends elsewhere, so that the weights are not the same
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    shutil.rmtree(tmp_path / "again/state/00000006")
    (tmp_path / "again/model.safetensors").unlink()
    resume(tmp_path / "again", (), Silent())
    assert same_run(tmp_path / "whole", tmp_path / "again")


def test_adapters_are_all_that_a_base_learns(plain: Path, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", f"base={plain}", *LORA).run
    before, after = own.tensors(Run.open(plain).model()), own.tensors(run.model())
    for name, tensor in before.items():
        place = name.replace("query.", "query.base.")
        assert torch.equal(after[place], tensor), name
    assert bool((after["stack.blocks.0.mixer.query.b"] != 0).any())
    assert len(after) == len(before) + 2
    held = load_file(run.path / "state/00000006/optimizer.safetensors")
    assert all(name.endswith((".a", ".b")) for name in held)
    shutil.rmtree(tmp_path / "merged", ignore_errors=True)
    whole = merged(run.path, tmp_path / "merged")
    assert whole.recipe.edits == ()
    # one layer, float32: a score of size one after some hundred roundings of 6e-8
    assert float((scores(whole.model()) - scores(run.model())).abs().max()) < 1e-5
    with pytest.raises(InputError, match="has no adapters to work in"):
        merged(plain, tmp_path / "none")


def test_a_base_needs_not_stay_where_it_was(plain: Path, tmp_path: Path) -> None:
    shutil.copytree(plain, tmp_path / "base")
    trained(tmp_path / "whole", f"base={tmp_path / 'base'}", *LORA)
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    shutil.rmtree(tmp_path / "base")
    shutil.rmtree(tmp_path / "again/state/00000006")
    (tmp_path / "again/model.safetensors").unlink()
    resume(tmp_path / "again", (), Silent())
    assert same_run(tmp_path / "whole", tmp_path / "again")


def test_all_weights_of_a_base_learn_without_edits(plain: Path, tmp_path: Path) -> None:
    """Fine-tuning: it begins where the base ended, and everything moves."""
    outcome = trained(tmp_path / "run", f"base={plain}", "training.steps=1", "training.optimizer.lr=1e-9")
    before, after = own.tensors(Run.open(plain).model()), own.tensors(outcome.run.model())
    assert before.keys() == after.keys()
    assert all(torch.allclose(after[name], tensor, rtol=0, atol=1e-6) for name, tensor in before.items())
    assert any(not torch.equal(after[name], tensor) for name, tensor in before.items())
    assert outcome.run.recipe.model == Run.open(plain).shape


def test_edits_of_a_base_come_first_and_its_adapters_are_worked_in(plain: Path, tmp_path: Path) -> None:
    bits = trained(tmp_path / "bits", f"base={plain}", *BITS).run
    both = trained(tmp_path / "both", f"base={bits.path}", *LORA, "training.steps=1").run
    assert [change.dump()["kind"] for change in both.recipe.edits] == ["bitlinear", "lora"]
    query = both.model().get_submodule("stack.blocks.0.mixer.query")
    assert isinstance(query, LoraLinear)
    assert isinstance(query.base, TernaryLinear)
    first = trained(tmp_path / "first", f"base={plain}", *LORA).run
    second = trained(tmp_path / "second", f"base={first.path}", *LORA, "training.steps=1").run
    assert second.recipe.edits == (LoRA(rank=2, on="*.query"),)
    base = second.model().get_submodule("stack.blocks.0.mixer.query.base")
    worked = first.model().get_submodule("stack.blocks.0.mixer.query")
    assert isinstance(worked, LoraLinear)
    assert torch.equal(base.weight, worked.matrix)  # type: ignore[arg-type]


def test_other_peoples_checkpoints_are_adapted(tmp_path: Path) -> None:
    """A Llama, whose vocabulary of 99 is larger than its tokenizer's."""
    folder = tmp_path / "llama"
    shutil.copytree(GOLDEN / "llama" / "lm", folder)
    with pytest.raises(RunError, match="base = .* cannot be begun from: .* holds no tokenizer"):
        trained(tmp_path / "no", f"base={folder}", *LORA)
    Char().train(["abcdefghijklmnopqrstuvwxyz (){}[]:=.,_\n"]).save(folder / "tokenizer.json")
    run = trained(tmp_path / "run", f"base={folder}", *LORA).run
    before, after = own.tensors(weights.load(folder).model), own.tensors(run.model())
    assert all(torch.equal(after[name.replace("query.", "query.base.")], tensor) for name, tensor in before.items())
    assert run.tokenizer.size < 99 == run.shape.dump()["vocabulary"]
    assert isinstance(load(run.path).generate("def "), str)  # tokens that are not the tokenizer's are never written
    Byte().train().save(folder / "tokenizer.json")
    with pytest.raises(InputError, match="the vocabulary has 99"):
        trained(tmp_path / "large", f"base={folder}", *LORA)


def test_runs_are_packed_and_merged_by_the_command(plain: Path, tmp_path: Path) -> None:
    made = convert(plain, tmp_path / "small", shard=1 << 30, settings=["edits.kind=packed"])
    assert made.family == "heed"
    assert Run.open(tmp_path / "small").recipe.edits == (edits.Packed(),)
    before = Stored.of(plain)
    assert made.bytes < sum(before.like(name).nbytes for name in before) / 1.5  # most of so small a model is embeddings
    with pytest.raises(InputError, match="has no adapters to work in"):
        convert(plain, tmp_path / "none", layout="heed")
    with pytest.raises(WeightsError, match="is not a run of heed's; only those are edited"):
        convert(GOLDEN / "llama" / "lm", tmp_path / "llama", shard=1 << 30, settings=["edits.kind=packed"])


def test_a_base_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be begun from"):
        trained(tmp_path / "run", f"base={tmp_path}/nothing")
    assert not (tmp_path / "run").exists()


def test_bad_edits_are_told_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"names no linear layer of this model; did you mean \*.query\?"):
        trained(tmp_path / "run", "edits.kind=lora", "edits.on=*.qeury")
    assert not (tmp_path / "run").exists()


def test_blocks_are_shared_in_training(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "model.depth=4", "edits.kind=share").run
    model = run.model()
    assert isinstance(model, Decoder)
    assert len(model.stack.blocks) == 1
    assert len(model.stack.layers) == 4
    held = load_file(run.path / "model.safetensors")
    assert {name.split(".")[2] for name in held if name.startswith("stack.blocks")} == {"0"}
