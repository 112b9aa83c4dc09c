"""Quantization of trained models: weights as int8 or int4 codes with scales, a quarter or an eighth of float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from torch import Tensor, nn

from ...core.config import nearest
from ...core.errors import ConfigError
from ...kernels import GROUP
from ...parts.inputs.tokens import TokenEmbeddings
from ...parts.layers.embeddings import QuantisedEmbedding
from ...parts.layers.linear import LinearLike
from ...parts.layers.quantised import GroupedLinear, Int8Linear
from .base import Edit, Layer
from .base import linears as layers_of

Bits: TypeAlias = Literal["int8", "w8a8", "int4", "q8_0"]
ROWS = ("int8", "w8a8")  # one scale for a row
BITS: tuple[Bits, ...] = get_args(Bits)
PLAIN = (nn.Linear, nn.Embedding)


class Quantised(Edit):
    """Matrices as codes and scales: "int8" and "w8a8" have a scale per row, "int4" and "q8_0" (8 bits) per 32 weights.

    "w8a8" quantises the channels of a token (activations) to 8 bits, too, which is quicker for many tokens, and
    coarser. Where inputs do not divide by 32, "int8" it is. Tables of tokens are quantised, too, once for all that are
    tied to them. A layer that is more than a matrix and a bias stays as it is, and so does what is tied to it. What is
    quantised does not learn.
    `heed.load(path, quantise="int8")` does it as a checkpoint is read.
    """

    kind: Literal["quantised"] = "quantised"
    bits: Bits = "int8"  # the precision

    def apply(self, model: nn.Module) -> None:
        places: dict[str, Layer | nn.Embedding] = {**layers_of(model), **tables(model)}
        names = [name for name in self.chosen(places, "linear layer or table") if type(places[name]) in PLAIN]
        alone = _alone(model, {id(places[name]) for name in names})
        made: dict[int, Int8Linear | GroupedLinear] = {}  # by the weight: tied ones share what it becomes
        fresh: dict[int, nn.Module] = {}  # a layer that stands in several places stays one layer
        for name in names:
            layer = places[name]
            if isinstance(layer, nn.Embedding) and id(layer.weight) not in alone:
                continue  # another module needs the exact numbers
            if id(layer) not in fresh:
                fresh[id(layer)] = self._swapped(layer, made).requires_grad_(False).train(layer.training)
            model.set_submodule(name, fresh[id(layer)])

    def _swapped(
        self, layer: Layer | nn.Embedding, made: dict[int, Int8Linear | GroupedLinear]
    ) -> Int8Linear | GroupedLinear | QuantisedEmbedding:
        """Codes and scales in the place of a layer or of a table."""
        key = id(layer.weight)
        if isinstance(layer, nn.Embedding):
            return QuantisedEmbedding(
                made[key] if key in made else made.setdefault(key, self._quantised(_Looked(layer)))
            )
        own = self._quantised(layer)
        first = made.setdefault(key, own)
        own.codes, own.scale = first.codes, first.scale
        return own

    def _quantised(self, layer: Layer) -> Int8Linear | GroupedLinear:
        if self.bits in ROWS or layer.in_features % GROUP:
            return Int8Linear(layer, 8 if self.bits == "w8a8" else 16)
        return GroupedLinear(layer, 4 if self.bits == "int4" else 8)


def is_quantised(module: nn.Module) -> bool:
    """Whether this is what `Quantised` makes."""
    return isinstance(module, Int8Linear | GroupedLinear | QuantisedEmbedding)


def bits_of(name: str | int) -> Bits:
    """The precision of this name, or of so many bits."""
    found = next((bits for bits in BITS if bits in (name, f"int{name}")), None)
    if found is None:
        raise ConfigError(f"{name!r} is not a precision to quantise to{nearest(str(name), BITS)}")
    return found


def tables(model: nn.Module) -> Mapping[str, nn.Embedding]:
    """The tables of tokens of a model by name, those that are plain."""
    return {
        f"{name}.table": module.table
        for name, module in model.named_modules(remove_duplicate=False)
        if isinstance(module, TokenEmbeddings) and type(module.table) is nn.Embedding
    }


def _alone(model: nn.Module, chosen: set[int]) -> set[int]:
    """Weights, by identity, that only these modules hold."""
    held = [
        (id(weight), id(model.get_submodule(name.rpartition(".")[0])))
        for name, weight in model.named_parameters(remove_duplicate=False)
    ]
    return {weight for weight, owner in held} - {weight for weight, owner in held if owner not in chosen}


class _Looked(LinearLike):
    """A table as a layer, for it is a matrix that is looked up in."""

    def __init__(self, table: nn.Embedding) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = table.embedding_dim, table.num_embeddings
        self.weight, self.bias = table.weight, None

    @property
    def matrix(self) -> Tensor:
        return self.weight
