"""What every family needs to be fed: its config understood, its inputs checked, its padding at the row's end.

Authors hide padding wherever it stands; heed wants it at a row's end. So real tokens are moved to the front, each
keeping its column as its position, and what comes out is moved back (`Padded`). At padding heed gives what it gives,
which is not what a reference gives there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor

from ...core.config import Theirs
from ...core.contract import Where
from ...core.errors import ConfigError, WeightsError
from ...models.stack import Stack
from ..families.base import Places
from ..formats.folder import CONFIG, INPUTS, Folder
from ..formats.safetensors import WEIGHTS

Outputs: TypeAlias = "dict[str, Tensor]"  # under the names of outputs.safetensors
T = TypeVar("T", bound=Theirs)


def understood(folder: Folder, kind: type[T], given: dict[str, object] | None = None) -> T:
    """The folder's config as one of ours, or every problem that it has."""
    try:
        return kind.load(folder.config if given is None else given)
    except ConfigError as error:
        raise WeightsError(f"{folder.path / CONFIG}: {error}") from None


def must_hold(folder: Folder, width: int, depth: int) -> None:
    """Raise if config.json claims more than the weights can bear out: to build width and depth costs time."""
    tensors = folder.weights
    widest = max((max(tensors.like(name).shape, default=1) for name in tensors), default=0)
    if width > widest or depth > len(folder.weights):
        raise WeightsError(
            f"{folder.path / CONFIG} claims {depth} layers of width {width}; {WEIGHTS} holds {len(folder.weights)} "
            f"tensors, none of them wider than {widest}"
        )


def sequence(folder: Folder, name: str, width: int | None = None) -> Tensor:
    """An input of shape [rows, tokens] or, with a width, [rows, tokens, width]."""
    tensor = folder.input(name)
    if tensor.dim() != (2 if width is None else 3) or (width is not None and tensor.shape[2] != width):
        needed = "[rows, tokens]" if width is None else f"[rows, tokens, {width}]"
        raise WeightsError(f"{folder.path / INPUTS}: {name} has the shape {list(tensor.shape)}; needed is {needed}")
    return tensor


@dataclass(frozen=True)
class Padded:
    """Rows with padding anywhere, and how to bring their real tokens to the front and back."""

    real: Tensor  # [B, T] True = a token
    column: Tensor  # [B, T] which column comes to each place
    places: Places = "columns"  # what a token's position is: the column it came from, or its rank among real tokens

    @classmethod
    def hiding(cls, folder: Folder, mask: str, tokens: Tensor) -> Padded:
        """By an input that is True at padding, if there is such an input."""
        shape = tokens.shape[:2]
        if mask not in folder.inputs:
            return cls.of(torch.ones(shape, dtype=torch.bool))
        padding = folder.input(mask).bool()
        if padding.shape != shape:
            raise WeightsError(
                f"{folder.path / INPUTS}: {mask} has the shape {list(padding.shape)} beside tokens of {list(shape)}"
            )
        return cls.of(~padding)

    @classmethod
    def showing(cls, folder: Folder, mask: str, tokens: Tensor, places: Places = "columns") -> Padded:
        """By an input that is 1 at tokens, if there is such an input."""
        shown = cls.hiding(folder, mask, tokens)
        return cls.of(~shown.real if mask in folder.inputs else shown.real, places)

    @classmethod
    def of(cls, real: Tensor, places: Places = "columns") -> Padded:
        """From a mask that is True at tokens. [B, T]"""
        return cls(real, (~real).byte().argsort(dim=1, stable=True), places)

    @property
    def where(self) -> Where:
        """The stamps of the tokens at the front. Their order is their column: windows are measured over holes, too."""
        rank = torch.arange(self.real.shape[1]).expand_as(self.real)
        order = torch.where(rank < self.real.sum(1, keepdim=True), self.column, -1)
        return Where(order, (self.column if self.places == "columns" else rank).masked_fill(order < 0, 0))

    def aligned(self, x: Tensor) -> Tensor:
        """Real tokens to the front of their rows. [B, T, ...]"""
        return _moved(x, self.column)

    def back(self, x: Tensor) -> Tensor:
        """Every token to where it came from."""
        return _moved(x, self.column.argsort(1))

    def pairs_back(self, weights: Tensor, keys: Padded | None = None) -> Tensor:
        """Weights over keys (of the same or of another sequence) to where both came from. [B, H, T, N]"""
        rows = _moved(weights.transpose(1, 2), self.column.argsort(1))  # [B, T, H, N]
        columns = _moved(rows.movedim(3, 1), (keys or self).column.argsort(1))  # [B, N, T, H]
        return columns.permute(0, 3, 2, 1)


def streams(stack: Stack, x: Tensor, where: Where) -> list[Tensor]:
    """The hidden states (the stream) before the first block and after each one."""
    made = [stack.ends.enter(x)]
    for block in stack.layers:
        made.append(block(made[-1], where)[0])
    return made


def _moved(x: Tensor, column: Tensor) -> Tensor:
    return x.take_along_dim(column.reshape(*column.shape, *(1,) * (x.dim() - 2)), 1)
