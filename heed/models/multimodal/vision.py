"""Vision Transformer: ViT (Dosovitskiy et al. 2021) and DeiT (Touvron et al. 2021), images to hidden states."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from torch import Tensor, nn

from ...core.config import ManyOf, Size, renamed_keys
from ...core.contract import Where
from ...core.errors import InputError
from ...core.interfaces import Asked, Encodes, Sees
from ...core.stamps import Stamps
from ...core.state import Seen
from ...mixers import Attention, SomeMixers
from ...parts.inputs.patches import PatchEmbeddings
from ...parts.masks import Whole
from ...parts.outputs.heads import HEADS, Head, HeadConfig, Wanted, headed, heads_of
from ..backbone import Backbone
from ..block import States
from ..plan import Shape
from ..stack import Stack


class Distilled(Head):
    """½ (W x_0 + W' x_1): the mean of the class token's logits and of the distillation token's, learnt from a teacher.

    Touvron et al. 2021, Training data-efficient image transformers & distillation through attention.
    """

    class Config(HeadConfig):
        kind: Literal["distilled"] = "distilled"
        labels: Size  # classes

        def build(self, width: int, table: nn.Embedding | None) -> Distilled:
            return Distilled(self, width)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.own, self.taught = (nn.Linear(width, config.labels) for _ in range(2))

    def forward(self, stream: Tensor, where: Stamps) -> Tensor:
        own, taught = self.apart(stream)
        return (own + taught) / 2

    def apart(self, stream: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of either token. [B, labels] twice"""
        return self.own(stream[:, 0]), self.taught(stream[:, 1])


SomeViews = Annotated[HeadConfig | tuple[HeadConfig, ...], ManyOf(lambda: (*HEADS, Distilled.Config))]


class VisionEncoder(Backbone, Encodes, Sees, Asked):
    """Patches in, hidden states out: the backbone of ViT, DeiT and of CLIP's image encoder.

    seen = model.see(images)                                        # [B, C, H, W] -> hidden states with their stamps
    logits = model.heads["pooled"](seen.parts[0], seen)
    """

    embeddings: PatchEmbeddings

    class Config(Stack.Config, Shape):
        kind: Literal["vision"] = "vision"
        embeddings: PatchEmbeddings.Config
        mixer: SomeMixers = (Attention.Config(mask=Whole()),)
        heads: SomeViews | None = None  # over its hidden states

        _renamed = renamed_keys(front="embeddings")

        def sized(self, vocabulary: int) -> Self:
            """An image has no vocabulary."""
            return self

        def build(self) -> VisionEncoder:
            return VisionEncoder(self)

        def headed(self, wanted: Wanted) -> Self:
            return self.model_copy(update={"heads": headed(self.heads, wanted, 0)})

    def __init__(self, config: Config) -> None:
        super().__init__(config, config.embeddings.build(config.width, config.dropout))
        self.config = config
        self.heads = heads_of(config.heads, config.width)

    def see(self, images: Tensor) -> Seen:
        """The hidden states of these images, stamped: class tokens first, then the patches row by row."""
        x, where = self.embeddings.embed(images)
        stream, _ = self.mix(x, where)
        return Seen.of(where, stream)

    @property
    def shown(self) -> tuple[int, int, int]:
        return self.embeddings.shown

    def encode(self, images: Tensor, where: Where | None = None) -> Seen:
        """The same beside stamps, which must be about as many tokens."""
        seen = self.see(images)
        if where is not None:
            must_match(where, seen)
        return seen

    def default_where(self, x: Tensor) -> Where:
        return self.embeddings.grid(x)

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        """The same as a Mixer. Where the patches stand is told by the image."""
        bare, grid = self.embeddings.embed(x)
        must_match(where, grid)
        return self.mix(bare, grid.beside(where.given), state)


def must_match(where: Stamps, grid: Stamps) -> None:
    """Raise unless stamps are about all patches of an image."""
    if where.shape != grid.shape or where.span.padded:
        raise InputError(
            f"these images have {tuple(grid.shape)} tokens (rows, tokens), the stamps are about {tuple(where.shape)} "
            "or hide some; use see(images), which makes them"
        )
