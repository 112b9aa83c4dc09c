"""Attention over an episode's memory, time first as everywhere in this code base."""
from typing import NamedTuple, Optional

import torch
from torch import Tensor, nn


class Attended(NamedTuple):
    out: Tensor
    entropy: Tensor


class EpisodicAttention(nn.Module):
    def __init__(self, input_dim: int, num_heads: int, bias: bool = True):
        super().__init__()
        self._num_heads = num_heads
        self._q = nn.Linear(input_dim, input_dim, bias)
        self._k = nn.Linear(input_dim, input_dim, bias)
        self._v = nn.Linear(input_dim, input_dim, bias)
        self._o = nn.Linear(input_dim, input_dim, bias)

    @property
    def _temperature(self) -> float:
        return self._num_heads ** 0.5

    def forward(self, inputs: Tensor) -> Attended:
        # inputs: [batch, time, dim]
        def heads(x: Tensor) -> Tensor:
            return x.unflatten(-1, (self._num_heads, -1)).movedim(2, 1)

        q, k, v = heads(self._q(inputs)), heads(self._k(inputs)), heads(self._v(inputs))
        logits = torch.einsum("bhid,bhjd->bhij", q, k) / self._temperature
        probs = torch.softmax(logits, dim=-1)
        entropy = -(probs * probs.clamp_min(1e-12).log()).sum(-1)
        out = torch.einsum("bhij,bhjd->bhid", probs, v).movedim(1, 2).flatten(2)
        return Attended(self._o(out), entropy)
