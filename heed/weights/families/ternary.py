"""What a `quantization_config` of BitNet says: which linear layers are ternary, and how their weights are stored.

online              weights in full precision, quantised in every call (`BitLinear`)
offline             -1, 0 and 1 as numbers or four in a byte, and `weight_scale`, which multiplies all (`Packed`)
bitlinear           four in a byte, and `weight_scale`, which divides (`Packed`)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import torch
from pydantic import BeforeValidator
from torch import Tensor

from ...core.config import Flag, Positive, Text, Theirs
from ...core.errors import ConfigError, WeightsError
from ...parts.layers.bitnet import PER_BYTE, pack_ternary, unpack_ternary
from ...parts.layers.norms import RMSNorm
from ..edits import BitLinear, Edit, Packed
from ..formats.safetensors import Tensors
from ..rename import Rule, Same


class Quantisation(Theirs):
    """BitNetQuantConfig of transformers, with its defaults."""

    linear_class: Literal["bitlinear", "autobitlinear"] = "bitlinear"
    quantization_mode: Literal["online", "offline"] = "offline"
    use_rms_norm: Flag = False
    rms_norm_eps: Positive = 1e-6
    modules_to_not_convert: tuple[Text, ...] | None = None  # None: only the head

    @property
    def online(self) -> bool:
        """Whether weights are stored in full precision."""
        return self.linear_class == "autobitlinear" and self.quantization_mode == "online"

    def converts(self, name: str) -> bool:
        """Whether the layer of this name is ternary. Names stand for what they begin, up to a dot, or for an end."""
        kept = ("lm_head",) if self.modules_to_not_convert is None else self.modules_to_not_convert
        strange = next((item for item in kept if not re.fullmatch(r"[\w.]+", item)), None)
        if strange is not None:
            raise ConfigError(f"modules_to_not_convert holds {strange!r}; heed reads names there, not patterns")
        return not any(name.endswith(item) or f"{name}.".startswith(f"{item.removesuffix('.')}.") for item in kept)

    def edits(self, layers: Sequence[Converted], depth: int) -> tuple[Edit, ...]:
        """The edit that makes these layers ternary; one name stands for all that are alike, if none of them is left."""
        alike: dict[str, list[str]] = {}
        for layer in layers:
            alike.setdefault(re.sub(r"\.\d+\.", ".*.", layer.ours), []).append(layer.ours)
        on = tuple(name for kind, names in alike.items() for name in ([kind] if len(names) == depth > 1 else names))
        norm = RMSNorm(eps=self.rms_norm_eps) if self.use_rms_norm else None
        scaled = self.linear_class == "autobitlinear"
        made = BitLinear(on=on, norm=norm) if self.online else Packed(on=on, norm=norm, scaled_bias=scaled)
        return (made,) if on else ()

    def names(self, layers: Sequence[Converted], tensors: Tensors) -> Iterator[Rule]:
        """The tensors of ternary layers, beside their biases."""
        scale = Reciprocal if self.linear_class == "bitlinear" else Same
        for layer in layers:
            if self.use_rms_norm:
                yield Same(f"{layer.theirs}.rms_norm.weight", f"{layer.ours}.norm.weight")
            if not self.online:
                weight = f"{layer.theirs}.weight"
                stored = weight in tensors and not tensors.like(weight).is_floating_point()
                yield Ternaries(weight, f"{layer.ours}.codes", layer.rows, stored)
                yield scale(f"{layer.theirs}.weight_scale", f"{layer.ours}.scale")


def _of_bitnet(value: object) -> object:
    """Other methods store other tensors, which are refused by name."""
    return value if not isinstance(value, dict) or value.get("quant_method") == "bitnet" else None


AnyQuantisation: TypeAlias = Annotated[Quantisation | None, BeforeValidator(_of_bitnet)]


@dataclass(frozen=True)
class Ternaries(Rule):
    """Rows of -1, 0 and 1, four in a byte or, if they are not `stored` so, each a number of its own."""

    ours: str
    rows: int
    stored: bool

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.ours,)

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        if theirs.is_meta:
            bytes_ = theirs.new_empty(-(-self.rows // PER_BYTE), theirs.shape[1], dtype=torch.uint8)
            return (theirs if self.stored or len(theirs) != self.rows else bytes_,)
        strange = (
            (theirs & (theirs >> 1) & 0b01010101).any() if self.stored else (theirs.abs() > 1) | (theirs.frac() != 0)
        )
        if bool(strange.any()):
            raise WeightsError(
                f"{self.theirs} must hold -1, 0 and 1{' in two bits each' * self.stored}, it holds others"
            )
        return (theirs if self.stored else pack_ternary(theirs),)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        (codes,) = ours
        if self.stored:
            return codes
        return codes.new_empty(self.rows, codes.shape[1]) if codes.is_meta else unpack_ternary(codes, self.rows)


@dataclass(frozen=True)
class Reciprocal(Same):
    """They divide by what we multiply with."""

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        return (1.0 / theirs,)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        return 1.0 / ours[0]


@dataclass(frozen=True)
class Converted:
    """A ternary layer: its name there and here, and how many outputs it has."""

    theirs: str
    ours: str
    rows: int


def must_not_be(quantisation: Quantisation | None, kind: str) -> None:
    """Raise where ternary layers are not known."""
    if quantisation is not None:
        raise ConfigError(f"its quantization_config is BitNet's, which heed reads for bitnet and llama, not for {kind}")
