"""One table reads and writes: round trips, ties, constants, and errors that list everything at once."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from heed.core.errors import WeightsError
from heed.weights.rename import Computed, Fused, Ignored, Rule, Same, Table, both, export, load

WIDTH, WORDS, DEPTH = 4, 7, 3


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))


class Model(nn.Module):
    def __init__(self, *, tied: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.register_buffer("steps", torch.zeros(2))
        if tied:
            self.head.weight = self.table.weight


SCALE = torch.tensor([0.5, 0.25])
TABLE: Table = (
    Same("embed", "table.weight"),
    Same("unembed", "head.weight"),
    Same("steps", "steps"),
    *(
        Fused(f"h.{{i}}.qkv.{kind}", tuple(f"layers.{{i}}.{part}.{kind}" for part in ("query", "key", "value")))
        for kind in ("weight", "bias")
    ),
    *both("h.{i}.ln.{n}", "layers.{i}.norms.{n}"),
    Ignored("h.{i}.mask"),
    Computed("h.{i}.scale", "layers.{i}.query.weight", SCALE),
)


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape)


def checkpoint(*, tied: bool = True) -> dict[str, Tensor]:
    tensors = {"embed": drawn(WORDS, WIDTH), "steps": drawn(2)}
    if not tied:
        tensors["unembed"] = drawn(WORDS, WIDTH)
    for i in range(DEPTH):
        tensors |= {f"h.{i}.qkv.weight": drawn(3 * WIDTH, WIDTH), f"h.{i}.qkv.bias": drawn(3 * WIDTH)}
        tensors |= {f"h.{i}.ln.{n}.{kind}": drawn(WIDTH) for n in range(2) for kind in ("weight", "bias")}
        tensors[f"h.{i}.scale"] = SCALE.clone()
    return tensors


def built(where: str, *, tied: bool = True) -> Model:
    with torch.device(where):
        return Model(tied=tied)


def problems(model: nn.Module, tensors: Mapping[str, Tensor], table: Table = TABLE) -> list[str]:
    with pytest.raises(WeightsError) as caught:
        load(model, tensors, table)
    return str(caught.value).split("\n  - ")[1:]


@pytest.mark.parametrize("where", ["meta", "cpu"])
@pytest.mark.parametrize("tied", [True, False])
def test_what_is_loaded_is_exported(where: str, tied: bool) -> None:
    model, tensors = built(where, tied=tied), checkpoint(tied=tied)
    load(model, tensors, TABLE)
    written = export(model, TABLE)
    assert written.keys() == tensors.keys()
    assert all(torch.equal(written[name], tensor) for name, tensor in tensors.items())
    assert (model.head.weight is model.table.weight) == tied


def test_a_fused_tensor_is_cut_by_rows() -> None:
    model, tensors = Model(), checkpoint()
    load(model, tensors, TABLE)
    for part, name in enumerate(("query", "key", "value")):
        rows = slice(part * WIDTH, (part + 1) * WIDTH)
        assert torch.equal(model.get_parameter(f"layers.1.{name}.weight"), tensors["h.1.qkv.weight"][rows])


def test_a_loaded_model_owns_its_memory_and_keeps_its_dtype() -> None:
    model, tensors = built("meta").double(), checkpoint()
    before = tensors["embed"].clone()
    load(model, tensors, TABLE)
    tensors["embed"].zero_()
    assert model.table.weight.dtype == torch.float64
    assert torch.equal(model.table.weight, before.double())
    assert model.table.weight.requires_grad


def test_memory_of_the_caller_stays_the_callers() -> None:
    """In the very precision of the model, too, where nothing need be rounded: only what a file holds is taken over."""
    model, tensors = built("meta"), checkpoint()
    before = tensors["embed"].clone()
    load(model, tensors, TABLE)
    tensors["embed"].zero_()
    assert torch.equal(model.table.weight, before)


# --- errors ---


def test_missing_unknown_and_misshapen_are_listed_together_and_nothing_is_changed() -> None:
    model, tensors = Model(), checkpoint()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    del tensors["h.1.qkv.bias"]
    tensors["h.1.qkv.bais"] = drawn(12)
    tensors["h.2.qkv.weight"] = drawn(10, WIDTH)
    tensors["steps"] = torch.tensor([1, 2])
    assert problems(model, tensors) == [
        "h.1.qkv.bias [12] is missing",
        "h.1.qkv.bais [12] is unknown; did you mean h.1.qkv.bias?",
        "steps holds torch.int64, needed are floating-point numbers",
        "h.2.qkv.weight has the shape [10, 4], needed is [12, 4]",
    ]
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_too_deep_and_too_shallow() -> None:
    tensors = checkpoint()
    tensors["h.3.ln.0.weight"] = drawn(WIDTH)
    assert [line.split(";")[0] for line in problems(Model(), tensors)] == ["h.3.ln.0.weight [4] is unknown"]
    tensors = {name: tensor for name, tensor in checkpoint().items() if not name.startswith("h.2.")}
    norms = [f"ln.{n}.{kind} [4]" for n in range(2) for kind in ("weight", "bias")]
    lost = ["qkv.weight [12, 4]", "qkv.bias [12]", *norms]
    assert problems(Model(), tensors) == [f"h.2.{name} is missing" for name in lost]


def test_a_checkpoint_of_another_model_gives_a_short_message() -> None:
    found = problems(Model(), {f"other.{i}": drawn(1) for i in range(1000)})
    assert len(found) == 40
    assert found[-1].endswith("and more than 40 in all")


def test_a_tensor_of_ours_without_a_rule_is_told() -> None:
    table = tuple(rule for rule in TABLE if rule.theirs != "steps")
    assert problems(Model(), checkpoint(), table)[0] == "steps [2] of heed's model has no rule in the table"


# --- ties ---


@pytest.mark.parametrize("stored", [("embed",), ("unembed",), ("embed", "unembed")])
def test_either_name_of_a_tie_will_do_and_it_stays_tied(stored: tuple[str, ...]) -> None:
    tensors = checkpoint()
    table = tensors.pop("embed")
    model = built("meta")
    load(model, tensors | {name: table.clone() for name in stored}, TABLE)
    assert model.head.weight is model.table.weight
    assert torch.equal(model.table.weight, table)
    assert "unembed" not in export(model, TABLE)


@pytest.mark.parametrize("gap", [0.5, 1e-3, 2.0**-20])
def test_a_tie_in_name_only_is_reported(gap: float) -> None:
    """However little they differ: only one of the two can be kept, and a checkpoint that was trained untied may be
    anywhere near.
    """
    tensors = checkpoint()
    tensors["embed"][3, 1] = 1.0
    tensors["unembed"] = tensors["embed"].clone()
    tensors["unembed"][3, 1] += gap
    told = f"embed and unembed are tied in this model, but differ by up to {gap:.3g}"
    assert problems(Model(), tensors) == [told]


def test_every_name_of_a_tie_is_compared() -> None:
    """Three names of one tensor, of which the last holds other numbers."""
    table = (*TABLE, Same("third", "head.weight"))
    tensors = checkpoint()
    tensors |= {"unembed": tensors["embed"].clone(), "third": tensors["embed"] + 1}
    assert problems(Model(), tensors, table) == ["unembed and third are tied in this model, but differ by up to 1"]


def test_neither_name_of_a_tie() -> None:
    tensors = checkpoint()
    del tensors["embed"]
    assert problems(Model(), tensors) == ["embed [7, 4] is missing"]


# --- what heed computes itself ---


def test_constants_may_be_absent_but_not_different() -> None:
    tensors = checkpoint()
    del tensors["h.0.scale"]
    model = Model()
    load(model, tensors, TABLE)
    assert torch.equal(export(model, TABLE)["h.0.scale"], SCALE)
    tensors["h.1.scale"] = torch.tensor([0.5, 0.26])
    tensors["h.2.scale"] = torch.ones(3)
    assert problems(Model(), tensors) == [
        "h.1.scale [2] is not the constant [2] that heed computes",
        "h.2.scale [3] is not the constant [2] that heed computes",
    ]


@pytest.mark.parametrize(("off", "same"), [(2.0**-22, True), (1e-5, False), (-1e-4, False)])
def test_constants_may_differ_by_a_rounding_and_no_more(off: float, same: bool) -> None:
    tensors = checkpoint()
    tensors["h.1.scale"] = SCALE * (1 + off)
    if same:
        load(Model(), tensors, TABLE)
    else:
        assert problems(Model(), tensors) == ["h.1.scale [2] is not the constant [2] that heed computes"]


def test_ignored_tensors_may_hold_anything_and_are_not_written() -> None:
    model = Model()
    load(model, checkpoint() | {"h.0.mask": torch.ones(9, 9, dtype=torch.bool)}, TABLE)
    assert "h.0.mask" not in export(model, TABLE)


@pytest.mark.parametrize("name", ["h.0.masks", "h.0.mask.weight", "hx0.mask", "h.0xmask", "h..mask", "a.h.0.mask"])
def test_a_name_that_only_looks_like_an_ignored_one_is_unknown(name: str) -> None:
    assert [line.split(";")[0] for line in problems(Model(), checkpoint() | {name: drawn(1)})] == [
        f"{name} [1] is unknown"
    ]


# --- memory ---


class FromDisk(Mapping[str, Tensor]):
    """Tensors that are made when they are asked for, and a count of how many live at once."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors, self.living, self.most = tensors, weakref.WeakSet[Tensor](), 0

    def __getitem__(self, name: str) -> Tensor:
        tensor = self.tensors[name].clone()
        self.living.add(tensor)
        self.most = max(self.most, len(self.living))
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __contains__(self, name: object) -> bool:
        return name in self.tensors


def test_tensors_are_copied_one_at_a_time() -> None:
    tensors = checkpoint()
    tensors["unembed"] = tensors["embed"]
    disk, model = FromDisk(tensors), built("meta")
    gc.disable()  # so that only what load drops by itself is gone
    try:
        load(model, disk, TABLE)
    finally:
        gc.enable()
    assert disk.most <= 3  # two sides of a tie, or the one before while the next is fetched
    assert torch.equal(model.table.weight, tensors["embed"])


# --- a new kind of rule ---


@dataclass(frozen=True)
class Transposed(Rule):
    """The whole cost of another way to store weights."""

    ours: str

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.ours,)

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return (theirs.mT,)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        return ours[0].mT


def test_another_rule_needs_only_split_and_join() -> None:
    table: Table = (Transposed("w", "weight"), Same("b", "bias"))
    tensors = {"w": drawn(3, 5), "b": drawn(5)}
    model = nn.Linear(3, 5)
    load(model, tensors, table)
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in export(model, table).items())
    assert problems(model, tensors | {"w": drawn(5, 3)}, table) == ["w has the shape [5, 3], needed is [3, 5]"]
