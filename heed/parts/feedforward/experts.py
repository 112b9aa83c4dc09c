"""A mixture of experts: many feed-forwards, of which every token goes through a few.

Only the token itself decides where it goes (token choice). Where experts choose tokens, or drop those beyond a capacity
that a batch fills, what a token gets depends on its neighbours, and no such model can stream.

    with routed(model) as seen:
        logits, _ = model(tokens, where)
    loss = cross_entropy(logits, labels).total / labels.numel() + 0.01 * balance(seen)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, ClassVar, Literal, Self, cast

import torch
from annotated_types import Ge
from pydantic import Strict, model_validator
from torch import Tensor, nn

from ...core.config import Config as Tree
from ...core.config import Flag, OneOf, Parts, Size
from ...core.contract import Mixer, MixerConfig, Reach, Where
from ...core.errors import InputError
from ..look import Look
from .mlp import FeedForward, Gated, Nothing, Positionwise, PositionwiseConfig
from .routers import AnyRouter, GroupedRouter, Router, Routing, SoftmaxRouter, probabilities

AnyExpert = Annotated[PositionwiseConfig, OneOf(lambda: (FeedForward.Config, Gated.Config))]


class Shared(Tree):
    """An expert that every token goes through, beside those that it is routed to (Dai et al. 2024)."""

    expert: AnyExpert = Gated.Config()
    gated: Flag = False  # times sigmoid(w·x) (Qwen 1.5 MoE)


class Experts(Mixer[Nothing]):
    """y = Σ_e weight_e · expert_e(x) over the experts that the router chose, and shared(x) if there is such an expert.

    Shazeer et al. 2017 in the form of Switch (Fedus et al. 2022) and Mixtral. Costs `active` experts per token: the
    tokens of a call are sorted by expert, and each expert runs once.
    """

    class Config(MixerConfig):
        paper: ClassVar[str] = "Shazeer et al. 2017, Outrageously Large Neural Networks; Fedus et al. 2022"

        kind: Literal["experts"] = "experts"
        experts: Parts = 8  # how many
        active: Size = 2  # experts per token
        expert: AnyExpert = Gated.Config()
        router: AnyRouter = SoftmaxRouter()
        shared: Shared | None = None  # an expert that every token has
        balance: Annotated[float, Strict(), Ge(0)] = 0.0  # how much `balance` counts in the loss

        @model_validator(mode="after")
        def _enough(self) -> Self:
            if self.active > self.experts:
                raise ValueError(f"{self.active} experts per token are more than there are, which is {self.experts}")
            return self

        def build(self, width: int) -> Experts:
            return Experts(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            small, plain = Gated.Config(hidden=7), FeedForward.Config(hidden=7)
            return (
                cls(experts=4, expert=small),
                cls(experts=3, active=1, expert=plain, router=SoftmaxRouter(renormalised=False), balance=0.01),
                cls(experts=2, active=2, expert=small, shared=Shared(expert=plain, gated=True)),
                cls(
                    experts=6,
                    active=3,
                    expert=small,
                    router=GroupedRouter(groups=3, kept=2, scale=2.5),
                    shared=Shared(),
                ),
            )

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.config, self.reach = config, Reach(0, 0)
        self.routes = config.router.build(width, config.experts, config.active)
        self.experts = nn.ModuleList(config.expert.build(width) for _ in range(config.experts))
        self.shared = None if config.shared is None else config.shared.expert.build(width)
        gated = config.shared is not None and config.shared.gated
        self.shared_gate = nn.Linear(width, 1, bias=False) if gated else None
        self.router = Look()  # its logits [B, T, experts]

    def spec(self) -> Nothing:
        return ()

    def forward(self, x: Tensor, where: Where, state: Nothing | None = None) -> tuple[Tensor, Nothing | None]:
        self.router(lambda: self.routes.scores(x))
        tokens = x.flatten(0, 1)
        if where.span.padded:  # padding goes nowhere
            y = torch.zeros_like(x).masked_scatter(where.real[..., None], self._mixed(tokens[where.real.flatten()]))
        else:
            y = self._mixed(tokens).view_as(x)
        if self.shared is None:
            return y, state
        common = self.shared.alone(x)
        return y + (common if self.shared_gate is None else common * self.shared_gate(x).sigmoid()), state

    def _mixed(self, x: Tensor) -> Tensor:
        """Tokens, each through the experts that it is routed to. [n, D]"""
        if not len(x):
            return x
        _, choice, weight = self.routes(x)
        expert, place = choice.flatten().sort()
        counts = torch.bincount(expert, minlength=len(self.experts)).tolist()
        parts = torch.split(x.index_select(0, place // choice.shape[1]), counts)
        made = [
            cast(Positionwise, module).alone(part)
            for module, part in zip(self.experts, parts, strict=True)
            if part.shape[0]
            or self.training  # an expert in training gets a gradient of zero, not none: processes must agree
        ]
        back = torch.empty_like(place).scatter_(0, place, torch.arange(len(place), device=place.device))
        chosen = torch.cat(made).index_select(0, back).view(*choice.shape, -1)  # [n, active, D]
        return (weight[:, None].to(chosen.dtype) @ chosen)[:, 0]


@contextmanager
def routed(model: nn.Module) -> Iterator[list[Routing]]:
    """Collect what the routers of a model say while it runs, gradients and all; padding is never routed."""
    seen: list[Routing] = []

    def collect(module: nn.Module, given: Any, said: Routing) -> None:
        seen.append(said)

    hooks = [module.register_forward_hook(collect) for module in model.modules() if isinstance(module, Router)]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def balance(seen: Sequence[Routing]) -> Tensor:
    """E · Σ_e f_e·p_e over all tokens of all calls: least, namely k, where all E experts are used alike.

    f_e is the share of tokens that have e among their k experts, p_e the mean of its softmax (Fedus et al. 2022,
    eq. 4 to 6). f_e has no gradient, p_e has.
    """
    logits = torch.cat([said.logits for said in seen]) if seen else torch.zeros(0, 0)
    if not logits.numel():
        raise InputError("nothing was routed: run a model with experts inside `with routed(model) as seen`")
    share = probabilities(logits).mean(0)
    used = torch.bincount(torch.cat([said.choice for said in seen]).flatten(), minlength=len(share)).to(share)
    return len(share) * (used / len(logits) * share).sum()
