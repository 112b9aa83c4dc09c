"""Scores that compare what a query asks with what a key holds, or with where it stands."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ...core.config import Flag, Positive, Size
from ...core.errors import InputError
from ...core.stamps import Stamps, one_row
from ..positions.base import must_fit
from .base import Product, Scale, Score, ScoreConfig, alike


class Dot(Product):
    """s = q·k: the plain dot product (Luong et al. 2015, "dot"). No weights; T·N·d multiplications."""

    class Config(ScoreConfig):
        kind: Literal["dot"] = "dot"

        def build(self, query_size: int, key_size: int) -> Dot:
            return Dot(*alike("a dot product", query_size, key_size))


class ScaledDot(Product):
    """s = q·k / √d (Vaswani et al. 2017, eq. 1). Costs what `Dot` costs.

    A sum of d products of unit variance has variance d; without the root a softmax over large d is all but an argmax,
    and its gradient vanishes.
    """

    class Config(ScoreConfig):
        kind: Literal["scaled_dot"] = "scaled_dot"

        def build(self, query_size: int, key_size: int) -> ScaledDot:
            return ScaledDot(*alike("a dot product", query_size, key_size))

    def __init__(self, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size)
        self.scale = float(key_size**-0.5)


class General(Product):
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

    def held(self, key: Tensor) -> Tensor:
        projected: Tensor = self.key(key)
        return projected


class Additive(Score):
    """s = w · tanh(W_q q + W_k k) (Bahdanau et al. 2014, sec. A.1.2): a network with one hidden layer, without biases.

    The dearest of them: every pair has its own hidden layer, so T·N·hidden numbers exist at once.
    """

    class Config(ScoreConfig):
        kind: Literal["additive"] = "additive"
        hidden: Size | None = None  # channels of the hidden layer; None: those of a key

        def build(self, query_size: int, key_size: int) -> Additive:
            return Additive(self, query_size, key_size)

    def __init__(self, config: Config, query_size: int, key_size: int) -> None:
        super().__init__(query_size, key_size)
        hidden = config.hidden or key_size
        self.query = nn.Linear(query_size, hidden, bias=False)
        self.key = nn.Linear(key_size, hidden, bias=False)
        self.out = nn.Linear(hidden, 1, bias=False)

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        hidden = torch.tanh(self.query(query).unsqueeze(-2) + self.key(key).unsqueeze(-3))  # [..., T, N, hidden]
        score: Tensor = self.out(hidden)
        return score.squeeze(-1)


class Cosine(Product):
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

    def asked(self, query: Tensor) -> Tensor:
        return _direction(query) * self.sharpness.value

    def held(self, key: Tensor) -> Tensor:
        return _direction(key)


class Location(Score):
    """s_j = (W q)_j (Luong et al. 2015, "location"): the query alone says at which places to look.

    What the keys hold is not read, only where they stand: their positions if they are stamped, else their columns.
    length·q weights, T·q·length multiplications.
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

    def between(self, query: Tensor, key: Tensor, where: Stamps, seen: Stamps) -> Tensor:
        position = seen.position.masked_fill(~seen.real, 0)  # padding may claim to stand anywhere
        must_fit(position, self.length, "this score", "build it with a greater length")
        (index,) = one_row(position)
        places: Tensor = self.place(query).transpose(1, 2)  # [B, H, T, length]
        if len(index) == 1:
            return places.index_select(-1, index[0])
        return places.gather(-1, index[:, None, None].expand(*places.shape[:3], -1))


def _direction(vector: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    return vector / length.masked_fill(length == 0, 1.0)  # a floor of 1e-12 instead would mean gradients of 1e12
