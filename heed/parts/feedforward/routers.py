"""Routers of a mixture of experts: which experts a token goes to, and how much each of them counts.

A router gives every token a logit for every expert. Choice and weights follow from the logits in float32 at least: a
rounding there would send a token to another expert.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn

from ...core.config import Config, Flag, OneOf, Positive, Size
from ...core.errors import ConfigError
from ...core.tables import later


class Routing(NamedTuple):
    """What a router says of n tokens."""

    logits: Tensor  # [n, experts]
    choice: Tensor  # [n, active] which experts
    weight: Tensor  # [n, active] how much each of them counts


class RouterConfig(Config):
    """How to build a router."""

    @abstractmethod
    def build(self, width: int, experts: int, active: int) -> Router:
        """The router of tokens of this width to `active` of so many experts."""


class Router(nn.Module):
    """Scores s = W x, and what follows from them."""

    def __init__(self, width: int, experts: int, active: int) -> None:
        super().__init__()
        self.active = active
        self.scores = nn.Linear(width, experts, bias=False)

    @abstractmethod
    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Which experts, and how much each counts. [n, experts] -> [n, active] twice"""

    def forward(self, x: Tensor) -> Routing:
        """The way of each token. [n, width]"""
        logits = self.scores(x)
        return Routing(logits, *self.choose(logits))

    if TYPE_CHECKING:  # nn.Module's own __call__ is untyped

        def __call__(self, x: Tensor) -> Routing: ...


class SoftmaxRouter(RouterConfig):
    """p = softmax(s); the top experts, each with its p (Shazeer et al. 2017; one of them: Switch, Fedus 2022).

    `renormalised` divides by the sum of the chosen, so that they count one together (Mixtral, Jiang et al. 2024).
    """

    kind: Literal["softmax"] = "softmax"
    renormalised: Flag = True  # weights of the chosen sum to one (Mixtral)

    def build(self, width: int, experts: int, active: int) -> Router:
        return _SoftmaxRouter(self, width, experts, active)


class GroupedRouter(RouterConfig):
    """p = sigmoid(s); experts come in `groups`, of which `kept` may be chosen from (DeepSeek-AI 2024, sec. 2.1.2).

    Experts are chosen by p + b, groups by the sum of their two best; b is a correction that keeps the load even without
    a loss, and does not count in the weights. These are p of the chosen, `renormalised` or not, times `scale`.
    """

    kind: Literal["grouped"] = "grouped"
    groups: Size = 1  # parts that the experts come in
    kept: Size = 1  # groups that may be chosen from
    renormalised: Flag = True  # weights of the chosen sum to one
    scale: Positive = 1.0  # what they are multiplied by then

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.kept > self.groups:
            raise ValueError(f"kept = {self.kept} is more than there are groups, which is {self.groups}")
        return self

    def build(self, width: int, experts: int, active: int) -> Router:
        return _GroupedRouter(self, width, experts, active)


class _SoftmaxRouter(Router):
    def __init__(self, config: SoftmaxRouter, width: int, experts: int, active: int) -> None:
        super().__init__(width, experts, active)
        self.renormalised = config.renormalised

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        weight, choice = probabilities(logits).topk(self.active, -1)
        return choice, weight / weight.sum(-1, keepdim=True) if self.renormalised else weight


class _GroupedRouter(Router):
    correction: Tensor  # b: moved by the load of each expert while training, not by a gradient

    def __init__(self, config: GroupedRouter, width: int, experts: int, active: int) -> None:
        super().__init__(width, experts, active)
        size, left = divmod(experts, config.groups)
        if left or size < 2 or active > config.kept * size:
            raise ConfigError(
                f"{experts} experts in {config.groups} groups, {config.kept} of them kept, {active} experts chosen: "
                "groups must be equal and hold two experts at least, and those kept as many as are chosen"
            )
        self.config = config
        self.register_buffer("correction", torch.zeros(experts))

    def choose(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        groups, kept = self.config.groups, self.config.kept
        value = logits.to(_exact(logits.dtype)).sigmoid()
        wanted = (value + self.correction).view(len(value), groups, -1)  # [n, groups, size]
        best = wanted.topk(2, -1).values.sum(-1).topk(kept, -1).indices  # [n, kept]
        barred = torch.ones_like(wanted[..., 0], dtype=torch.bool).scatter(-1, best, False)
        choice = wanted.masked_fill(barred[..., None], float("-inf")).flatten(-2).topk(self.active, -1).indices
        weight = value.gather(-1, choice)
        if self.config.renormalised:
            weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
        return choice, weight * self.config.scale


def probabilities(logits: Tensor) -> Tensor:
    """softmax(s), in float32 at least."""
    return logits.softmax(-1, dtype=_exact(logits.dtype))


def _exact(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


ROUTERS: tuple[type[RouterConfig], ...] = (SoftmaxRouter, GroupedRouter)
AnyRouter = Annotated[RouterConfig, OneOf(lambda: ROUTERS)]

if not TYPE_CHECKING:  # names of the last release
    __getattr__, __dir__ = later(__name__, {}, renamed={"Softmax": "SoftmaxRouter", "Grouped": "GroupedRouter"})
