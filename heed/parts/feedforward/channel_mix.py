"""RWKV's channel mixing: a feed-forward that also sees the token before, and so remembers one."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ...core.config import Size
from ...core.contract import Mixer, MixerConfig, Reach, Where
from ...core.spec import Dim, Entries, Slot, Spec
from ...core.state import Cell
from ..recurrence.decay import must_rise
from ..recurrence.token_shift import RwkvConfig, continued


class ChannelMix(Mixer[Cell]):
    """A feed-forward of a token and the one before it, mixed channel by channel, behind a gate.

        y_i = σ(R (μ_r ⊙ x_i + (1 - μ_r) ⊙ x_{i-1})) ⊙ V relu(K (μ_k ⊙ x_i + (1 - μ_k) ⊙ x_{i-1}))²

    Peng et al. 2023. Remembers the last token. First weights are the authors' for layer `layer` of `layers`.
    """

    class Config(RwkvConfig):
        kind: Literal["channelmix"] = "channelmix"
        hidden: Size | None = None  # four times the width

        def build(self, width: int) -> ChannelMix:
            return ChannelMix(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return cls(), cls(hidden=7, layer=1, layers=3)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.width, self.reach = Dim("width", width), Reach(1, 0)
        hidden, share = config.hidden or 4 * width, torch.arange(width) / width
        self.key = nn.Linear(width, hidden, bias=False)
        self.receptance = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(hidden, width, bias=False)
        left = 1 - config.layer / config.layers
        self.mix_key, self.mix_receptance = (nn.Parameter(share**left) for _ in range(2))  # μ

    def spec(self) -> Spec:
        return Slot(((self.width,),), Entries(fixed=1), self.value.weight.dtype)

    def forward(self, x: Tensor, where: Where, state: Cell | None = None) -> tuple[Tensor, Cell | None]:
        must_rise(where, "RWKV")
        x = where.blank(x)
        (last,) = (self.start(len(x)) if state is None else state).take()
        both, tail = continued(x, where, last.unsqueeze(1))
        earlier = both[:, :-1]
        hidden = torch.relu(self.key(torch.lerp(earlier, x, self.mix_key))).square()
        y = torch.sigmoid(self.receptance(torch.lerp(earlier, x, self.mix_receptance))) * self.value(hidden)
        return y, None if state is None else Cell(tail[:, 0])
