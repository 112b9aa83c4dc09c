"""A checkpoint folder as its authors left it: config.json, model.safetensors and, if golden, what went in and came out.

Nothing in a folder is trusted. Only safetensors are opened, never a pickle; whatever is wrong with a file is said with
its path; sizes named in config.json are compared with the tensors before anything of that size is made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from ...core.config import Data, nearest, read_data
from ...core.errors import ConfigError, WeightsError
from .checkpoint import Checkpoint
from .safetensors import WEIGHTS, Cast, Held, Stored, Tensors, opened

CONFIG, INPUTS, OUTPUTS = "config.json", "inputs.safetensors", "outputs.safetensors"


@dataclass(frozen=True)
class Folder:
    """What a checkpoint folder holds; every file is read when it is first asked for."""

    path: Path
    precision: torch.dtype | None = None  # to compute in; None: that of the weights

    @classmethod
    def open(cls, path: Path | str) -> Folder:
        """The folder at `path`, which must exist and hold a config.json with a model_type."""
        folder = cls(Path(path))
        if not folder.path.is_dir():
            raise WeightsError(f"{path} is not a folder; give one with {CONFIG} and {WEIGHTS}")
        if not isinstance(folder.config.get("model_type"), str):
            given = folder.config.get("model_type", "nothing")
            raise WeightsError(f"{folder.path / CONFIG} must name its model_type as a text, it has {given!r}")
        return folder

    @cached_property
    def config(self) -> Data:
        """Hyper-parameters under their authors' names."""
        try:
            return read_data(self.path / CONFIG)
        except ConfigError as error:
            raise WeightsError(str(error)) from None
        except (OSError, RecursionError) as error:
            raise WeightsError(f"{self.path / CONFIG} cannot be read: {error}") from None

    @property
    def family(self) -> str:
        """Which model this is."""
        return str(self.config["model_type"])

    @cached_property
    def weights(self) -> Tensors:
        """Parameters under their authors' names."""
        stored = Stored.of(self.path)
        return stored if self.precision is None else Cast(stored, self.precision)

    @property
    def checkpoint(self) -> Checkpoint:
        """Config and weights."""
        return Checkpoint(self.path, self.config, self.weights)

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        """What the reference was fed."""
        return _tensors(self.path / INPUTS)

    @cached_property
    def wanted(self) -> tuple[str, ...] | None:
        """Names of what the reference gave; None if that was not kept."""
        path = self.path / OUTPUTS
        if not path.exists():
            return None
        with opened(path), safe_open(path, "pt") as file:
            return tuple(sorted(file.keys()))

    @property
    def dtype(self) -> torch.dtype:
        """The precision to compute in: of the weights or, where there are none, of the inputs; at least float32."""
        stored = self.weights.dtype or Held(self.inputs).dtype or torch.float32
        return self.precision or torch.promote_types(stored, torch.float32)

    def fed(self, inputs: dict[str, Tensor]) -> Folder:
        """The same folder with other inputs."""
        other = replace(self)
        other.__dict__["inputs"] = inputs
        return other

    def wants(self, name: str) -> bool:
        """Whether an output is asked for; without outputs.safetensors, all of them are."""
        return self.wanted is None or name in self.wanted

    def input(self, name: str) -> Tensor:
        """One input, in the precision of the weights if it is not made of whole numbers."""
        if name not in self.inputs:
            raise WeightsError(f"{self.path / INPUTS} has no {name}{nearest(name, self.inputs)}")
        tensor = self.inputs[name]
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def extra(self, name: str) -> Tensor:
        """A tensor that was written beside the outputs but is really an input."""
        path = self.path / OUTPUTS
        if name not in (self.wanted or ()):
            raise WeightsError(f"{path} has no {name}{nearest(name, self.wanted or ())}")
        with opened(path), safe_open(path, "pt") as file:
            tensor: Tensor = file.get_tensor(name)
            return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def size(self, name: str, default: int | None = None) -> int:
        """A positive whole number of the config."""
        value = self.config.get(name, default)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        raise WeightsError(f"{self.path / CONFIG}: {name} is {value!r}; needed is a whole number above 0")

    def number(self, name: str, default: float | None = None) -> float:
        """A positive number of the config."""
        value = self.config.get(name, default)
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf"):
            return float(value)
        raise WeightsError(f"{self.path / CONFIG}: {name} is {value!r}; needed is a number above 0")


def _tensors(path: Path) -> dict[str, Tensor]:
    with opened(path), safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
