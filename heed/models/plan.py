"""What can stand in the place of a model: a plan that only lacks its vocabulary, or a shape that can be built."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, get_args

import torch
from pydantic import model_validator

from ..core.config import Config, kind_of
from ..core.contract import Mixer
from ..core.errors import ConfigError
from ..parts.outputs.heads import Wanted, several


class Plan(Config):
    """A model up to its vocabulary: what a recipe holds before there is a tokenizer."""

    @abstractmethod
    def sized(self, vocabulary: int) -> Shape:
        """The configuration of the model for so many tokens."""


class Published(Plan):
    """A plan of which models were published: their sizes are names of its `size`."""

    paper: ClassVar[str]
    tokens: ClassVar[int]  # in the vocabulary of the published models

    @classmethod
    def sizes(cls) -> tuple[str, ...]:
        """The names of the published sizes, as the plan declares them."""
        told = get_args(cls.model_fields["size"].annotation)
        return tuple(name for each in told for name in get_args(each))

    @classmethod
    def weights(cls) -> dict[str, int]:
        """The parameters of each published model; what is shared counts once.

        Its layers are alike: of each model one and two layers are built, without memory, and the rest is multiplied.
        """
        counts = {}
        for size in cls.sizes():
            plan = cls.load({"size": size})
            one, two = (_counted(plan.model_copy(update={"depth": depth}), cls.tokens) for depth in (1, 2))
            counts[size] = one + (plan.dump()["depth"] - 1) * (two - one)
        return counts


class Shape(Plan):
    """The whole configuration of a model."""

    @abstractmethod
    def build(self) -> Mixer[Any]:
        """The model, with fresh weights."""

    def headed(self, wanted: Wanted) -> Shape:
        """The same with these heads alone, for a task that asks them."""
        kinds = " and ".join(kind_of(type(head)) for head in several(wanted))
        raise ConfigError(
            f"model.kind={kind_of(type(self))} cannot be given a head of kind {kinds}; encoders and decoders can: "
            "model.kind=encoder, bert, decoder ... An encoder-decoder learns by task.kind=denoise or translate, a pair "
            "of generator and discriminator by task.kind=electra"
        )


def _counted(plan: Plan, tokens: int) -> int:
    with torch.device("meta"):
        return sum(weight.numel() for weight in plan.sized(tokens).build().parameters())


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
