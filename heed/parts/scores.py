"""How well a key answers a query: score functions, and the weighted mean they lead to.

    y_i = Σ_j α_ij v_j        α_ij = exp(s_ij) / Σ exp(s_il)   for a score,    α_ij = K(u_ij) / Σ K(u_il)   for a kernel

A score says for itself how its numbers become weights (`weigh`), so `pool` is the same few lines for all of them. A
query that may look at nothing, or lies outside the support of a kernel, gets zeros, and finite gradients everywhere.
Costs below are for T queries, N keys and vectors of size d; every score holds the T·N numbers it gives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import log, sqrt
from typing import TYPE_CHECKING, Annotated, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from ..core.config import Config, Flag, OneOf, Positive, Size
from ..core.errors import ConfigError, InputError
from .attend import masked_softmax


class ScoreConfig(Config):
    """How to build a score function. Every score nests one."""

    @abstractmethod
    def build(self, query_size: int, key_size: int) -> Score:
        """The score of queries of one size and keys of another."""


class Score(nn.Module, ABC):
    """Compares every query with every key."""

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__()
        self.query_size, self.key_size = query_size, key_size

    @abstractmethod
    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        """[..., T, q] and [..., N, k] give [..., T, N]."""

    def weigh(self, score: Tensor, visible: Tensor | None) -> Tensor:
        """Scores to weights: every row sums to one, or is all zeros where nothing is visible."""
        return masked_softmax(score, visible)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        """The score of every pair. [..., T, q] and [..., N, k] give [..., T, N]"""
        for name, tensor, size in (("queries", query, self.query_size), ("keys", key, self.key_size)):
            if tensor.dim() < 2 or tensor.shape[-1] != size:
                raise InputError(
                    f"{type(self).__name__} was built for {name} of size {size}, got shape {tuple(tensor.shape)}; "
                    f"give [..., {name}, {size}], or build it with another size"
                )
        return self.compare(query, key)

    if TYPE_CHECKING:  # nn.Module's own __call__ is untyped

        def __call__(self, query: Tensor, key: Tensor) -> Tensor: ...


class Dot(Score):
    """s = q·k: the plain dot product (Luong et al. 2015, "dot"). No weights; T·N·d multiplications."""

    class Config(ScoreConfig):
        kind: Literal["dot"] = "dot"

        def build(self, query_size: int, key_size: int) -> Dot:
            return Dot(*_alike("a dot product", query_size, key_size))

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.mT


class ScaledDot(Score):
    """s = q·k / √d (Vaswani et al. 2017, eq. 1). Costs what `Dot` costs.

    A sum of d products of unit variance has variance d; without the root a softmax over large d is all but an argmax,
    and its gradient vanishes.
    """

    class Config(ScoreConfig):
        kind: Literal["scaled_dot"] = "scaled_dot"

        def build(self, query_size: int, key_size: int) -> ScaledDot:
            return ScaledDot(*_alike("a dot product", query_size, key_size))

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return query @ key.mT / sqrt(self.key_size)


class General(Score):
    """s = qᵀ W k (Luong et al. 2015, "general"): queries and keys may differ in size.

    q·k weights. A projection of the keys, N·q·k multiplications, then a dot product.
    """

    class Config(ScoreConfig):
        kind: Literal["general"] = "general"

        def build(self, query_size: int, key_size: int) -> General:
            return General(query_size, key_size)

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size)
        self.key = nn.Linear(key_size, query_size, bias=False)

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        projected: Tensor = self.key(key)
        return query @ projected.mT


class Additive(Score):
    """s = w · tanh(W_q q + W_k k) (Bahdanau et al. 2014, sec. A.1.2): a network with one hidden layer, without biases.

    The dearest of them: every pair has its own hidden layer, so T·N·hidden numbers exist at once.
    """

    class Config(ScoreConfig):
        kind: Literal["additive"] = "additive"
        hidden: Size

        def build(self, query_size: int, key_size: int) -> Additive:
            return Additive(self, query_size, key_size)

    def __init__(self, config: Config, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size)
        self.query = nn.Linear(query_size, config.hidden, bias=False)
        self.key = nn.Linear(key_size, config.hidden, bias=False)
        self.out = nn.Linear(config.hidden, 1, bias=False)

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        hidden = torch.tanh(self.query(query).unsqueeze(-2) + self.key(key).unsqueeze(-3))  # [..., T, N, hidden]
        score: Tensor = self.out(hidden)
        return score.squeeze(-1)


class Cosine(Score):
    """s = β · q·k / (|q| |k|): content-based addressing (Graves et al. 2014, eq. 5 and 6).

    Only directions count. Since a cosine is at most one, the sharpness β decides how far a softmax over it can get from
    uniform. A zero vector has no direction: its score is zero. Costs what `Dot` costs.
    """

    class Config(ScoreConfig):
        kind: Literal["cosine"] = "cosine"
        sharpness: Positive = 1.0
        learned: Flag = False

        def build(self, query_size: int, key_size: int) -> Cosine:
            return Cosine(self, *_alike("a cosine", query_size, key_size))

    def __init__(self, config: Config, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size)
        self.sharpness = Scale(config.sharpness, learned=config.learned)

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return _direction(query) @ _direction(key).mT * self.sharpness.value


class Location(Score):
    """s_j = (W q)_j (Luong et al. 2015, "location"): the query alone says at which places to look.

    What the keys hold is not read, only how many there are. length·q weights, T·q·length multiplications.
    """

    class Config(ScoreConfig):
        kind: Literal["location"] = "location"
        length: Size

        def build(self, query_size: int, key_size: int) -> Location:
            return Location(self, query_size, key_size)

    def __init__(self, config: Config, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size)
        self.length = config.length
        self.place = nn.Linear(query_size, config.length, bias=False)

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        keys = key.shape[-2]
        if keys > self.length:
            raise InputError(
                f"{keys} keys were given, but this score knows {self.length} places; "
                f"give at most that many keys, or build it with length={keys}"
            )
        score: Tensor = self.place(query)[..., :keys]
        return score


class Kernel(Score):
    """K(u) of the distance u = |q - k| / width: kernel regression (Nadaraya 1964, Watson 1964).

    A kernel is a weight already, so it is normalised as it is, without an exponential. Beyond its support it is zero,
    and a query with no key in reach gets zeros. T·N·d numbers exist at once.
    """

    def __init__(self, query_size: int, key_size: int, width: float = 1.0, *, learned: bool = False) -> None:
        super().__init__(*_alike("a distance", query_size, key_size))
        self.width = Scale(width, learned=learned)

    @abstractmethod
    def profile(self, u: Tensor) -> Tensor:
        """K(u) for distances measured in widths; any constant factor cancels."""

    def distance(self, query: Tensor, key: Tensor) -> Tensor:
        """|q - k| / width. [..., T, N]"""
        gap = query.unsqueeze(-2) - key.unsqueeze(-3)  # [..., T, N, d]
        length: Tensor = torch.linalg.vector_norm(gap, dim=-1)
        return length / self.width.value

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return self.profile(self.distance(query, key))

    def weigh(self, score: Tensor, visible: Tensor | None) -> Tensor:
        weight = score if visible is None else score.masked_fill(~visible, 0.0)
        total = weight.sum(-1, keepdim=True)
        return weight / total.masked_fill(total == 0, 1.0)


class KernelConfig(ScoreConfig):
    """A kernel with a width, which is fixed or learned."""

    width: Positive = 1.0
    learned: Flag = False


class Gaussian(Kernel):
    """K(u) = exp(-u²/2), which is a softmax of -u²/2 and is computed as one: a far query does not underflow to 0/0."""

    class Config(KernelConfig):
        kind: Literal["gaussian"] = "gaussian"

        def build(self, query_size: int, key_size: int) -> Gaussian:
            return Gaussian(query_size, key_size, self.width, learned=self.learned)

    def profile(self, u: Tensor) -> Tensor:
        return torch.exp(-(u**2) / 2)

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        return -(self.distance(query, key) ** 2) / 2

    weigh = Score.weigh


class Boxcar(Kernel):
    """K(u) = 1 if u < 1, else 0: the mean of whatever is nearer than the width."""

    class Config(KernelConfig):
        kind: Literal["boxcar"] = "boxcar"

        @model_validator(mode="after")
        def _fixed(self) -> Self:
            if self.learned:
                raise ValueError(
                    "the width of a boxcar has no gradient, so it cannot be learned; "
                    "choose it, or use epanechnikov, triangular or gaussian"
                )
            return self

        def build(self, query_size: int, key_size: int) -> Boxcar:
            return Boxcar(query_size, key_size, self.width, learned=self.learned)

    def profile(self, u: Tensor) -> Tensor:
        return (u < 1).to(u.dtype)


class Triangular(Kernel):
    """K(u) = max(0, 1 - u). This is what the d2l book calls "epanechikov"."""

    class Config(KernelConfig):
        kind: Literal["triangular"] = "triangular"

        def build(self, query_size: int, key_size: int) -> Triangular:
            return Triangular(query_size, key_size, self.width, learned=self.learned)

    def profile(self, u: Tensor) -> Tensor:
        return (1 - u).clamp(min=0)


class Epanechnikov(Kernel):
    """K(u) = max(0, 1 - u²): of all kernels the one with the least mean squared error (Epanechnikov 1969)."""

    class Config(KernelConfig):
        kind: Literal["epanechnikov"] = "epanechnikov"

        def build(self, query_size: int, key_size: int) -> Epanechnikov:
            return Epanechnikov(query_size, key_size, self.width, learned=self.learned)

    def profile(self, u: Tensor) -> Tensor:
        return (1 - u**2).clamp(min=0)


class Constant(Kernel):
    """K(u) = 1: everybody counts alike, which gives the mean. It has no width; it is the baseline of the others."""

    class Config(ScoreConfig):
        kind: Literal["constant"] = "constant"

        def build(self, query_size: int, key_size: int) -> Constant:
            return Constant(query_size, key_size)

    def profile(self, u: Tensor) -> Tensor:
        return torch.ones_like(u)


SCORES: tuple[type[ScoreConfig], ...] = (
    Dot.Config,
    ScaledDot.Config,
    General.Config,
    Additive.Config,
    Cosine.Config,
    Location.Config,
    Gaussian.Config,
    Boxcar.Config,
    Triangular.Config,
    Epanechnikov.Config,
    Constant.Config,
)
AnyScore = Annotated[ScoreConfig, OneOf(lambda: SCORES)]


class Pooling(nn.Module):
    """The mean of the values, weighted by how well their keys answer the query."""

    def __init__(self, score: Score) -> None:
        super().__init__()
        self.score = score

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Output and weights; see `pool`."""
        return pool(self.score, query, key, value, visible)


