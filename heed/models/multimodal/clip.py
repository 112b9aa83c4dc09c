"""CLIP (Radford et al. 2021): a text encoder and an image encoder with one embedding space."""

from __future__ import annotations

from typing import Literal, Self

import torch
import torch.nn.functional as F
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Count, Number, Size
from ...core.contract import NOTHING, Given, Mixer, Where
from ...core.interfaces import Matches
from ...core.spec import Spec
from ...parts.outputs.heads import Pooled
from ..backbone import TokenBackbone
from ..block import States
from ..plan import Shape
from .vision import VisionEncoder

WARM = 2.6592  # ln(1 / 0.07), where CLIP's training began


class ClipTextEncoder(TokenBackbone):
    """A causal backbone over tokens; a text's embedding is the hidden state at its end token, projected."""

    class Config(TokenBackbone.Config):
        kind: Literal["clip_text"] = "clip_text"
        end: Count | None = None  # the token that ends a text; None = the highest one it holds (the first CLIPs)
        size: Size | None = None  # channels of the embedding; None = the width

        def build(self) -> ClipTextEncoder:
            return ClipTextEncoder(self)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.project = None if config.size is None else nn.Linear(config.width, config.size, bias=False)
        if self.project is not None:
            nn.init.normal_(self.project.weight, std=config.width**-0.5)

    def embed(self, tokens: Tensor, where: Where) -> Tensor:
        """One vector per text. [B, T] -> [B, size]"""
        stream, _ = self(tokens, where)
        return self.projected(self.ended(stream, tokens, where))

    def ended(self, stream: Tensor, tokens: Tensor, where: Where) -> Tensor:
        """The hidden state at the end token. [B, T, D] -> [B, D]"""
        tokens = where.blank(tokens)
        last = tokens.argmax(1) if self.config.end is None else (tokens == self.config.end).byte().argmax(1)
        return stream[torch.arange(len(stream), device=stream.device), last]

    def projected(self, vector: Tensor) -> Tensor:
        """Into the embedding space that texts and images share."""
        shared: Tensor = vector if self.project is None else self.project(vector)
        return shared


class ClipModel(Mixer[States], Matches):
    """logit_ij = e^s · cos( image_i, text_j ). As a Mixer it is its text encoder.

    logits = model.match(images, tokens, where)                     # [images, texts]
    """

    class Config(Shape):
        kind: Literal["clip"] = "clip"
        text: ClipTextEncoder.Config
        image: VisionEncoder.Config
        scale: Number = WARM  # s at the beginning; it is learnt

        @model_validator(mode="after")
        def _meet(self) -> Self:
            heads = self.image.heads if isinstance(self.image.heads, tuple) else (self.image.heads,)
            found = [head.labels for head in heads if isinstance(head, Pooled.Config)]
            if self.text.size is None or found != [self.text.size]:
                raise ValueError(
                    f"text embeddings have {self.text.size} channels, image embeddings {found or 'none'}; "
                    "give text.size and the labels of the image's pooled head one size"
                )
            return self

        def sized(self, vocabulary: int) -> Self:
            return self.model_copy(update={"text": self.text.sized(vocabulary)})

        def build(self) -> ClipModel:
            return ClipModel(self)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.text, self.image = ClipTextEncoder(config.text), VisionEncoder(config.image)
        self.scale = nn.Parameter(torch.tensor(config.scale))
        self.reach = self.text.reach

    def texts(self, tokens: Tensor, where: Where) -> Tensor:
        """Texts as vectors of length one. [B, T] -> [B, size]"""
        return F.normalize(self.text.embed(tokens, where), dim=-1)

    def images(self, images: Tensor) -> Tensor:
        """Images as vectors of length one. [B, C, H, W] -> [B, size]"""
        seen = self.image.see(images)
        return F.normalize(self.image.heads["pooled"](seen.parts[0], seen), dim=-1)

    @property
    def shown(self) -> tuple[int, int, int]:
        return self.image.shown

    def match(self, images: Tensor, tokens: Tensor, where: Where) -> Tensor:
        """The logit of every image beside every text. [images, texts]"""
        return self.scores(self.images(images), self.texts(tokens, where))

    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        """The same of vectors of length one."""
        return images @ texts.mT * self.scale.exp()

    def spec(self) -> Spec:
        return self.text.spec()

    def start(self, rows: int, given: Given = NOTHING) -> States:
        return self.text.start(rows, given)

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return self.text(x, where, state)
