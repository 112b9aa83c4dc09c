"""Audio encoder, as in Whisper (Radford et al. 2022): log-mel frames to hidden states."""

from __future__ import annotations

from typing import Literal, Self

from torch import Tensor

from ...core.config import renamed_keys
from ...core.contract import Where
from ...core.errors import CannotStream
from ...core.interfaces import Asked, Encodes
from ...core.state import Seen
from ...mixers import Attention, SomeMixers
from ...parts.inputs.audio import AnySound, AudioEmbeddings
from ...parts.masks import Whole
from ...parts.outputs.heads import SomeHeads, heads_of
from ..backbone import Backbone
from ..block import States
from ..plan import Shape
from ..stack import Stack


class AudioEncoder(Backbone, Encodes, Asked):
    """A bidirectional backbone over audio. It gives fewer frames than it takes; `encode` gives them with their stamps.

    The stamps of a call count what the embeddings take: samples, or frames of a spectrogram.
    """

    embeddings: AudioEmbeddings

    class Config(Stack.Config, Shape):
        kind: Literal["audio"] = "audio"
        embeddings: AnySound
        mixer: SomeMixers = (Attention.Config(mask=Whole()),)
        heads: SomeHeads | None = None  # over its hidden states

        _renamed = renamed_keys(front="embeddings")

        def sized(self, vocabulary: int) -> Self:
            """Audio has no vocabulary."""
            return self

        def build(self) -> AudioEncoder:
            return AudioEncoder(self)

    def __init__(self, config: Config) -> None:
        super().__init__(config, config.embeddings.build(config.width, config.dropout))
        self.config = config
        self.reach = self.embeddings.reach.then(self.stack.reach)
        self.heads = heads_of(config.heads, config.width)

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        if state is not None:
            raise CannotStream("audio is encoded whole; call the audio encoder once, with state=None")
        return self.mix(self.embeddings.embed(x, where), self.embeddings.frames(where))

    def encode(self, sound: Tensor, where: Where | None = None) -> Seen:
        """The hidden states of this audio with their stamps, for a head or for a decoder's cross-attention."""
        where = self.default_where(sound) if where is None else where
        x, _ = self(sound, where)
        return Seen.of(self.embeddings.frames(where), x)
