"""What a model may offer beside the contract. A model says so by its bases, so that nobody has to guess."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from .contract import Where
from .state import Seen


class Reads(ABC):
    """A model that reads a source before it writes."""

    @abstractmethod
    def read(self, source: Tensor, where: Where) -> Seen:
        """The source, encoded: the memory that is given when the target is written."""


class Writes(ABC):
    """A model whose outputs are scores of the next token."""

    @abstractmethod
    def apart(self, tokens: Tensor, where: Where) -> tuple[Tensor, nn.Linear]:
        """The stream, and the head that makes it scores: a loss need not hold all scores at once."""

    @property
    @abstractmethod
    def longest(self) -> int | None:
        """How many tokens have a place; None = any number."""


class Asked(ABC):
    """A model that can be asked things about what it has read."""

    heads: nn.ModuleDict  # by the kind of question; each makes an answer of a stream and its stamps


class Sees(ABC):
    """A model that looks at images."""

    @abstractmethod
    def see(self, images: Tensor) -> Seen:
        """The stream of these images, stamped. [B, C, H, W]"""


class Matches(ABC):
    """A model that tells how well images and texts belong together."""

    @abstractmethod
    def texts(self, tokens: Tensor, where: Where) -> Tensor:
        """Texts as vectors of length one. [B, T] -> [B, D]"""

    @abstractmethod
    def images(self, images: Tensor) -> Tensor:
        """Images as vectors of length one. [B, C, H, W] -> [B, D]"""

    @abstractmethod
    def scores(self, images: Tensor, texts: Tensor) -> Tensor:
        """How well they fit. [images, D], [texts, D] -> [images, texts]"""
