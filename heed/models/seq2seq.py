"""Encoder-decoder: one sequence is encoded, another one is generated."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import field_validator, model_validator
from torch import Tensor, nn

from ..core.config import Flag, OneOf
from ..core.contract import NOTHING, Given, Mixer, Where
from ..core.interfaces import Encodes, LanguageModel
from ..core.spec import Spec
from ..core.state import Seen
from ..core.tables import Table
from .block import States
from .decoder import Decoder
from .encoder import Encoder
from .multimodal.audio import AudioEncoder
from .plan import Shape

ENCODERS: Table[type[Shape]] = Table(
    "heed.models",
    {
        "encoder": "encoder:Encoder.Config",
        "sled_encoder": "variants.sled:SledEncoder.Config",
        "audio": "multimodal.audio:AudioEncoder.Config",
    },
    renamed={"overlapped": "sled_encoder", "listener": "audio"},
)
AnyEncoder: TypeAlias = Annotated[Encoder.Config | AudioEncoder.Config, OneOf(lambda: ENCODERS)]


class Seq2seq(Mixer[States], Encodes, LanguageModel):
    """A Mixer over target tokens that is given the encoded source.

    output = model.encode(source, where_source)
    logits, _ = model(target, where.give(encoder_output=output))  # training: the whole target
    state = model.start(rows, Given(encoder_output=output))  # decoding: the source is projected once
    """

    class Config(Shape):
        kind: Literal["seq2seq"] = "seq2seq"
        encoder: AnyEncoder  # what reads the source
        decoder: Decoder.Config
        shared: Flag = False  # one table of embeddings for source and target
        projected: Flag = False  # a linear layer makes the encoder output as wide as the decoder

        @field_validator("encoder", mode="before")
        @classmethod
        def _tokens_by_default(cls, value: Any) -> Any:
            return {"kind": "encoder", **value} if isinstance(value, dict) else value

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if self.decoder.cross is None:
                raise ValueError("the decoder of an encoder-decoder needs a cross-attention; set decoder.cross")
            if self.encoder.width != self.decoder.width and not self.projected:
                raise ValueError(
                    f"encoder width {self.encoder.width} and decoder width {self.decoder.width} must be equal, or "
                    "projected = true"
                )
            source = self.encoder.vocabulary if isinstance(self.encoder, Encoder.Config) else "that of a sound"
            if self.shared and source != self.decoder.vocabulary:
                raise ValueError(f"a shared table needs one vocabulary, not {source} and {self.decoder.vocabulary}")
            return self

        def sized(self, vocabulary: int) -> Self:
            sides = {"encoder": self.encoder.sized(vocabulary), "decoder": self.decoder.sized(vocabulary)}
            return self.model_copy(update=sides)

        def build(self) -> Seq2seq:
            return Seq2seq(self)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.encoder = config.encoder.build()
        table = self.encoder.embeddings.table if config.shared and isinstance(self.encoder, Encoder) else None
        self.decoder = Decoder(config.decoder, table)
        self.projection = nn.Linear(config.encoder.width, config.decoder.width) if config.projected else None
        self.reach = self.decoder.reach

    def encode(self, source: Tensor, where: Where | None = None) -> Seen:
        """The encoded source, to be given to the decoder."""
        seen = self.encoder.encode(source, where)
        return seen if self.projection is None else Seen.of(seen, self.projection(seen.parts[0]))

    def spec(self) -> Spec:
        return self.decoder.spec()

    def start(self, rows: int, given: Given = NOTHING) -> States:
        return self.decoder.start(rows, given)

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return self.decoder(x, where, state)

    def hidden_states(self, tokens: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        return self.decoder.hidden_states(tokens, where, state)

    @property
    def lm_head(self) -> nn.Module:
        return self.decoder.lm_head

    @property
    def longest(self) -> int | None:
        return self.decoder.longest

    @property
    def vocabulary(self) -> int:
        return self.decoder.vocabulary

    def mix(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        """From bare target embeddings on."""
        return self.decoder.mix(x, where, state)
