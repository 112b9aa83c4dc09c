"""A code of many positions from few vectors: a text is laid out as a board, and a place is a row and a column of it."""

from __future__ import annotations

from math import prod
from typing import ClassVar, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Size
from ...core.errors import ConfigError
from .base import AddedConfig, Adds, must_fit


class Axial(Adds):
    """One trained vector per row and one per column of a board, side by side (Ho et al. 2019; Kitaev et al. 2020).

        code(p) = [ E_0[⌊p / n_1⌋]; E_1[p mod n_1] ]

    A text of n_0·n_1 tokens is read row by row; it needs n_0 + n_1 vectors instead of n_0·n_1. More axes work alike.
    """

    class Config(AddedConfig):
        """The board, and the channels that each of its axes has."""

        paper: ClassVar[str] = "Kitaev et al. 2020, arXiv 2001.04451; Ho et al. 2019, arXiv 1912.12180"
        kind: Literal["axial"] = "axial"
        shape: tuple[Size, ...]  # rows and columns
        sizes: tuple[Size, ...]  # channels of each, which together are those of the stream

        @model_validator(mode="after")
        def _fits(self) -> Self:
            if not self.shape or len(self.shape) != len(self.sizes):
                raise ValueError(f"shape {self.shape} and sizes {self.sizes} must name the same axes, at least one")
            return self

        def build(self, width: int) -> Axial:
            return Axial(self, width)

        @classmethod
        def samples(cls) -> tuple[Self, ...]:
            return cls(shape=(8, 12), sizes=(10, 14)), cls(shape=(4, 6, 4), sizes=(4, 12, 8))

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        if sum(config.sizes) != width:
            raise ConfigError(
                f"the axes have {' + '.join(map(str, config.sizes))} channels, which are {sum(config.sizes)}; the "
                f"stream has {width}: make them equal"
            )
        self.shape = config.shape
        self.longest = prod(config.shape)
        self.tables = nn.ParameterList(
            torch.empty(length, size) for length, size in zip(config.shape, config.sizes, strict=True)
        )
        for table in self.tables:
            nn.init.normal_(table, std=0.02)  # small beside the tokens, as other learned codes are

    def code(self, position: Tensor) -> Tensor:
        board = "x".join(map(str, self.shape))
        must_fit(position, prod(self.shape), f"a board of {board}", "give the config a larger shape, and train it")
        places = torch.unravel_index(position, self.shape)
        return torch.cat(
            [nn.functional.embedding(place, table) for place, table in zip(places, self.tables, strict=True)], -1
        )
