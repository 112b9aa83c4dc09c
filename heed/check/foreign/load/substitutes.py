"""What torch or Python itself has in the place of things of packages that are not installed, or of old versions.

Each computes what the original computes, so that a check of code that uses it says something about that code.
"""

from __future__ import annotations

import collections.abc
import math
from itertools import repeat
from typing import Any

from torch import Tensor, nn


class DropPath(nn.Module):
    """Stochastic depth: while training, a row is dropped with this probability, and the others are scaled up."""

    def __init__(self, drop_prob: float | None = None, scale_by_keep: bool = True) -> None:
        super().__init__()
        self.drop_prob, self.scale_by_keep = drop_prob or 0.0, scale_by_keep

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.drop_prob:
            return x
        stays = x.new_empty((len(x), *[1] * (x.dim() - 1))).bernoulli_(1 - self.drop_prob)
        return x * (stays / (1 - self.drop_prob) if self.scale_by_keep else stays)


class Attributes(dict[str, Any]):
    """A dictionary whose keys are attributes too, also in dictionaries within it."""

    def __init__(self, *args: Any, **items: Any) -> None:
        super().__init__(*args, **items)
        for key, value in self.items():
            self[key] = Attributes(value) if type(value) is dict else value

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def to_2tuple(value: Any) -> tuple[Any, ...]:
    """A number twice; what is a sequence already, as it is."""
    if isinstance(value, collections.abc.Iterable) and not isinstance(value, str):
        return tuple(value)
    return tuple(repeat(value, 2))


def layer_norm(shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, **options: Any) -> nn.LayerNorm:
    """A norm of packages that have a fused one; their switches for export and precision change nothing here."""
    return nn.LayerNorm(shape, eps=eps, elementwise_affine=elementwise_affine)


def rms_norm(shape: Any, eps: float | None = 1e-5, **options: Any) -> nn.RMSNorm:
    """The same without mean and bias."""
    return nn.RMSNorm(shape, eps=eps)


# Package and name, wherever in the package the name is imported from.
SUBSTITUTES: dict[tuple[str, str], tuple[Any, str]] = {
    **{("apex", name): (nn.LayerNorm, "torch.nn.LayerNorm") for name in ("FusedLayerNorm", "MixedFusedLayerNorm")},
    **{("apex", name): (nn.RMSNorm, "torch.nn.RMSNorm") for name in ("FusedRMSNorm", "MixedFusedRMSNorm")},
    ("fairseq", "LayerNorm"): (layer_norm, "torch.nn.LayerNorm"),
    ("flash_attn", "RMSNorm"): (rms_norm, "torch.nn.RMSNorm"),
    ("transformer_engine", "LayerNorm"): (layer_norm, "torch.nn.LayerNorm"),
    ("transformer_engine", "RMSNorm"): (rms_norm, "torch.nn.RMSNorm"),
    ("timm", "DropPath"): (DropPath, "stochastic depth written out"),
    ("timm", "trunc_normal_"): (nn.init.trunc_normal_, "torch.nn.init.trunc_normal_"),
    ("timm", "to_2tuple"): (to_2tuple, "a pair"),
    ("easydict", "EasyDict"): (Attributes, "a dictionary with attributes"),
    ("addict", "Dict"): (Attributes, "a dictionary with attributes"),
    ("ml_collections", "ConfigDict"): (Attributes, "a dictionary with attributes"),
}

# Module and name that an installed version no longer has.
MOVED: dict[tuple[str, str], Any] = {
    **{("collections", name): getattr(collections.abc, name) for name in collections.abc.__all__},
    ("torch._six", "container_abcs"): collections.abc,
    ("torch._six", "string_classes"): (str, bytes),
    ("torch._six", "int_classes"): int,
    ("torch._six", "inf"): math.inf,
    ("torch._six", "nan"): math.nan,
}
