"""Audio encoder, as in Whisper (Radford et al. 2022): log-mel frames to hidden states."""

from __future__ import annotations

from typing import Literal, Self

from torch import Tensor

from ...core.config import Size, renamed_keys
from ...core.contract import Where
from ...core.errors import CannotStream
from ...core.interfaces import Asked, Encodes, Hearing, Hears
from ...core.state import Seen
from ...mixers import Attention, SomeMixers
from ...parts.inputs.audio import AnySound, AudioEmbeddings
from ...parts.masks import Whole
from ...parts.outputs.heads import SomeHeads, Wanted, headed, heads_of
from ..backbone import Backbone
from ..block import States
from ..plan import Shape
from ..stack import Stack


class AudioEncoder(Backbone, Encodes, Asked, Hears):
    """A bidirectional backbone over audio. It gives fewer frames than it takes; `encode` gives them with their stamps.

    The stamps of a call count what the embeddings take: samples, or frames of a spectrogram.
    """

    embeddings: AudioEmbeddings

    class Config(Stack.Config, Shape):
        kind: Literal["audio"] = "audio"
        embeddings: AnySound
        mixer: SomeMixers = (Attention.Config(mask=Whole()),)
        heads: SomeHeads | None = None  # over its hidden states
        vocabulary: Size | None = None  # tokens that a head may label frames with

        _renamed = renamed_keys(front="embeddings")

        def sized(self, vocabulary: int) -> Self:
            """Audio has no vocabulary; what is said in it has one."""
            return self.model_copy(update={"vocabulary": vocabulary})

        def headed(self, wanted: Wanted) -> Self:
            return self.model_copy(update={"heads": headed(self.heads, wanted, self.vocabulary)})

        def build(self) -> AudioEncoder:
            return AudioEncoder(self)

    def __init__(self, config: Config) -> None:
        super().__init__(config, config.embeddings.build(config.width, config.dropout))
        self.config = config
        self.reach = self.embeddings.reach.then(self.stack.reach)
        self.heads = heads_of(config.heads, config.width)

    @property
    def hearing(self) -> Hearing:
        embeddings = self.config.embeddings
        return Hearing(embeddings.strided, embeddings.bands, embeddings.longest)

    def forward(self, x: Tensor, where: Where, state: States | None = None) -> tuple[Tensor, States | None]:
        if state is not None:
            raise CannotStream("audio is encoded whole; call the audio encoder once, with state=None")
        return self.mix(self.embeddings.embed(x, where), self.embeddings.frames(where))

    def encode(self, sound: Tensor, where: Where | None = None) -> Seen:
        """The hidden states of this audio with their stamps, for a head or for a decoder's cross-attention."""
        where = self.default_where(sound) if where is None else where
        x, _ = self(sound, where)
        return Seen.of(self.embeddings.frames(where), x)
