"""CRATE (Yu et al. 2023) in its authors' layout: a classifier of images.

Their way back from the subspaces is a free matrix with a bias, where the paper has the subspaces, transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

import torch
from pydantic import BeforeValidator
from torch import Tensor

from ....core.config import Number, Positive, Share, Size, Theirs
from ....core.errors import WeightsError
from ....mixers import Mssa
from ....models.multimodal.vision import VisionEncoder
from ....parts.feedforward import Ista
from ....parts.inputs.patches import PatchEmbeddings
from ....parts.layers.norms import LayerNorm
from ....parts.masks import Whole
from ....parts.outputs.heads import Pooled
from ....parts.residual.wiring import Unrolled
from ...formats.folder import CONFIG, INPUTS, Folder
from ...rename import Rule, Same, Table, both, restore
from ...rules import Framed
from ..inputs import Outputs, must_hold, understood


def _both_sides(value: object) -> object:
    return (value, value) if isinstance(value, int) else value


Sides: TypeAlias = Annotated[tuple[Size, Size], BeforeValidator(_both_sides)]  # one number for both, or two


class Crate(Theirs):
    """The arguments of their class; the defaults are theirs."""

    image_size: Sides
    patch_size: Sides
    num_classes: Size
    dim: Size
    depth: Size
    heads: Size
    pool: Literal["cls", "mean"] = "cls"
    channels: Size = 3
    dim_head: Size = 64
    dropout: Share = 0.0
    ista: Positive = 0.1  # how far a step goes
    lambd: Number = 0.1  # a constant in their code

    def ours(self) -> VisionEncoder.Config:
        """The same as a heed model."""
        alone = self.heads == 1 and self.dim_head == self.dim
        return VisionEncoder.Config(
            width=self.dim,
            depth=self.depth,
            embeddings=PatchEmbeddings.Config(
                image=self.image_size,
                patch=self.patch_size,
                channels=self.channels,
                pixel_norm=LayerNorm(),
                patch_norm=LayerNorm(),
            ),
            mixer=Mssa.Config(
                heads=self.heads,
                head_size=self.dim_head,
                mask=Whole(),
                out="none" if alone else "free",
                dropout=self.dropout,
            ),
            feedforward=Ista.Config(step=self.ista, threshold=self.lambd),
            wiring=Unrolled(final=False),
            dropout=self.dropout,
            heads=Pooled.Config(
                pool="first" if self.pool == "cls" else "mean", norm=LayerNorm(), labels=self.num_classes
            ),
        )

    def names(self) -> Table:
        """Their tensors, and ours."""
        theirs, ours = "transformer.layers.{i}", "stack.blocks.{i}"
        patches, (height, width) = "to_patch_embedding", self.patch_size
        return (
            Framed("cls_token", "embeddings.marks.0", axes=2),
            Framed("pos_embedding", "embeddings.position.table"),
            *(
                Pixels(f"{patches}.1.{kind}", f"embeddings.pixel_norm.{kind}", height, width)
                for kind in ("weight", "bias")
            ),
            Pixels(f"{patches}.2.weight", "embeddings.cut.weight", height, width, plane=True),
            Same(f"{patches}.2.bias", "embeddings.cut.bias"),
            *both(f"{patches}.3", "embeddings.patch_norm"),
            *both(f"{theirs}.0.norm", f"{ours}.wiring.norms.0"),
            Same(f"{theirs}.0.fn.qkv.weight", f"{ours}.mixer.subspaces.weight"),
            *both(f"{theirs}.0.fn.to_out.0", f"{ours}.mixer.out"),
            *both(f"{theirs}.1.norm", f"{ours}.wiring.norms.1"),
            Same(f"{theirs}.1.fn.weight", f"{ours}.feedforward.dictionary"),
            *both("mlp_head.0", "heads.pooled.norm"),
            *both("mlp_head.1", "heads.pooled.scores"),
        )


@dataclass(frozen=True)
class Pixels(Rule):
    """Theirs has the pixels of a patch row by row, all channels of each; ours has them channel by channel."""

    ours: str
    height: int
    width: int
    plane: bool = False  # ours keeps channel, row and column apart

    @property
    def targets(self) -> tuple[str, ...]:
        return (self.ours,)

    def split(self, theirs: Tensor) -> Sequence[Tensor]:
        pixels = torch.unflatten(theirs, -1, (self.height, self.width, -1)).movedim(-1, -3)
        return (pixels if self.plane else pixels.flatten(-3),)

    def join(self, ours: Sequence[Tensor]) -> Tensor:
        pixels = ours[0] if self.plane else torch.unflatten(ours[0], -1, (-1, self.height, self.width))
        return pixels.movedim(-3, -1).flatten(-3).contiguous()


def model(folder: Folder) -> VisionEncoder:
    """The model in a folder of the family `crate`."""
    theirs = understood(folder, Crate)
    must_hold(folder, theirs.dim, theirs.depth)
    for side, patch in zip(theirs.image_size, theirs.patch_size, strict=True):
        if side % patch:
            raise WeightsError(f"{folder.path / CONFIG}: an image of {side} pixels is not cut evenly into {patch}")
    return restore(lambda: theirs.ours().build(), folder, theirs.names())


def outputs(folder: Folder) -> Outputs:
    """Family `crate`: hidden states before the first layer and after each of its two steps, and logits."""
    theirs, vision, images = understood(folder, Crate), model(folder), folder.input("img")
    needed = (theirs.channels, *theirs.image_size)
    if images.dim() != 4 or images.shape[1:] != needed:
        raise WeightsError(
            f"{folder.path / INPUTS}: img has the shape {list(images.shape)}; needed is [rows, "
            f"{', '.join(map(str, needed))}]: their positions fit images of one size"
        )
    x, where = vision.embeddings(images)
    made = {"embedded": x}
    for layer, block in enumerate(vision.stack.layers):
        first, second = block.wiring.norms
        x = x + block.mixer(first(x), where)[0]
        made[f"after_mssa.{layer}"] = x
        x, _ = block.feedforward(second(x), where)
        made[f"after_ista.{layer}"] = x
    return made | {"logits": vision.heads["pooled"](vision.stack.ends.leave(x), where)}
