"""What can stand in the place of a model: a plan that only lacks its vocabulary, or a shape that can be built."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from ..core.config import Config
from ..core.contract import Mixer
from ..core.errors import ConfigError


class Plan(Config):
    """A model up to its vocabulary: what a recipe holds before there is a tokenizer."""

    @abstractmethod
    def sized(self, vocabulary: int) -> Shape:
        """The configuration of the model for so many tokens."""


class Shape(Plan):
    """The whole configuration of a model."""

    @abstractmethod
    def build(self) -> Mixer[Any]:
        """The model, with fresh weights."""


def agreed(named: int | None, vocabulary: int) -> int:
    """A vocabulary that a configuration names must be the one that is there."""
    if named not in (None, vocabulary):
        raise ConfigError(f"the model names a vocabulary of {named}, the tokenizer has {vocabulary}; leave it out")
    return vocabulary


def published(**sizes: Mapping[str, int]) -> Any:
    """A validator of a Plan: its `size` names the numbers of a published model, which need not be given, too."""

    def filled(cls: type[Plan], value: Any) -> Any:
        numbers = sizes.get(str(value.get("size"))) if isinstance(value, dict) else None
        if numbers is None:
            return value
        for name, number in numbers.items():
            if value.get(name, number) != number:
                raise ValueError(
                    f"size {value['size']!r} has {name} = {number}, not {value[name]}; leave size or {name} out"
                )
        return {**value, **numbers}

    return model_validator(mode="before")(classmethod(filled))  # type: ignore[arg-type]  # as its decorator is used
