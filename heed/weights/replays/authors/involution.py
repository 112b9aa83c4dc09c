"""Involution (Li et al. 2021) as its authors' layer computes it, over a plane."""

from __future__ import annotations

from ....core.config import Size, Theirs
from ....core.errors import InputError, WeightsError
from ....parts.convolution.involution import Involution2d
from ...formats.folder import INPUTS, Folder
from ...rename import Same, Table, both, restore
from ..inputs import Outputs, must_hold, understood

NAMES: Table = (
    Same("conv1.conv.weight", "reduce.weight"),
    *both("conv1.bn", "norm"),
    *(Same(f"conv1.bn.{name}", f"norm.{name}") for name in ("running_mean", "running_var", "num_batches_tracked")),
    *both("conv2.conv", "spread"),
)


class Involution(Theirs):
    """The arguments of their layer; two of them are constants in their code."""

    channels: Size
    kernel_size: Size
    stride: Size = 1
    group_channels: Size = 16
    reduction_ratio: Size = 4

    def ours(self) -> Involution2d:
        """The same as a part of heed."""
        config = Involution2d.Config(
            kernel=self.kernel_size, stride=self.stride, group=self.group_channels, reduction=self.reduction_ratio
        )
        return config.build(self.channels)


def layer(folder: Folder) -> Involution2d:
    """The layer in a folder of the family `involution`."""
    theirs = understood(folder, Involution)
    must_hold(folder, theirs.channels, 1)
    return restore(theirs.ours, folder, NAMES)


def outputs(folder: Folder) -> Outputs:
    """Family `involution`: what the layer gives in use, that is, by the means and variances that it has learnt."""
    try:
        return {"y": layer(folder)(folder.input("x"))}
    except InputError as error:
        raise WeightsError(f"{folder.path / INPUTS}: x: {error}") from None
