"""Bidirectional recurrence (Schuster & Paliwal 1997): one mixer reads the text, another one reads it from its end."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import torch
from torch import Tensor, nn

from ..core.config import OneOf
from ..core.contract import Mixer, MixerConfig, Reach, Where
from ..core.errors import ConfigError
from ..core.spec import Spec
from ..core.state import State
from ..parts.recurrence.reverse import Reversed

AnyMixer: TypeAlias = Annotated[MixerConfig, OneOf(lambda: MixerConfig.choices)]


class Bidirectional(Mixer[State]):
    """Two mixers of one kind, each looking back only: one over the tokens, one over the tokens reversed.

        y_i = W_o [ forward(x_0 ... x_i) ; backward(x_n ... x_i) ]

    Schuster & Paliwal 1997; with GRUs it is the encoder of Bahdanau et al. 2015. A row is reversed within its tokens,
    its padding stays at the end. Costs what two of its mixers cost. Looks ahead, so it remembers nothing.
    """

    class Config(MixerConfig):
        paper: ClassVar[str] = "Schuster & Paliwal 1997, Bidirectional Recurrent Neural Networks"

        kind: Literal["bidirectional"] = "bidirectional"
        mixer: AnyMixer  # of either direction; it must not look ahead

        def build(self, width: int) -> Bidirectional:
            return Bidirectional(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            kinds: tuple[dict[str, Any], ...] = ({"kind": "gru"}, {"kind": "lstm", "hidden": 10}, {"kind": "attention"})
            return tuple(cls.load({"mixer": kind}) for kind in (*kinds, {"kind": "convolution", "kernel": 3}))

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.ahead, self.behind = (config.mixer.build(width) for _ in range(2))
        if not self.ahead.streams:
            raise ConfigError(
                f"either direction of a bidirectional mixer looks back only, but {config.mixer.dump()['kind']} as it "
                "is configured looks ahead; use it by itself, or make it causal"
            )
        back = self.ahead.reach.back
        self.reach = Reach(back, None if back is None else max(1, back))  # never 0 ahead: it has no state
        self.out = nn.Linear(2 * width, width)

    def spec(self) -> Spec:
        return ()

    def forward(self, x: Tensor, where: Where, state: State | None = None) -> tuple[Tensor, State | None]:
        x, reverse = where.blank(x), Reversed.of(where)
        after, _ = self.ahead(x, where)
        before, _ = self.behind(reverse(x), reverse.where.beside(where.given))
        return self.out(torch.cat((after, reverse(before)), -1)), state