class Scale(nn.Module):
    """A positive number: fixed, or learned as its logarithm, so that no step of an optimiser can make it negative."""

    def __init__(self, value: float, *, learned: bool) -> None:
        super().__init__()
        self.fixed = value
        self.log = nn.Parameter(torch.tensor(log(value))) if learned else None

    @property
    def value(self) -> Tensor | float:
        """The number as it is now."""
        return self.fixed if self.log is None else self.log.exp()


def pool(
    score: Score, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Output [..., T, e] and weights [..., T, N] of `query` [..., T, q] over `key` [..., N, k], `value` [..., N, e].

    `visible` is boolean, [..., T or 1, N], True = may be looked at. What no query may look at is not read at all:
    it may hold anything, even NaN.
    """
    if value.dim() < 2 or value.shape[-2] != key.shape[-2]:
        raise InputError(f"key {tuple(key.shape)} and value {tuple(value.shape)} must agree in their last but one axis")
    if visible is not None:
        queries, keys = query.shape[-2], key.shape[-2]
        if visible.dtype != torch.bool or visible.shape[-2:] not in ((queries, keys), (1, keys)):
            raise InputError(
                f"visible is {visible.dtype} of shape {tuple(visible.shape)}; needed is a boolean tensor, "
                f"True = may be looked at, of shape [..., {queries} or 1, {keys}]"
            )
        seen = visible.any(-2).unsqueeze(-1)  # [..., N, 1]
        key, value = torch.where(seen, key, 0.0), torch.where(seen, value, 0.0)
    weight = score.weigh(score(query, key), visible)
    return weight @ value, weight


def valid_lengths(lengths: Tensor, queries: int, keys: int) -> Tensor:
    """What is visible when only the first `lengths` keys count, per row [B] or per query [B, T]. [B, T, N], boolean"""
    if lengths.is_floating_point() or lengths.dtype == torch.bool:
        raise InputError(f"valid lengths must be whole numbers, not {lengths.dtype}; they count keys, they are no mask")
    if lengths.dim() not in (1, 2) or lengths.shape[1:] not in ((), (queries,)):
        raise InputError(
            f"valid lengths have shape {tuple(lengths.shape)}; "
            f"give one number per row, [B], or one per query, [B, {queries}]"
        )
    if bool(((lengths < 0) | (lengths > keys)).any()):
        raise InputError(f"valid lengths must be 0 to {keys}, the number of keys; got {lengths.tolist()}")
    per_query = lengths[:, None].expand(-1, queries) if lengths.dim() == 1 else lengths
    return torch.arange(keys, device=lengths.device) < per_query[..., None]


def _alike(what: str, query_size: int, key_size: int) -> tuple[int, int]:
    if query_size != key_size:
        raise ConfigError(
            f"{what} needs queries and keys of one size, got {query_size} and {key_size}; "
            "use general or additive, which learn to compare different sizes"
        )
    return query_size, key_size


def _direction(vector: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    return vector / length.masked_fill(length == 0, 1.0)  # a floor of 1e-12 instead would mean gradients of 1e12
