"""Scores that compare what a query asks with what a key holds, or with where it stands."""

from __future__ import annotations

from math import sqrt
from typing import Literal

import torch
from torch import Tensor, nn

from ...core.config import Flag, Positive, Size
from ...core.errors import InputError
from .base import Scale, Score, ScoreConfig, alike


class Dot(Score):
    """s = q·k: the plain dot product (Luong et al. 2015, "dot"). No weights; T·N·d multiplications."""

    class Config(ScoreConfig):
        kind: Literal["dot"] = "dot"

        def build(self, query_size: int, key_size: int) -> Dot:
            return Dot(*alike("a dot product", query_size, key_size))

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
            return ScaledDot(*alike("a dot product", query_size, key_size))

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
        hidden: Size  # channels of the hidden layer

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
        sharpness: Positive = 1.0  # β
        learned: Flag = False

        def build(self, query_size: int, key_size: int) -> Cosine:
            return Cosine(self, *alike("a cosine", query_size, key_size))

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
        length: Size  # keys there are at most

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


def _direction(vector: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    return vector / length.masked_fill(length == 0, 1.0)  # a floor of 1e-12 instead would mean gradients of 1e12
