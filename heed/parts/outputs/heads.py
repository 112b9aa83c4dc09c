"""Heads: from the stream to what a user wants to know. Logits of tokens, one answer per text, one answer per token."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import torch
from torch import Tensor, nn

from ...core.config import Config, Flag, ManyOf, Size, kind_of
from ...core.errors import ConfigError
from ...core.stamps import Stamps
from ..feedforward import Activation, activate
from ..layers.norms import AnyNorm

Pool: TypeAlias = Literal["first", "last", "mean", "max"]


class LMHead(nn.Linear):
    """cap · tanh( (W · scale·x + b) / cap ): logits of tokens, perhaps scaled (T5) and capped (Gemma 2)."""

    def __init__(self, width: int, vocabulary: int, *, bias: bool, scale: float, cap: float | None) -> None:
        super().__init__(width, vocabulary, bias=bias)
        self.scale, self.cap = scale, cap

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x * self.scale)
        return logits if self.cap is None else self.cap * torch.tanh(logits / self.cap)


class HeadTransform(nn.Module):
    """norm( act( W x + b ) ): what BERT's descendants put before the logits of tokens (Devlin et al. 2019)."""

    def __init__(self, width: int, size: int, activation: Activation, norm: AnyNorm) -> None:
        super().__init__()
        self.layer, self.activation, self.norm = nn.Linear(width, size), activation, norm.build(size)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(activate(self.activation, self.layer(x)))
        return y


class HeadConfig(Config):
    """How to build a head. A model has at most one of each kind, and calls it by that."""

    @abstractmethod
    def build(self, width: int, table: nn.Embedding | None) -> Head:
        """The head for a stream of this width; `table` holds the embeddings of the tokens, if there are tokens."""

    def over(self, old: HeadConfig) -> HeadConfig:
        """This head in the place of one of its kind, keeping what a task does not care about."""
        return self

    def sized(self, vocabulary: int) -> HeadConfig:
        """For a model with so many tokens."""
        return self


class Head(nn.Module):
    """Reads the stream."""

    @abstractmethod
    def forward(self, stream: Tensor, where: Stamps) -> Tensor:
        """The answer. [B, T, D] -> [B, T, ...] or [B, ...]"""

    if TYPE_CHECKING:  # nn.Module's own __call__ is untyped

        def __call__(self, stream: Tensor, where: Stamps) -> Tensor: ...


class Masked(Head):
    """Which token stands here? E·norm( act( W x ) ) + b: the head of masked language models (Devlin et al. 2019)."""

    class Config(HeadConfig):
        kind: Literal["masked"] = "masked"
        vocabulary: Size  # tokens that may stand here
        size: Size | None = None  # channels of the transformed stream; None: as many as the embeddings have
        activation: Activation | None = None  # None: the stream is not transformed
        norm: AnyNorm | None = None  # of the transformed stream
        bias: Flag = True
        tied: Flag = True

        def build(self, width: int, table: nn.Embedding | None) -> Masked:
            return Masked(self, width, table)

        def over(self, old: HeadConfig) -> HeadConfig:
            return old

        def sized(self, vocabulary: int) -> HeadConfig:
            return self.model_copy(update={"vocabulary": vocabulary})

    def __init__(self, config: Config, width: int, table: nn.Embedding | None) -> None:
        super().__init__()
        size = config.size or (width if table is None else table.embedding_dim)
        self.activation = config.activation
        self.transform = None if config.activation is None else nn.Linear(width, size)
        self.norm = None if config.norm is None else config.norm.build(size)
        self.scores = nn.Linear(size, config.vocabulary, bias=config.bias)
        if config.tied and table is not None:
            if table.weight.shape != self.scores.weight.shape:
                raise ConfigError(
                    f"a masked head for {config.vocabulary} tokens of {size} channels cannot use a table of "
                    f"{table.num_embeddings} tokens of {table.embedding_dim}; make them equal, or set tied = false"
                )
            self.scores.weight = table.weight

    def forward(self, stream: Tensor, where: Stamps) -> Tensor:
        logits: Tensor = self.scores(self.transformed(stream))
        return logits

    def transformed(self, stream: Tensor) -> Tensor:
        """What the logits are made of. [..., D]"""
        if self.transform is not None and self.activation is not None:
            stream = activate(self.activation, self.transform(stream))
        return stream if self.norm is None else self.norm(stream)


class Pooled(Head):
    """One answer per text: W' act( W pool(x) ), where `pool` takes the first or last token, the mean or the maximum."""

    class Config(HeadConfig):
        kind: Literal["pooled"] = "pooled"
        pool: Pool = "first"  # which token stands for the text, or what is made of all
        norm: AnyNorm | None = None  # of what was pooled
        activation: Activation | None = None  # None: what was pooled is not transformed
        size: Size | None = None  # channels of the transformed vector; None: as many as the stream has
        labels: Size | None = None  # classes; None: the pooled vector is the answer
        bias: Flag = True

        def build(self, width: int, table: nn.Embedding | None) -> Pooled:
            return Pooled(self, width)

        def over(self, old: HeadConfig) -> HeadConfig:
            return old.model_copy(update={"labels": self.labels})  # how it pools was learnt with it

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.pool, self.activation = config.pool, config.activation
        self.norm = None if config.norm is None else config.norm.build(width)
        size = width if config.activation is None else config.size or width
        self.transform = None if config.activation is None else nn.Linear(width, size)
        self.scores = None if config.labels is None else nn.Linear(size, config.labels, bias=config.bias)

    def forward(self, stream: Tensor, where: Stamps) -> Tensor:
        vector = self.vector(stream, where)
        logits: Tensor = vector if self.scores is None else self.scores(vector)
        return logits

    def vector(self, stream: Tensor, where: Stamps) -> Tensor:
        """What the logits are made of. [B, D]"""
        vector = pooled(self.pool, stream, where)
        vector = vector if self.norm is None else self.norm(vector)
        if self.transform is None or self.activation is None:
            return vector
        return activate(self.activation, self.transform(vector))


