"""CRATE (Yu et al. 2023): a white-box transformer whose layers are steps of sparse rate reduction.

Each layer first compresses the tokens towards subspaces (`mssa`), then rewrites them as sparse codes (`ista`). What the
paper claims can be looked at, layer by layer:

    model = crate((8, 8), (2, 2), labels=10, size=TINY, channels=1).build()
    for layer in layerwise(model, images):
        print(layer.rate, layer.sparsity)

Over tokens it is a table of few numbers in a recipe: kind = "crate", width = 128, depth = 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ...core.config import Number, Parts, Positive, Share, Size
from ...core.interfaces import Sees
from ...mixers import Mssa
from ...parts.feedforward import Ista
from ...parts.inputs.patches import PatchEmbeddings
from ...parts.layers.norms import LayerNorm
from ...parts.look import look
from ...parts.masks import Causal, Whole
from ...parts.outputs.heads import Pool, Pooled
from ...parts.positions import Sinusoid
from ...parts.residual.wiring import Unrolled
from ..decoder import Decoder
from ..multimodal.vision import VisionEncoder
from ..plan import Plan


@dataclass(frozen=True)
class CrateSize:
    """The numbers of the paper's table 1."""

    width: int
    depth: int
    heads: int


TINY = CrateSize(width=384, depth=12, heads=6)
SMALL = CrateSize(width=576, depth=12, heads=12)
BASE = CrateSize(width=768, depth=12, heads=12)
LARGE = CrateSize(width=1024, depth=24, heads=16)


def crate(
    image: tuple[int, int],
    patch: tuple[int, int],
    *,
    labels: int,
    size: CrateSize = TINY,
    channels: int = 3,
    pool: Pool = "first",
    ista: Ista.Config = Ista.Config(),  # noqa: B008  # a frozen value
) -> VisionEncoder.Config:
    """The configuration of a classifier of images."""
    return VisionEncoder.Config(
        width=size.width,
        depth=size.depth,
        embeddings=PatchEmbeddings.Config(
            image=image, patch=patch, channels=channels, pixel_norm=LayerNorm(), patch_norm=LayerNorm()
        ),
        mixer=Mssa.Config(heads=size.heads, mask=Whole()),
        feedforward=ista,
        wiring=Unrolled(final=False),
        heads=Pooled.Config(pool=pool, norm=LayerNorm(), labels=labels),
    )


class Crate(Plan):
    """A white-box decoder (Yu et al. 2023) in few numbers: every layer compresses tokens, then makes them sparse."""

    paper: ClassVar[str] = "Yu et al. 2023, White-Box Transformers via Sparse Rate Reduction, arXiv 2306.01129"

    kind: Literal["crate"] = "crate"
    width: Size = 128
    depth: Parts = 4
    heads: Size = 4
    step: Positive = 0.1  # of the sparse codes
    threshold: Number = 0.1  # of the sparse codes: what is smaller becomes zero
    dropout: Share = 0.0

    def sized(self, vocabulary: int) -> Decoder.Config:
        return Decoder.Config(
            vocabulary=vocabulary,
            width=self.width,
            depth=self.depth,
            mixer=Mssa.Config(heads=self.heads, mask=Causal()),
            feedforward=Ista.Config(step=self.step, threshold=self.threshold),
            wiring=Unrolled(),
            dropout=self.dropout,
            position=Sinusoid.Config(),
            scaled=True,
        )


class LayerStats(NamedTuple):
    """What one layer reaches, the mean over a batch."""

    rate: float  # R^c of the tokens in its subspaces, in nats
    sparsity: float  # share of channels that are not zero behind it


@torch.no_grad()
def layerwise(model: nn.Module, *inputs: Any) -> list[LayerStats]:
    """The coding rate and the sparsity of every layer of a model, called with these inputs."""
    with look(model, "*.mixer.rate", "*.feedforward.sparsity") as seen:
        model.see(*inputs) if isinstance(model, Sees) else model(*inputs)
    rates, shares = ([shown for name, shown in seen.items() if name.endswith(end)] for end in ("rate", "sparsity"))
    return [LayerStats(_mean(rate, sum_last=True), _mean(share)) for rate, share in zip(rates, shares, strict=True)]


def _mean(shown: list[Tensor], *, sum_last: bool = False) -> float:
    """Over all calls; the rates of the heads add up."""
    numbers = torch.cat([one.sum(-1) if sum_last else one.flatten() for one in shown])
    return float(numbers.mean())
