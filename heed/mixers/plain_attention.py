"""The plainest self-attention (Vaswani et al. 2017 without its matrices): tokens compared with tokens, no weight."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from ..core.config import Flag
from ..core.contract import Mixer, MixerConfig, Where
from ..core.spec import Dim, Entries, Slot, Spec
from ..core.state import Log, remember
from ..parts.attention.attend import attend, written_out
from ..parts.look import Look
from ..parts.masks import AnyMask, Causal, Padding, Whole, Window


class PlainAttention(Mixer[Log]):
    """Every token becomes the mean of the tokens it sees, weighted by how alike they are: softmax(x xᵀ) x.

        y_i = Σ_j softmax_j(x_i·x_j) x_j

    Query, key and value are the token itself; nothing is learnt, so it is what attention does before it is taught
    anything (Vaswani et al. 2017, eq. 1 with Q = K = V = X and, unless `scaled`, without 1/√d). Costs O(n²·d) time over
    n tokens; remembers the tokens, of which a key and a value would be copies.
    """

    class Config(MixerConfig):
        paper: ClassVar[str] = "Vaswani et al. 2017, Attention Is All You Need, eq. 1 with Q = K = V = X"

        kind: Literal["plain_attention"] = "plain_attention"
        mask: AnyMask = Causal()
        scaled: Flag = False  # scores are divided by √width

        def build(self, width: int) -> PlainAttention:
            return PlainAttention(self, width)

        @classmethod
        def samples(cls) -> tuple[MixerConfig, ...]:
            return cls(), cls(scaled=True, mask=Window(back=3)), cls(mask=Whole()), cls(mask=Padding(), scaled=True)

    def __init__(self, config: Config, width: int) -> None:
        super().__init__()
        self.width, self.mask, self.reach = Dim("width", width), config.mask, config.mask.reach
        self.scale = width**-0.5 if config.scaled else 1.0
        self.weights = Look()
        self.register_buffer("like", torch.empty(0), persistent=False)  # no weight tells the dtype and the device
        self.like: Tensor

    def spec(self) -> Spec:
        if not self.streams:
            return ()
        window = None if self.reach.back is None else Dim("window", self.reach.back)
        return Slot(((self.width,),), Entries(each=1, cap=window), self.like.dtype)

    def forward(self, x: Tensor, where: Where, state: Log | None = None) -> tuple[Tensor, Log | None]:
        x = where.blank(x)
        seen, state = remember(state, where, x)
        query, key = x.unsqueeze(2), seen.parts[0].unsqueeze(2)  # one head
        sight = self.mask(where, seen)
        self.weights(lambda: written_out(query, key, key, sight, scale=self.scale)[1])
        return attend(query, key, key, sight, scale=self.scale).squeeze(2), state
