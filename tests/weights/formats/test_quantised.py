"""Quantization: tables that share codes with their heads, and checkpoints that are stored so and loaded so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from heed import engine
from heed.core.contract import Where
from heed.core.errors import ConfigError, InputError, WeightsError
from heed.kernels import library
from heed.mixers import Attention
from heed.models import Decoder
from heed.parts.layers.embeddings import QuantisedEmbedding
from heed.parts.layers.linear import LinearLike
from heed.parts.layers.quantised import GroupedLinear, Int8Linear
from heed.parts.outputs.heads import LMHead
from heed.runs.convert import convert
from heed.weights import load, write
from heed.weights.edits import LoRA, Quantised, edit
from heed.weights.edits.quantised import BITS, Bits, bits_of, is_quantised
from tests.weights.support import GOLDEN

SHARD = 1 << 30
FOLDERS = (
    *("albert/pretraining", "bart/seq2seq", "bert/pretraining", "clip/contrastive", "gemma2/lm", "gpt2/lm"),
    *("llama/lm", "longt5/local", "mamba/lm", "mixtral/lm", "rwkv/lm_state", "t5/seq2seq"),
    *("transfo-xl/adaptive_mems", "vit/cls", "wav2vec2/ctc_postln_group", "xlnet/plain"),
)


def decoder(**options: Any) -> Decoder:
    torch.manual_seed(0)
    config = {"width": 64, "depth": 1, "vocabulary": 37, "mixer": Attention.Config(heads=4), **options}
    return Decoder.Config(**config).build().eval()


def numbers(module: nn.Module) -> Tensor:
    """What a quantised layer or table stands for."""
    if isinstance(module, QuantisedEmbedding):
        return module(torch.arange(module.num_embeddings))
    assert isinstance(module, LinearLike)
    return module.matrix


# --- tables ---


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("tied", [True, False])
def test_a_table_is_quantised_with_its_head(bits: Bits, tied: bool) -> None:
    """Every number is at most half a scale from what it was; codes are there once for all that were tied."""
    before = decoder(tied=tied)
    exact = {name: weight.detach().clone() for name, weight in before.named_parameters(remove_duplicate=False)}
    model = edit(before, Quantised(bits=bits))
    table, head = (model.get_submodule(name) for name in ("embeddings.table", "head"))
    assert isinstance(table, QuantisedEmbedding)
    assert isinstance(head, Int8Linear | GroupedLinear)
    assert (table.codes is head.codes, table.scale is head.scale) == (tied, tied)
    for name in ("embeddings.table", "head", "stack.blocks.0.mixer.query"):
        module, old = model.get_submodule(name), exact[f"{name}.weight"]
        assert is_quantised(module)
        step = module.get_buffer("scale").float().abs()
        wide = step.repeat_interleave(32, 1) if step.dim() == 2 else step[:, None]
        share = 1.01 if bits == "int4" else 0.51  # of four bits, 8 is cut to 7; and scales are rounded themselves
        assert ((numbers(module) - old).abs() <= share * wide + 1e-3 * old.abs()).all(), name
    size = sum({id(t): t.nbytes for t in model.state_dict(keep_vars=True).values()}.values())
    float32 = sum({id(weight): weight.nbytes for weight in decoder(tied=tied).parameters()}.values())
    assert size < float32 * (0.24 if bits == "int4" else 0.34)


def test_what_is_looked_up_is_what_the_matrix_holds() -> None:
    index = torch.tensor([[3, 0], [9, 3]])
    for layer in (
        Int8Linear(nn.Linear(64, 10)),
        GroupedLinear(nn.Linear(64, 10), 8),
        GroupedLinear(nn.Linear(64, 10), 4),
    ):
        table = QuantisedEmbedding(layer)
        assert torch.equal(table(index), layer.matrix[index])
        assert table.weight.shape == (10, 64)
        assert table.weight.isnan().all()
        for wrong in (10, -1):
            with pytest.raises(IndexError):
                table(torch.tensor([wrong]))
        assert table.double()(index).dtype == torch.float64


def test_tokens_that_are_unknown_are_told() -> None:
    model = edit(decoder(), Quantised())
    with pytest.raises(InputError, match="the vocabulary has 37"):
        model(torch.tensor([[40]]), Where.run(1, 1))


def test_numbers_that_another_module_needs_stay() -> None:
    """A head that is more than a matrix, or is left out, keeps the table that it is tied to."""
    capped = edit(decoder(cap=5.0), Quantised())
    assert isinstance(capped.head, LMHead)
    assert type(capped.embeddings.table) is nn.Embedding
    assert capped.head.weight is capped.embeddings.table.weight
    left = edit(decoder(), Quantised(but="head"))
    assert type(left.head) is nn.Linear
    assert left.head.weight is left.embeddings.table.weight
    alone = edit(decoder(), Quantised(but="embeddings.table"))
    assert isinstance(alone.get_submodule("head"), Int8Linear)
    assert type(alone.embeddings.table) is nn.Embedding
    untied = edit(decoder(cap=5.0, tied=False), Quantised())
    assert isinstance(untied.embeddings.table, QuantisedEmbedding)
    with pytest.raises(ConfigError, match="did you mean embeddings.table"):
        edit(decoder(), Quantised(but="embeddings.tabel"))


def test_an_encoder_decoder_has_one_set_of_codes() -> None:
    model = edit(load(GOLDEN / "bart" / "seq2seq").model, Quantised())
    held = [
        model.get_submodule(name) for name in ("encoder.embeddings.table", "decoder.embeddings.table", "decoder.head")
    ]
    assert [type(module) for module in held] == [QuantisedEmbedding, QuantisedEmbedding, Int8Linear]
    assert len({id(module.codes) for module in held}) == 1


def test_widths_that_do_not_divide_by_32_have_a_scale_for_every_row() -> None:
    model = edit(decoder(width=48), Quantised(bits="int4"))
    assert isinstance(model.get_submodule("stack.blocks.0.mixer.query"), Int8Linear)
    assert isinstance(model.get_submodule("stack.blocks.0.feedforward.down"), GroupedLinear)


def test_scales_of_groups_stay_half_precision() -> None:
    """Kernels read them so; what became float32 was exact and comes back."""
    model = edit(decoder(), Quantised(bits="int4")).to(torch.float32)
    assert model.head.scale.dtype == torch.float16
    assert model.head.scale is model.embeddings.table.scale
    double = model.double()
    assert double.head.scale.dtype == torch.float64


@pytest.mark.parametrize("bits", BITS)
def test_a_step_reads_the_table_as_a_call_does(bits: Bits) -> None:
    """Codes times the same scales: no other float32 sums than before a table was quantised."""
    model = edit(decoder(scaled=True), Quantised(bits=bits))
    tokens = torch.tensor([[1, 36], [0, 17]])
    with torch.no_grad():
        whole, _ = model(torch.cat((tokens, tokens), 1), Where.run(2, 4))
        _, state = model(tokens, Where.run(2, 2), model.start(2))
        if library() is None:
            pytest.skip("this machine has no C++ compiler; that heed does without is shown by all other tests")
        assert state is not None
        runner = engine.runner(model, state)
        for place in (2, 3):
            logits = runner.step(tokens[:, place - 2], Where.run(2, 1, start=place))
            assert (logits - whole[:, place]).abs().max().item() < 1e-4 * whole.abs().max().item()


# --- checkpoints ---


@pytest.mark.parametrize("place", FOLDERS)
def test_a_checkpoint_comes_back_to_the_last_bit(tmp_path: Path, place: str) -> None:
    for bits in ("int8", "int4"):
        wanted = load(GOLDEN / place)
        edit(wanted.model, Quantised(bits=bits))
        made = convert(GOLDEN / place, tmp_path / bits, shard=SHARD, quantise=bits)
        found = load(tmp_path / bits)
        one, two = wanted.model.state_dict(), found.model.state_dict()
        assert one.keys() == two.keys()
        assert all(torch.equal(one[name], two[name]) and one[name].dtype == two[name].dtype for name in one)
        assert (found.shape, found.config) == (wanted.shape, wanted.config)
        assert found.edits[-1] == Quantised(bits=bits)
        assert made.family == "heed"
        held = [{id(t) for t in model.state_dict(keep_vars=True).values()} for model in (wanted.model, found.model)]
        assert len(held[0]) == len(held[1]) == made.tensors  # what is tied is stored once


@pytest.mark.parametrize("bits", BITS)
def test_scores_are_those_of_rounding_as_it_is_read(tmp_path: Path, bits: Bits) -> None:
    wanted = edit(load(GOLDEN / "gpt2" / "lm").model, Quantised(bits=bits))
    convert(GOLDEN / "gpt2" / "lm", tmp_path / "out", shard=1 << 14, quantise=bits)
    assert (tmp_path / "out" / "model.safetensors.index.json").is_file()  # in several files, if they are to be small
    ids, where = torch.arange(12)[None] * 5, Where.run(1, 12)
    with torch.no_grad():
        assert torch.equal(load(tmp_path / "out").model(ids, where)[0], wanted(ids, where)[0])


def test_adapters_go_on_top(tmp_path: Path) -> None:
    """Few bits below, what learns above (Dettmers et al. 2023): gradients reach the adapters alone."""
    convert(GOLDEN / "llama" / "lm", tmp_path / "out", shard=SHARD, quantise="int4")
    model = edit(load(tmp_path / "out").model, LoRA(rank=2, on="*.query"))
    model(torch.arange(5)[None], Where.run(1, 5))[0].square().sum().backward()
    learnt = {name for name, weight in model.named_parameters() if weight.grad is not None and weight.grad.any()}
    assert learnt == {f"stack.blocks.{layer}.mixer.query.b" for layer in range(2)}


CONFIG, WEIGHTS = "config.json", "model.safetensors"


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (lambda config: config.pop("source"), r"must hold that of the checkpoint it was made of \(source\)"),
        (lambda config: config["source"].update(model_type="lama"), "near names: llama"),
        (lambda config: config["model"].update(kind="decodr"), "did you mean decoder"),
        (lambda config: config["edits"][0].update(bits="int3"), "edits.0.bits is 'int3'"),
        (lambda config: config.pop("edits"), "edits is missing"),
        (lambda config: config["edits"][0].update(bits="int8"), "codes has the shape|codes holds"),
        (lambda config: config["model"].update(width=1 << 40), "it claims 2 layers of width"),
    ],
)
def test_nothing_of_such_a_folder_is_trusted(tmp_path: Path, broken: Any, told: str) -> None:
    convert(GOLDEN / "llama" / "lm", tmp_path / "out", shard=SHARD, quantise="int4")
    config = json.loads((tmp_path / "out" / CONFIG).read_text())
    broken(config)
    (tmp_path / "out" / CONFIG).write_text(json.dumps(config))
    with pytest.raises(WeightsError, match=told):
        load(tmp_path / "out")


def test_tensors_of_such_a_folder_must_fit(tmp_path: Path) -> None:
    convert(GOLDEN / "llama" / "lm", tmp_path / "out", shard=SHARD, quantise="int8")
    tensors = load_file(tmp_path / "out" / WEIGHTS)
    del tensors["stack.blocks.0.mixer.query.scale"]
    tensors["stack.blocks.0.mixer.key.codes"] = tensors["stack.blocks.0.mixer.key.codes"].float()
    save_file(tensors, tmp_path / "out" / WEIGHTS)
    with pytest.raises(WeightsError, match=r"query.scale \[\d+\] is missing"):
        load(tmp_path / "out")


def test_there_is_no_way_back(tmp_path: Path) -> None:
    convert(GOLDEN / "llama" / "lm", tmp_path / "out", shard=SHARD, quantise="int8")
    with pytest.raises(WeightsError, match="has no place in this layout"):
        write(load(tmp_path / "out"), tmp_path / "again")
    assert not (tmp_path / "again").exists()
    assert not list(tmp_path.glob(".*"))  # nothing is left of the attempt


def test_precisions_are_named() -> None:
    assert bits_of("int8") == "int8"
    with pytest.raises(ConfigError, match=r"'int-8' is not a precision to quantise to; did you mean int8\?"):
        bits_of("int-8")
