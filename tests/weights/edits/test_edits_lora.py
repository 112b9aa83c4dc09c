"""LoRA: only adapters learn; merged and taken out again; kept alone in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from heed import weights
from heed.core.contract import Where
from heed.core.errors import InputError, WeightsError
from heed.kernels import written_out
from heed.models import Decoder
from heed.parts.layers.lora import LoraLinear
from heed.weights import edits
from heed.weights.edits import BitLinear, LoRA, edit, load_adapters, merge, save_adapters, unmerge
from tests.weights.support import GOLDEN

PLAIN = Decoder.Config(vocabulary=13, width=24, depth=2, tied=False)
TOKENS, WHERE = torch.arange(12).view(2, 6), Where.run(2, 6)
ROUNDING = 2.0**-24  # half a unit in the last place of float32, relative


def adapted(change: LoRA | None = None, seed: int = 0) -> Decoder:
    torch.manual_seed(seed)
    model = edit(PLAIN.build(), change or LoRA(on=("*.query", "*.down"), rank=3, alpha=6.0)).eval()
    for module in model.modules():
        if isinstance(module, LoraLinear):
            nn.init.normal_(module.b, std=0.2)
    return model


def logits(model: Any) -> Tensor:
    with torch.no_grad():
        made: Tensor = model(TOKENS, WHERE)[0]
    return made


def test_a_fresh_adapter_changes_nothing() -> None:
    torch.manual_seed(0)
    model = PLAIN.build().eval()
    with written_out():  # the same sums in the same order
        before = logits(model)
        assert torch.equal(logits(edit(model, LoRA())), before)


@pytest.mark.parametrize(("alpha", "scale"), [(None, 1.0), (4.0, 1.0), (2.0, 0.5), (12.0, 3.0)])
def test_what_is_learnt_counts_alpha_over_rank(alpha: float | None, scale: float) -> None:
    """So that another rank needs no other rate of learning; left out, it counts once (Hu et al. 2021, sec. 4.1)."""
    model = edit(PLAIN.build(), LoRA(rank=4, alpha=alpha, on="*.query"))
    assert {layer.scale for layer in model.modules() if isinstance(layer, LoraLinear)} == {scale}


def test_only_adapters_learn() -> None:
    """Steps of an optimizer with decay over all parameters: nothing else moves by a single bit, nor has a gradient."""
    model = adapted().train()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    for _ in range(3):
        model(TOKENS, WHERE)[0].square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, weight in model.named_parameters():
        learns = name.endswith((".a", ".b"))
        assert weight.requires_grad == learns, name
        assert torch.equal(weight, before[name]) != learns, name
    count = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert count == 2 * 3 * ((24 + 24) + (96 + 24))


def test_merged_and_taken_out_again() -> None:
    """Two roundings: |W'' - W| ≤ ε·(|W| + |change|) for the sum, and as much again for the difference."""
    model = adapted()
    wanted = logits(model)
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, LoraLinear)}
    before = {name: layer.base.weight.detach().clone() for name, layer in layers.items()}
    change = {name: layer.change.detach().clone() for name, layer in layers.items()}
    held = merge(model)
    assert not any(isinstance(layer, LoraLinear) for layer in model.modules())
    # a score is a sum of some hundred products of size one, each of them rounded to 6e-8
    assert float((logits(model) - wanted).abs().max()) < 1e-5
    for name, weight in before.items():
        merged: Any = model.get_submodule(name).weight
        assert bool(((merged - (weight + change[name])).abs() <= 2 * ROUNDING * merged.abs()).all())
    unmerge(model, held)
    for name, weight in before.items():
        back: Any = model.get_submodule(name)
        bound = ROUNDING * (2 * weight.abs() + 2 * change[name].abs())
        assert bool(((back.base.weight - weight).abs() <= bound).all())
    assert float((logits(model) - wanted).abs().max()) < 1e-5


def test_merging_in_float64_is_exact_for_all_that_counts() -> None:
    model = adapted().double()
    wanted = logits(model)
    held = merge(model)
    assert float((logits(model) - wanted).abs().max()) < 1e-13
    unmerge(model, held)
    assert float((logits(model) - wanted).abs().max()) < 1e-13


def test_adapters_are_kept_alone(tmp_path: Path) -> None:
    model = adapted()
    save_adapters(model, tmp_path / "a.safetensors")
    held = load_file(tmp_path / "a.safetensors")
    assert {name.rpartition(".")[2] for name in held} == {"a", "b", "scale"}
    assert (tmp_path / "a.safetensors").stat().st_size < sum(weight.nbytes for weight in model.parameters()) / 3
    torch.manual_seed(0)
    fresh = PLAIN.build().eval()
    assert not torch.equal(logits(fresh), logits(model))
    load_adapters(fresh, tmp_path / "a.safetensors")  # onto a plain model of the same weights
    assert torch.equal(logits(fresh), logits(model))
    assert [n for n, w in fresh.named_parameters() if w.requires_grad] == [
        n for n, w in model.named_parameters() if w.requires_grad
    ]
    other = adapted(seed=0)
    for module in other.modules():
        if isinstance(module, LoraLinear):
            nn.init.zeros_(module.b)
    load_adapters(other, tmp_path / "a.safetensors")  # and into adapters that are there
    assert torch.equal(logits(other), logits(model))


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    file = tmp_path / "a.safetensors"
    save_adapters(adapted(), file)
    narrow = PLAIN.model_copy(update={"width": 16}).build()
    with pytest.raises(WeightsError, match=r"mixer.query is \[16, 16\], which does not fit a of \[3, 24\]"):
        load_adapters(narrow, file)
    shallow = PLAIN.model_copy(update={"depth": 1}).build()
    with pytest.raises(WeightsError, match="there is no linear layer stack.blocks.1.mixer.query"):
        load_adapters(shallow, file)
    held = load_file(file)
    save_file({name: tensor for name, tensor in held.items() if not name.endswith("query.b")}, file)
    with pytest.raises(WeightsError, match="stack.blocks.0.mixer.query.b is missing"):
        load_adapters(PLAIN.build(), file)
    with pytest.raises(InputError, match="has no adapters to save"):
        save_adapters(PLAIN.build(), file)


def test_what_cannot_be_merged() -> None:
    tied = PLAIN.model_copy(update={"tied": True})
    with pytest.raises(InputError, match="head shares its weight with embeddings.table.weight, which would change too"):
        merge(edit(tied.build(), LoRA(on="head")))
    with pytest.raises(InputError, match="has a TernaryLinear below its adapter, which has no room for a change"):
        merge(edit(PLAIN.build(), BitLinear(), LoRA()))
    model = adapted()
    held = merge(model)
    with pytest.raises(InputError, match="is not the layer that an adapter was merged into"):
        unmerge(PLAIN.build(), held)
    assert merge(model) == {}


def test_on_a_loaded_checkpoint(tmp_path: Path) -> None:
    """Other people's models are adapted like heed's own; what has no place in their layout is not lost unsaid."""
    opened = weights.load(GOLDEN / "llama" / "lm")
    before = logits(opened.model)
    edit(opened.model, LoRA(on="*.query", rank=2))
    with pytest.raises(WeightsError, match="has no place in this layout: the model was edited since it was loaded"):
        weights.write(opened, tmp_path / "no")
    for module in opened.model.modules():
        if isinstance(module, LoraLinear):
            nn.init.normal_(module.b, std=0.2)
    wanted = logits(opened.model)
    assert not torch.equal(wanted, before)
    merge(opened.model)
    weights.write(opened, tmp_path / "merged")
    again = weights.load(tmp_path / "merged").model
    assert float((logits(again) - wanted).abs().max()) < 1e-5


def test_packed_layers_can_be_adapted() -> None:
    model = edit(PLAIN.build(), edits.Packed(), LoRA(rank=2))
    model(TOKENS, WHERE)[0].sum().backward()
    grown = [name for name, weight in model.named_parameters() if weight.grad is not None]
    assert grown
    assert all(name.endswith((".a", ".b")) for name in grown)
