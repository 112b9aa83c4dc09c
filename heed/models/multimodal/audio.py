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
    """A body that is given a sound. Its stream has fewer frames than the sound; `read` gives it with their stamps.

    The stamps of a call count what the front is fed: samples, or frames of a spectrogram.
    """

    embeddings: AudioEmbeddings

    class Config(Stack.Config, Shape):
        kind: Literal["audio"] = "audio"
        embeddings: AnySound
        mixer: SomeMixers = (Attention.Config(mask=Whole()),)
        heads: SomeHeads | None = None  # what it can be asked, beside its stream

        _renamed = renamed_keys(front="embeddings")

        def sized(self, vocabulary: int) -> Self:
            """A sound has no vocabulary."""
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
            raise CannotStream("a sound is heard whole; call the listener once with state=None")
        return self.mix(self.embeddings.embed(x, where), self.embeddings.frames(where))

    def encode(self, sound: Tensor, where: Where) -> Seen:
        """The stream of this sound, stamped, to be given to a head or to a decoder."""
        x, _ = self(sound, where)
        return Seen.of(self.embeddings.frames(where), x)
