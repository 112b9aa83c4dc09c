"""Swin Transformer (Liu et al. 2021): shifted-window attention in stages that merge patches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Self, cast

from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Flag, Parts, Positive, Share, Size, renamed_keys
from ...core.contract import Mixer, Reach, Where
from ...core.interfaces import Asked, Encodes, Sees
from ...core.spec import Spec
from ...core.state import Seen
from ...mixers import ShiftedWindow
from ...parts.feedforward import Activation, FeedForward
from ...parts.inputs.patches import Grid, PatchEmbeddings, PatchMerging
from ...parts.layers.norms import AnyNorm, LayerNorm
from ...parts.outputs.heads import SomeHeads, Wanted, headed, heads_of
from ...parts.residual.wiring import PreNorm
from ..block import States
from ..plan import Shape
from ..stack import Stack
from .vision import must_match


class Stage(nn.Module):
    """Blocks over one plane, then, but for the last stage, a merging into the next."""

    def __init__(self, config: Stack.Config, *, merges: bool) -> None:
        super().__init__()
        self.stack = Stack(config)
        self.merge = PatchMerging(config.width) if merges else None

    def forward(self, x: Tensor, where: Grid) -> tuple[Tensor, Grid]:
        x, _ = self.stack(x, where)
        return self.leave(x, where)

    def leave(self, x: Tensor, where: Grid) -> tuple[Tensor, Grid]:
        """From the last block on."""
        return (x, where) if self.merge is None else self.merge(x, where)


class Swin(Mixer[States], Encodes, Sees, Asked):
    """Stages of blocks: each sees half as many rows and columns as the one before, in twice the channels.

    It gives fewer tokens than it takes, so not it but the stack of each of its stages obeys the laws of a mixer.
    """

    class Config(Shape):
        kind: Literal["swin"] = "swin"
        embeddings: PatchEmbeddings.Config  # without marks
        width: Size  # of the first stage
        depths: tuple[Parts, ...]  # blocks of each stage
        heads_per_stage: tuple[Size, ...]  # attention heads
        window: Size = 7  # cells on a side
        ratio: Positive = 4.0  # hidden channels of the feed-forward per channel
        activation: Activation = "gelu"
        bias: Flag = True  # of query, key and value
        norm: AnyNorm = LayerNorm()
        dropout: Share = 0.0
        weight_dropout: Share = 0.0  # of the weights
        heads: SomeHeads | None = None  # over its hidden states

        _renamed = renamed_keys(front="embeddings")

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if not self.depths or len(self.depths) != len(self.heads_per_stage):
                raise ValueError(
                    f"depths names {len(self.depths)} stages and heads_per_stage {len(self.heads_per_stage)}; "
                    "name a depth and a number of heads for each"
                )
            if self.embeddings.marks:
                raise ValueError("a plane has no place for marks; set embeddings.marks to 0")
            return self

        def sized(self, vocabulary: int) -> Self:
            """An image has no vocabulary."""
            return self

        def build(self) -> Swin:
            return Swin(self)

        def headed(self, wanted: Wanted) -> Self:
            return self.model_copy(update={"heads": headed(self.heads, wanted, 0)})

        def stages(self) -> Iterator[Stack.Config]:
            """Every stage: its plane, its width, and windows that every second layer shifts."""
            down, right = (
                -(-side // patch) if self.embeddings.filled else side // patch
                for side, patch in zip(self.embeddings.image, self.embeddings.patch, strict=True)
            )
            for index, (depth, heads) in enumerate(zip(self.depths, self.heads_per_stage, strict=True)):
                width = self.width << index
                still = ShiftedWindow.Config(
                    heads=heads,
                    grid=(down, right),
                    window=self.window,
                    bias=self.bias,
                    out_bias=True,
                    dropout=self.weight_dropout,
                )
                yield Stack.Config(
                    width=width,
                    depth=depth,
                    mixer=(still, still.model_copy(update={"shift": self.window // 2})),
                    feedforward=FeedForward.Config(hidden=int(self.ratio * width), activation=self.activation),
                    norm=self.norm,
                    wiring=PreNorm(final=False),
                    dropout=self.dropout,
                )
                down, right = (down + 1) // 2, (right + 1) // 2

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config, self.reach = config, Reach(None, None)
        self.embeddings = config.embeddings.build(config.width, config.dropout)
        last = len(config.depths) - 1
        self.stages = nn.ModuleList(Stage(stage, merges=index < last) for index, stage in enumerate(config.stages()))
        width = config.width << last
        self.norm = config.norm.build(width)
        self.heads = heads_of(config.heads, width)

    @property
    def levels(self) -> list[Stage]:
        """The stages in order."""
        return [cast(Stage, stage) for stage in self.stages]

    def spec(self) -> Spec:
        return ()

    def see(self, images: Tensor) -> Seen:
        """The last stage's hidden states of these images, stamped with its own plane."""
        x, where = self.embeddings.embed(images)
        return self._merged(x, where)

    @property
    def shown(self) -> tuple[int, int, int]:
        return self.embeddings.shown

    def encode(self, images: Tensor, where: Where | None = None) -> Seen:
        """The same beside stamps, which must be about all patches of the first plane."""
        bare, grid = self.embeddings.embed(images)
        if where is not None:
            must_match(where, grid)
        return self._merged(bare, grid)

    def default_where(self, x: Tensor) -> Where:
        return self.embeddings.grid(x)

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        """The same as a Mixer."""
        return self.encode(x, where).parts[0], None

    def _merged(self, x: Tensor, where: Grid) -> Seen:
        x = self.embeddings.place(x, where)
        for stage in self.levels:
            x, where = stage(x, where)
        return Seen.of(where, self.norm(x))
