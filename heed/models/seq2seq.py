"""Encoder-decoder: one sequence is read, another one is written."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator
from torch import Tensor, nn

from ..core.abilities import Reads, Writes
from ..core.config import Flag
from ..core.contract import NOTHING, Given, Mixer, Where
from ..core.state import Seen, Spec
from .block import States
from .decoder import Decoder
from .encoder import Encoder
from .shape import Shape


class Seq2seq(Mixer[States], Reads, Writes):
    """A Mixer over target tokens that is given the encoded source.

    memory = model.read(source, where_source)
    scores, _ = model(target, where.give(memory=memory))                     # training: the whole target
    state = model.start(rows, Given(memory=memory))                          # decoding: the source is projected once
    """

    class Config(Shape):
        kind: Literal["seq2seq"] = "seq2seq"
        encoder: Encoder.Config
        decoder: Decoder.Config
        shared: Flag = False  # one table of embeddings for source and target

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if self.decoder.cross is None:
                raise ValueError("the decoder of an encoder-decoder needs a cross-attention; set decoder.cross")
            if self.encoder.width != self.decoder.width:
                raise ValueError(
                    f"encoder width {self.encoder.width} and decoder width {self.decoder.width} must be equal"
                )
            if self.shared and self.encoder.vocabulary != self.decoder.vocabulary:
                raise ValueError(
                    f"a shared table needs one vocabulary, not {self.encoder.vocabulary} and {self.decoder.vocabulary}"
                )
            return self

        def sized(self, vocabulary: int) -> Self:
            sides = {"encoder": self.encoder.sized(vocabulary), "decoder": self.decoder.sized(vocabulary)}
            return self.model_copy(update=sides)

        def build(self) -> Seq2seq:
            return Seq2seq(self)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder)
        self.decoder = Decoder(config.decoder, self.encoder.front.table if config.shared else None)
        self.reach = self.decoder.reach

    def read(self, source: Tensor, where: Where) -> Seen:
        """The encoded source, to be given to the decoder."""
        return self.encoder.read(source, where)

    def spec(self) -> Spec:
        return self.decoder.spec()

    def start(self, rows: int, given: Given = NOTHING) -> States:
        return self.decoder.start(rows, given)

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return self.decoder(x, where, state)

    def apart(self, tokens: Tensor, where: Where) -> tuple[Tensor, nn.Linear]:
        return self.decoder.apart(tokens, where)

    @property
    def longest(self) -> int | None:
        return self.decoder.longest

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        """From bare target embeddings on."""
        return self.decoder.mix(x, where, state)
