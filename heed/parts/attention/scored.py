"""Attention whose score function is chosen: how well a key answers a query need not be a scaled dot product."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator
from torch import Tensor

from ...core.state import S
from ..scores import AnyComparison, Dot, Product, ScaledDot, Score
from .multihead import Headed, HeadedConfig
from .sdpa import Term


class ScoredConfig(HeadedConfig):
    """Heads that compare queries and keys by a score function, one for all heads."""

    score: AnyComparison = ScaledDot.Config()  # how well a key answers a query

    @model_validator(mode="after")
    def _scaled(self) -> Self:
        if self.scale is not None and not isinstance(self.score, ScaledDot.Config):
            raise ValueError(
                f"scale = {self.scale} is that of a scaled dot product, but score is {self.score.dump()['kind']}; "
                "leave scale or score out"
            )
        return self


class Scored(Headed[S]):
    """Queries and keys as their score function wants them.

    What is made of each by itself (`Product`: a projection, a direction) is made here, so that the fused kernel, which
    knows dot products alone, serves most scores. The others are functions of pairs, and `pairwise` is theirs.
    """

    def __init__(self, config: ScoredConfig, width: int) -> None:
        super().__init__(config, width)
        plain = isinstance(config.score, (Dot.Config, ScaledDot.Config))  # nothing is made of queries and keys
        self.score: Score | None = None if plain else config.score.build(self.head_size, self.head_size)
        if not isinstance(config.score, ScaledDot.Config):
            self.scale = 1.0

    def queries(self, x: Tensor) -> Tensor:
        query = super().queries(x)
        return query if self.score is None else self.score.asked(query)

    def keys(self, x: Tensor) -> Tensor:
        key = super().keys(x)
        return key if self.score is None else self.score.held(key)

    @property
    def pairwise(self) -> Term | None:
        """The scores of pairs, where they are no dot products."""
        return None if self.score is None or isinstance(self.score, Product) else self.score.between
