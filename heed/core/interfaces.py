"""What a model may offer beside the contract. A model says so by its bases, so that nobody has to guess."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from warnings import warn

from torch import Tensor, nn

from .contract import Where
from .state import Seen, State


class Encodes(ABC):
    """A model that encodes a source: what cross-attention looks at while the target is generated."""

    @abstractmethod
    def encode(self, source: Tensor, where: Where) -> Seen:
        """The encoder output: hidden states of the source, stamped."""

    def read(self, source: Tensor, where: Where) -> Seen:
        """What `encode` was called in the last release."""
        warn("model.read is called model.encode now; the old name will go", DeprecationWarning, stacklevel=2)
        return self.encode(source, where)


class Writes(ABC):
    """A model whose outputs are scores of the next token."""

    @abstractmethod
    def apart(self, tokens: Tensor, where: Where) -> tuple[Tensor, nn.Module]:
        """The stream, and the head that makes it scores: a loss need not hold all scores at once."""

    @property
    @abstractmethod
    def longest(self) -> int | None:
        """How many tokens have a place; None = any number."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """How many tokens have a score: as many as the tokenizer has, or some more."""


@dataclass(frozen=True)
class Choice:
    """How somebody who writes several tokens at once chooses them, and when he has to stop."""

    live: Tensor  # bool [R] rows that have not ended; written to
    enough: int  # with fewer live rows than these it is time to stop
    ends: Tensor  # [E] tokens that end a row
    draws: Tensor | None = (
        None  # float64 [n, R] at least 0 and less than 1, one for each token; None: the largest score
    )
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    penalty: float = 1.0  # of tokens that were seen: scores are divided if positive, else multiplied
    seen: Tensor | None = None  # bool [R, V] which were; written to


class Stepper(ABC):
    """A state in the hands of somebody who writes one token per row after the other, faster than calls do."""

    @abstractmethod
    def read(self, tokens: Tensor, where: Where) -> Tensor | None:
        """Many tokens, at least one in every row; scores of the token after the last of each, which hold until the next
        step. None if calls must do it, and nothing was done. [R, T] -> [R, V]
        """

    @abstractmethod
    def step(self, tokens: Tensor, where: Where) -> Tensor:
        """One more token in every row; scores of the token after it, which hold until the next step. [R] -> [R, V]"""

    @abstractmethod
    def write(self, tokens: Tensor, where: Where, most: int, how: Choice) -> tuple[Tensor, Tensor] | None:
        """This token in every row and then those that are chosen, `most` at most: the chosen ones, the last of which is
        not written yet, and their log p (NaN if there was none to choose); None if it must be one by one.
        [R] -> [n, R] twice
        """

    @abstractmethod
    def likeliest(self, count: int) -> tuple[Tensor, Tensor] | None:
        """After a step: log p of the likeliest tokens of every row, the likeliest first, and these tokens. NaN in a row
        whose scores are no numbers; None if scores must be asked. [R, count] twice
        """

    @abstractmethod
    def select(self, rows: Tensor) -> Stepper:
        """Somebody who goes on with these rows, in this order. This one is of no use after that."""

    @abstractmethod
    def state(self) -> State:
        """What is remembered by now. The stepper is of no use after that."""


class Steps(ABC):
    """A model that may know a faster way to write one token after the other."""

    @abstractmethod
    def after(self, tokens: Tensor, where: Where, state: State, last: Tensor) -> tuple[Tensor, State | None]:
        """A call which gives no scores but those after column last[i] of row i. [R, T], [R] -> [R, V]"""

    @property
    @abstractmethod
    def practised(self) -> bool:
        """Whether a stepper is at hand at once. The first one moves all weights to where they are read best."""

    @abstractmethod
    def stepper(self, state: State) -> Stepper | None:
        """Somebody who goes on from this state, which is used up; or None, and the state is left alone."""


class Aside(NamedTuple):
    """One thing that a model is asked in training: its stream, the head that makes it scores, which token, how much."""

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
    """A model that scores a token at any place of a text, whatever is known of the others."""

    @abstractmethod
    def asked(self, tokens: Tensor, where: Where, asked: Where) -> tuple[Tensor, nn.Linear]:
        """The stream of the places `asked`, each told what was revealed before it; and the head that makes it scores.

        [B, T] tokens and M places -> [B, M, D]
        """


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
