"""What a model may offer beside the contract. A model says so by its bases: nothing is guessed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, NamedTuple
from warnings import warn

from torch import Tensor, nn

from .contract import Mixer, Where
from .state import Seen


class Encodes(ABC):
    """A model that encodes a source: what cross-attention looks at while the target is generated."""

    @abstractmethod
    def encode(self, source: Tensor, where: Where | None = None) -> Seen:
        """The encoder output: hidden states of the source, stamped. Without `where` the source has no padding."""

    def read(self, source: Tensor, where: Where | None = None) -> Seen:
        """What `encode` was called in the last release."""
        warn("model.read is called model.encode now; the old name will go", DeprecationWarning, stacklevel=2)
        return self.encode(source, where)


class LanguageModel(ABC):
    """A model whose outputs are logits of the next token: its head, applied to its last hidden states."""

    @abstractmethod
    def hidden_states(self, tokens: Tensor, where: Where, state: Any = None) -> tuple[Tensor, Any]:
        """What the head reads, and the state: a loss need not hold all logits at once, a prompt needs only the last."""

    @property
    @abstractmethod
    def lm_head(self) -> nn.Module:
        """What makes hidden states logits."""

    @property
    @abstractmethod
    def longest(self) -> int | None:
        """How many tokens have a place; None = any number."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """How many tokens have a logit: as many as the tokenizer has, or some more."""

    def apart(self, tokens: Tensor, where: Where) -> tuple[Tensor, nn.Module]:
        """What `hidden_states` and `lm_head` were called in the last release."""
        warn("model.apart is model.hidden_states and model.lm_head now; the old name will go", DeprecationWarning, 2)
        return self.hidden_states(tokens, where)[0], self.lm_head


class Aside(NamedTuple):
    """A term of the training loss: hidden states, their head, which token they predict, and the weight of the term."""

    stream: Tensor
    head: nn.Linear
    ahead: int  # 1 = the next token, -1 = the one before
    weight: float


class Rehearses(ABC):
    """A model that is asked more in training than what it is there for: by more layers, about more tokens."""

    @abstractmethod
    def rehearse(self, tokens: Tensor, where: Where, progress: float) -> Iterable[Aside]:
        """All that is asked when so much of the training is done, from 0 to 1; last, what the model is there for."""


class Permutes(ABC):
    """A model that gives logits at any place of a text, whatever is known of the others."""

    @abstractmethod
    def asked(self, tokens: Tensor, where: Where, asked: Where) -> tuple[Tensor, nn.Linear]:
        """The stream of the places `asked`, each told what was revealed before it; and the head that makes it logits.

        [B, T] tokens and M places -> [B, M, D]
        """


class Asked(ABC):
    """A model that can be asked things about what it has read."""

    heads: nn.ModuleDict  # by the kind of question; each makes an answer of a stream and its stamps


class Detects(ABC):
    """Two models in one: a generator proposes tokens, a discriminator tells which were proposed. That one is kept."""

    generator: Mixer[Any]  # it fills masks by its head "masked"
    discriminator: Mixer[Any]  # it tells tokens apart by its head "replaced"


class Retrieves:
    """A model that learns from neighbours which are retrieved for each chunk of a text, beside the text itself."""


class Sees(ABC):
    """A model that looks at images."""

    @abstractmethod
    def see(self, images: Tensor) -> Seen:
        """The stream of these images, stamped. [B, C, H, W]"""

    @property
    @abstractmethod
    def shown(self) -> tuple[int, int, int]:
        """The images that it was made for: channels, height and width."""


class Hearing(NamedTuple):
    """What sounds become before a stream is made of them."""

    strided: tuple[tuple[int, int, int], ...]  # kernel, stride and padding of each convolution that makes frames
    bands: int | None  # numbers of a frame of a spectrogram; None: bare samples are taken
    longest: int | None  # frames of the stream that there are positions for; None: any number


class Hears(ABC):
    """A model over sounds."""

    @property
    @abstractmethod
    def hearing(self) -> Hearing:
        """What it takes."""


class Matches(ABC):
    """A model that tells how well images and texts belong together."""

    @abstractmethod
    def texts(self, tokens: Tensor, where: Where) -> Tensor:
        """Texts as vectors of length one. [B, T] -> [B, D]"""

    @abstractmethod
    def images(self, images: Tensor) -> Tensor:
        """Images as vectors of length one. [B, C, H, W] -> [B, D]"""

    @property
    @abstractmethod
    def shown(self) -> tuple[int, int, int]:
        """The images that it was made for: channels, height and width."""

    @abstractmethod
    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        """How well they fit. [images, D], [texts, D] -> [images, texts]"""
