"""Edits: what they find and change, laws of edited models, what is told apart and what is refused."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from typing import Any

import pytest
import tomli_w
import torch
from torch import Tensor, nn

import heed
from heed.core.cases import gradients_of
from heed.core.contract import Where
from heed.core.errors import ConfigError
from heed.core.laws import LAWS, Case, Law
from heed.mixers import MIXERS, Attention
from heed.models import Decoder, Embedded, Encoder, Seq2seq, Transformer, familiar
from heed.parts.layers.bitnet import BinaryLinear, PackedTernaryLinear, TernaryLinear
from heed.parts.layers.linear import LinearLike
from heed.parts.layers.lora import LoraLinear
from heed.parts.layers.norms import RMSNorm
from heed.parts.masks import Window
from heed.runs import Recipe, find
from heed.weights import edits
from heed.weights.edits import EDITS, BitLinear, BitLinearV1, Edit, LoRA, Share, edit
from heed.weights.edits.base import linears
from heed.weights.formats import native as own

WIDTH = 24
PLAIN = Decoder.Config(vocabulary=13, width=WIDTH, depth=4)
SAMPLES: dict[str, tuple[Edit, ...]] = {
    "lora": (LoRA(rank=3, alpha=6.0),),
    "bits": (BitLinear(),),
    "bits, normed": (BitLinear(on="*.feedforward.*", norm=RMSNorm()),),
    "one bit": (BitLinearV1(but="*.out"),),
    "packed": (edits.Packed(),),
    "trained, then packed": (BitLinear(on="*"), edits.Packed(on="*", but="head")),
    "lora on packed": (edits.Packed(), LoRA(on=("*.up", "*.down"), rank=2)),
    "shared": (Share(),),
    "shared in turn, bits": (Share(blocks=2, turns="cycle"), BitLinear()),
}


def alive(model: nn.Module) -> nn.Module:
    """Adapters begin with nothing; here they have learnt something."""
    for module in model.modules():
        if isinstance(module, LoraLinear):
            nn.init.normal_(module.b, std=0.3)
    return model


def built(*changes: Edit, config: Any = PLAIN) -> Any:
    torch.manual_seed(0)
    return alive(edit(config.build(), *changes)).eval()


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("sample", SAMPLES)
def test_laws_hold_for_edited_models(sample: str, law: Law) -> None:
    model = built(*SAMPLES[sample]).double()
    finding = law(Embedded(model), familiar(model))
    assert finding.holds, finding


def of_a_mixer(config: Any) -> Any:
    """The first sample of a mixer that streams, or the first one."""
    samples = config.samples()
    return next((sample for sample in samples if sample.build(WIDTH).streams), samples[0])


@pytest.mark.parametrize(
    "change", [LoRA(on="*", rank=2), BitLinear(on="*"), edits.Packed(on="*")], ids=lambda e: e.kind
)
@pytest.mark.parametrize("config", MIXERS, ids=lambda config: config.model_fields["kind"].default)
def test_every_mixer_takes_edited_layers(config: Any, change: Edit) -> None:
    """The split law holds, and nothing is computed behind the back of an edited layer."""
    torch.manual_seed(0)
    mixer, case = of_a_mixer(config).build(WIDTH), Case.make(WIDTH, tokens=6)
    if not linears(mixer):
        with pytest.raises(ConfigError, match="names no linear layer"):
            edit(mixer, change)
        return
    before = heard(mixer.double().eval(), case, {name: layer.weight for name, layer in linears(mixer).items()})
    alive(edit(mixer, change))
    finding = LAWS[0](mixer, case)
    assert finding.holds, finding
    if isinstance(change, LoRA):
        learnt = {name: layer.b for name, layer in linears(mixer).items() if isinstance(layer, LoraLinear)}
        assert heard(mixer, case, learnt) == before


def heard(mixer: Any, case: Case, weights: Mapping[str, Tensor]) -> set[str]:
    """The layers whose weights have a part in the output."""
    y, _ = mixer(case.x, case.where(0, case.x.shape[1]))
    found = gradients_of(y.square().sum(), list(weights.values()))
    return {name for name, slope in zip(weights, found, strict=True) if bool((slope != 0).any())}


def test_patterns_say_what_is_changed() -> None:
    model = built(LoRA(on="*.query", rank=2))
    changed = [name for name, layer in linears(model).items() if isinstance(layer, LinearLike)]
    assert changed == [f"stack.blocks.{i}.mixer.query" for i in range(4)]
    model = built(BitLinear(on=("*.mixer.*", "head"), but="*.1.*"))
    changed = [name for name, layer in linears(model).items() if isinstance(layer, TernaryLinear)]
    assert len(changed) == 3 * 4 + 1
    assert not any(".1." in name for name in changed)
    assert not any(
        isinstance(layer, LinearLike) for name, layer in linears(built(BitLinear())).items() if name == "head"
    )
    both = built(LoRA(), config=Transformer(width=16, heads=2, hidden=8).sized(9))
    assert sum(isinstance(layer, LoraLinear) for layer in both.modules()) == 2 * (2 + 2 * 2)  # query and value of each


def test_a_layer_that_stands_in_two_places_stays_one() -> None:
    first = nn.Linear(4, 4)
    model = nn.ModuleDict({"one": first, "two": nn.Sequential(first)})
    edit(model, BitLinear(on="*"))
    assert isinstance(model["one"], TernaryLinear)
    assert isinstance(model["two"], nn.Sequential)
    assert model["one"] is model["two"][0]


def test_what_is_tied_stays_tied() -> None:
    model = built(BitLinear(on="*"))
    assert isinstance(model.head, TernaryLinear)
    assert model.head.weight is model.embeddings.table.weight
    model = built(LoRA(on="head"))
    assert model.head.base.weight is model.embeddings.table.weight


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (LoRA(on="*.qeury"), r"on = '\*.qeury' names no linear layer of this model; did you mean \*.query\?"),
        (LoRA(on="stack.blocks.9.mixer.key"), r"did you mean stack.blocks.\*.mixer.key"),
        (LoRA(on="encoder.*"), r"there is head, stack.blocks.\*.feedforward.down, .*"),
        (BitLinear(on="*", but="haed"), "but = 'haed' names no linear layer of this model; did you mean head"),
        (LoRA(rank=25), "rank 25 is more than stack.blocks.0.mixer.query has, which is 24 × 24; use at most 24"),
        (Share(on="encoder"), "on = 'encoder' names no stack of this model; there is stack"),
        (Share(blocks=5), "stack has 4 layers, which cannot share 5 blocks"),
    ],
)
def test_misfits_are_told(change: Edit, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        edit(PLAIN.build(), change)


def test_edits_in_an_order_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="is a LoraLinear, more than a matrix and a bias.*or edit in another order"):
        built(LoRA(), BitLinear())
    with pytest.raises(ConfigError, match="is a TernaryLinear, .*: BitLinear cannot stand in its place"):
        built(BitLinear(), BitLinear())
    with pytest.raises(ConfigError, match="has an adapter already; merge"):
        built(LoRA(), LoRA())
    capped = PLAIN.model_copy(update={"cap": 5.0})
    with pytest.raises(ConfigError, match='head is a LMHead, .* leave it out with but = "head"'):
        built(BitLinear(on="*"), config=capped)


@pytest.mark.parametrize("kind", EDITS, ids=lambda kind: kind.model_fields["kind"].default)
def test_edits_round_trip_as_part_of_a_recipe(kind: type[Edit]) -> None:
    data = {**Recipe.read(find("characters"), ["data.train=x"]).dump(), "edits": [kind(on="*").dump()]}
    recipe = Recipe.load(data)
    assert recipe.edits == (kind(on="*"),)
    assert Recipe.load(json.loads(json.dumps(recipe.dump()))) == recipe
    assert Recipe.load(tomllib.loads(tomli_w.dumps(recipe.dump()))) == recipe


def test_edits_are_set_from_the_command_line() -> None:
    def read(*settings: str) -> Recipe:
        return Recipe.read(find("characters"), ["data.train=x", *settings])

    assert read().edits == ()
    assert read("edits.kind=lora", "edits.rank=4", "edits.on=*.query").edits == (LoRA(rank=4, on="*.query"),)
    assert read('edits=[{kind = "share"}, {kind = "bitlinear"}]').edits == (Share(), BitLinear())
    with pytest.raises(ConfigError, match=r"edits.0.kind is 'loar'; did you mean lora\?"):
        read("edits=[{kind = 'loar'}]")
    with pytest.raises(ConfigError, match=r"edits.0.rnak is unknown; did you mean rank\?"):
        read("edits=[{kind = 'lora', rnak = 3}]")


def test_edit_is_public() -> None:
    model = heed.edit(PLAIN.build(), LoRA())
    assert isinstance(model.stack.layers[0].mixer.query, LoraLinear)


# --- sharing ---


def counted(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize(("turns", "order"), [("groups", (0, 0, 1, 1)), ("cycle", (0, 1, 0, 1))])
def test_shared_blocks_count_once(turns: Any, order: tuple[int, ...]) -> None:
    """The same model as one that was built so, with the weights of the blocks that are left."""
    model, alone = built(Share(blocks=2, turns=turns)), built()
    assert model.stack.order == order
    block = counted(alone.stack.blocks[0])
    assert counted(alone) - counted(model) == 2 * block
    held = own.tensors(model)
    assert len(held) == len(own.tensors(alone)) - 2 * len(alone.stack.blocks[0].state_dict())
    same = PLAIN.model_copy(update={"order": order}).build().eval()
    own.fill(same, held)
    tokens, where = torch.arange(7)[None], Where.run(1, 7)
    with torch.no_grad():
        assert torch.equal(model(tokens, where)[0], same(tokens, where)[0])
    first = [alone.stack.blocks[order.index(number)] for number in (0, 1)]
    assert all(torch.equal(a, b) for x, y in zip(model.stack.blocks, first, strict=True) for a, b in _pairs(x, y))


def _pairs(one: nn.Module, other: nn.Module) -> Any:
    return zip(one.parameters(), other.parameters(), strict=True)


@pytest.mark.parametrize("order", [(0, 0, 0, 0), (0, 1, 1, 0)])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws_hold_for_blocks_in_any_order(order: tuple[int, ...], law: Law) -> None:
    """As an option of any stack: the same Mixer several times, a state for each."""
    mixers = (Attention.Config(mask=Window(back=2)), Attention.Config())
    config = PLAIN.model_copy(update={"order": order, "mixer": mixers[: max(order) + 1]})
    model = config.build().double().eval()
    finding = law(Embedded(model), familiar(model))
    assert finding.holds, finding


def test_only_blocks_that_are_alike_are_shared() -> None:
    mixers = (Attention.Config(mask=Window(back=2)), Attention.Config())
    hybrid = PLAIN.model_copy(update={"mixer": mixers})
    with pytest.raises(ConfigError, match="layers 0 and 1 of stack are not made alike"):
        built(Share(), config=hybrid)
    assert built(Share(blocks=2, turns="cycle"), config=hybrid).stack.order == (0, 1, 0, 1)
    both = built(Share(on="encoder.stack"), config=Transformer(width=16, heads=2, hidden=8, depth=3).sized(9))
    assert isinstance(both, Seq2seq)
    assert isinstance(both.encoder, Encoder)
    assert (len(both.encoder.stack.blocks), len(both.decoder.stack.blocks)) == (1, 3)


# --- saving ---


@pytest.mark.parametrize("sample", SAMPLES)
def test_edited_models_are_saved_and_read_back(sample: str, tmp_path: Any) -> None:
    model = built(*SAMPLES[sample])
    own.write(model, tmp_path / "model.safetensors")
    again = own.read(lambda: edit(PLAIN.build(), *SAMPLES[sample]), tmp_path)
    tokens, where = torch.arange(13)[None], Where.run(1, 13)
    with torch.no_grad():
        assert torch.equal(model(tokens, where)[0], again(tokens, where)[0])
    frozen = [name for name, weight in model.named_parameters() if not weight.requires_grad]
    assert frozen == [name for name, weight in again.named_parameters() if not weight.requires_grad]


def test_a_packed_file_is_a_twelfth_at_most(tmp_path: Any) -> None:
    """Of the ternary layers: 2 bits for 32, and one number for each layer."""
    config = Decoder.Config(vocabulary=65, width=96, depth=4)
    plain, small = built(BitLinear(), config=config), built(BitLinear(), edits.Packed(), config=config)
    assert sum(isinstance(layer, PackedTernaryLinear) for layer in small.modules()) == 4 * 6
    sizes = [_ternary_bytes(own.tensors(model)) for model in (plain, small)]
    assert 12 * sizes[1] <= sizes[0]
    own.write(small, tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors").stat().st_size < sizes[0] / 4  # norms, biases and embeddings included


def _ternary_bytes(held: dict[str, Tensor]) -> int:
    names = ("query", "key", "value", "out", "up", "down")
    parts = tuple(f"{name}.{part}" for name in names for part in ("weight", "codes", "scale"))
    return sum(tensor.nbytes for name, tensor in held.items() if name.endswith(parts))


def test_one_bit_layers_are_themselves() -> None:
    model = built(BitLinearV1())
    assert sum(isinstance(layer, BinaryLinear) for layer in model.modules()) == 4 * 6
    assert all(weight.requires_grad for weight in model.parameters())