class Tagged(Head):
    """One answer per token: W x + b."""

    class Config(HeadConfig):
        kind: Literal["tagged"] = "tagged"
        labels: Size | None = None  # of a token; None: the tokens of the vocabulary, as CTC labels frames
        bias: Flag = True

        def build(self, width: int, table: nn.Embedding | None) -> Tagged:
            return Tagged(self, width)

        def over(self, old: HeadConfig) -> HeadConfig:
            return old if self.labels is None else self

        def sized(self, vocabulary: int) -> HeadConfig:
            return self if self.labels is not None else self.model_copy(update={"labels": vocabulary})

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        if config.labels is None:
            raise ConfigError("how many labels a token may have is not known; set labels, or model.vocabulary")
        self.scores = nn.Linear(width, config.labels, bias=config.bias)

    def forward(self, stream: Tensor, where: Stamps) -> Tensor:
        logits: Tensor = self.scores(stream)
        return logits


class Spans(Head):
    """Where does the answer begin, and where does it end? Two logits per token (Devlin et al. 2019, sec. 4.2)."""

    class Config(HeadConfig):
        kind: Literal["spans"] = "spans"
        bias: Flag = True

        def build(self, width: int, table: nn.Embedding | None) -> Spans:
            return Spans(self, width)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.scores = nn.Linear(width, 2, bias=config.bias)

    def forward(self, stream: Tensor, where: Stamps) -> Tensor:
        logits: Tensor = self.scores(stream)
        return logits


class Replaced(Head):
    """Was this token put in by a generator? w·act( W x ) + b, one score per token (Clark et al. 2020, ELECTRA)."""

    class Config(HeadConfig):
        kind: Literal["replaced"] = "replaced"
        activation: Activation = "gelu"

        def build(self, width: int, table: nn.Embedding | None) -> Replaced:
            return Replaced(self, width)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.activation = config.activation
        self.transform = nn.Linear(width, width)
        self.scores = nn.Linear(width, 1)

    def forward(self, stream: Tensor, where: Stamps) -> Tensor:
        logits: Tensor = self.scores(activate(self.activation, self.transform(stream)))
        return logits.squeeze(-1)


def pooled(pool: Pool, stream: Tensor, where: Stamps) -> Tensor:
    """One vector per text, of its real tokens. [B, T, D] -> [B, D]"""
    real = where.real[..., None]
    match pool:
        case "first":
            return stream[:, 0]
        case "last":
            last = (where.real.sum(1) - 1).clamp(min=0)
            return stream[torch.arange(len(stream), device=stream.device), last]
        case "mean":
            return stream.masked_fill(~real, 0).sum(1) / real.sum(1).clamp(min=1)
        case "max":
            return stream.masked_fill(~real, float("-inf")).amax(1)


HEADS: tuple[type[HeadConfig], ...] = (
    Masked.Config,
    Pooled.Config,
    Tagged.Config,
    Spans.Config,
    Replaced.Config,
)
SomeHeads = Annotated[HeadConfig | tuple[HeadConfig, ...], ManyOf(lambda: HEADS)]
Wanted: TypeAlias = "HeadConfig | tuple[HeadConfig, ...]"  # the heads that a task asks a model by


def heads_of(configs: SomeHeads | None, width: int, table: nn.Embedding | None = None) -> nn.ModuleDict:
    """The heads of a model, by kind."""
    every = several(configs)
    heads = {kind_of(type(config)): config.build(width, table) for config in every}
    if len(heads) < len(every):
        given = ", ".join(kind_of(type(config)) for config in every)
        raise ConfigError(f"a model has at most one head of each kind, since it calls them by that; given: {given}")
    return nn.ModuleDict(heads)


def headed(heads: SomeHeads | None, wanted: Wanted, vocabulary: int | None) -> tuple[HeadConfig, ...]:
    """The heads that a task asks for, in the place of all that a model has; those of their kinds are built upon."""
    old = {kind_of(type(head)): head for head in several(heads)}
    sized = [head if vocabulary is None else head.sized(vocabulary) for head in several(wanted)]
    fresh = zip(several(wanted), sized, strict=True)
    return tuple(one if (before := old.get(kind_of(type(head)))) is None else head.over(before) for head, one in fresh)


def several(heads: SomeHeads | None) -> tuple[HeadConfig, ...]:
    """None, one or several heads as a tuple."""
    return () if heads is None else heads if isinstance(heads, tuple) else (heads,)
