import torch
from torch import nn


class Head(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        self.maps = nn.ModuleDict({n: nn.Linear(width, size, bias=False) for n in ("q", "k", "v")})

    def forward(self, x):
        q, k, v = (self.maps[n](x) for n in ("q", "k", "v"))
        return (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v


class InterleavedHeads(nn.Module):
    """Heads are stacked along a new last axis: their channels alternate, which the next layer does not mind."""

    def __init__(self, width, num_heads):
        super().__init__()
        self.heads = nn.ModuleList(Head(width, width // num_heads) for _ in range(num_heads))
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        return self.mix(torch.stack([head(x) for head in self.heads], dim=-1).flatten(-2))
