"""Rotary positions in the words of a config.json: `rope_parameters`, or in older files `rope_theta` and `rope_scaling`.

A family that rotates derives from `Rotary`, or hands what its config calls otherwise to `RopeParameters.ours`.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal, TypeAlias, TypeVar

from pydantic import field_validator, model_validator

from ...core.config import Data, Flag, Fraction, Positive, Size, Theirs
from ...core.errors import ConfigError
from ...parts.positions import AnyScaling, Dynamic, Linear, Llama3, LongRope, Rope, Yarn
from ...parts.positions.rotary import Layout
from ...parts.positions.waves import Base
from .decoders import Generative

T = TypeVar("T")
FARTHEST = 2**40  # positions
Kind: TypeAlias = Literal["default", "linear", "dynamic", "yarn", "longrope", "llama3"]


class RopeParameters(Theirs):
    """Their rotation. What a kind does not use may stand there and means nothing."""

    rope_type: Kind = "default"
    rope_theta: Base | None = None
    partial_rotary_factor: Fraction | None = None
    factor: Positive | None = None
    original_max_position_embeddings: Size | None = None
    attention_factor: Positive | None = None
    beta_fast: Positive | None = None
    beta_slow: Positive | None = None
    mscale: Positive | None = None
    mscale_all_dim: Positive | None = None
    truncate: Flag = True
    low_freq_factor: Positive | None = None
    high_freq_factor: Positive | None = None
    short_factor: tuple[Positive, ...] | None = None
    long_factor: tuple[Positive, ...] | None = None
    length: Size | None = None  # heed's own: the length that dynamic and longrope are to be used at

    @model_validator(mode="before")
    @classmethod
    def _one_for_all(cls, data: object) -> object:
        """Old files say `type`. A table for each kind of layer, or for several axes, must not be passed over."""
        if not isinstance(data, dict):
            return data
        lost = [str(name) for name, value in data.items() if _nested(name, value)]
        if lost:
            raise ValueError(f"heed reads one rotation of one axis for all layers, not {', '.join(lost[:3])}")
        return {"rope_type": data["type"], **data} if "type" in data else data

    @field_validator("beta_fast", "beta_slow", "mscale", "mscale_all_dim", mode="before")
    @classmethod
    def _zero_is_none(cls, value: object) -> object:
        return None if value == 0 else value

    def ours(self, length: int, original: int | None = None, layout: Layout = "halves") -> Rope.Config:
        """The same rotation; `length` is their max_position_embeddings, `original` what it was before stretching."""
        original = original or self.original_max_position_embeddings or length
        if max(length, original) > FARTHEST:
            raise ConfigError(f"it claims {max(length, original)} positions; no text is longer than {FARTHEST}")
        base, share = self.rope_theta or 10000.0, self.partial_rotary_factor or 1.0
        return Rope.Config(layout=layout, base=base, share=share, scaling=self._scaling(length, original))

    @property
    def growth(self) -> float:
        """What the scores of DeepSeek grow by, beside a rotation that is stretched: (0.1·mscale·ln(factor) + 1)²."""
        if self.rope_type == "default" or self.mscale_all_dim is None:
            return 1.0
        once = grown(self._needed("factor", self.factor), self.mscale_all_dim)
        return once * once

    def _scaling(self, length: int, original: int) -> AnyScaling | None:
        stretched = self.factor or length / original
        match self.rope_type:
            case "default":
                return None
            case "linear":
                return Linear(factor=self._needed("factor", self.factor))
            case "dynamic":  # of the whole context: what it was before does not count
                return Dynamic(factor=self._needed("factor", self.factor), original=length, length=self.length)
            case "llama3":
                return Llama3(
                    factor=self._needed("factor", self.factor),
                    low=self._needed("low_freq_factor", self.low_freq_factor),
                    high=self._needed("high_freq_factor", self.high_freq_factor),
                    original=original,
                )
            case "yarn":
                return Yarn(
                    factor=stretched,
                    original=original,
                    fast=self.beta_fast or 32.0,
                    slow=self.beta_slow or 1.0,
                    attention=self._attention(stretched),
                    whole=self.truncate,
                )
            case "longrope":
                return LongRope(
                    short=self._needed("short_factor", self.short_factor),
                    long=self._needed("long_factor", self.long_factor),
                    factor=stretched,
                    original=original,
                    attention=self.attention_factor,
                    length=self.length,
                )

    def _attention(self, factor: float) -> float | None:
        if self.attention_factor is None and self.mscale is not None and self.mscale_all_dim is not None:
            return grown(factor, self.mscale) / grown(factor, self.mscale_all_dim)
        return self.attention_factor

    def _needed(self, name: str, value: T | None) -> T:
        if value is None:
            raise ConfigError(f"the rotation is of the type {self.rope_type}, which needs {name}")
        return value


class Rotary(Generative):
    """A family whose queries and keys are rotated."""

    theta: ClassVar[float] = 10000.0  # the base where a config names none

    max_position_embeddings: Size = 2048
    original_max_position_embeddings: Size | None = None
    partial_rotary_factor: Fraction | None = None
    rope_theta: Base | None = None
    rope_scaling: RopeParameters | None = None
    rope_parameters: RopeParameters | None = None

    @property
    def rotation(self) -> RopeParameters:
        """What the config says of the rotation, wherever it says it."""
        found = self.rope_scaling or self.rope_parameters or RopeParameters()
        return found.model_copy(
            update={
                "rope_theta": found.rope_theta or self.rope_theta or self.theta,
                "partial_rotary_factor": found.partial_rotary_factor or self.partial_rotary_factor,
            }
        )

    def rope(self, layout: Layout = "halves") -> Rope.Config:
        """The same rotation in heed's words."""
        return self.rotation.ours(self.max_position_embeddings, self.original_max_position_embeddings, layout)


def at_length(config: Data, length: int) -> Data:
    """A config that declares in its rotation, unless it does so itself, the length of the call that it is used for."""
    tables = {name: config[name] for name in ("rope_scaling", "rope_parameters") if isinstance(config.get(name), dict)}
    return {**config, **{name: {"length": length, **table} for name, table in tables.items()}}


def grown(factor: float, weight: float) -> float:
    """0.1·weight·ln(factor) + 1: what YaRN multiplies by where a context is stretched."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def _nested(name: object, value: object) -> bool:
    return isinstance(value, dict | list) and name not in ("short_factor", "long_factor")
