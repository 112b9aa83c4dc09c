import random

import torch
from torch import nn


class Mean(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return self.fc(x.mean(1, keepdim=True)).expand_as(x)


class Full(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.mha = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        return self.mha(x, x, x, need_weights=False)[0]


class SearchedEncoder(nn.Module):
    """Each layer is one of several kinds; the names of the kinds are what a search finds."""

    def __init__(self, width, heads, depth, kinds=None):
        super().__init__()
        self.kinds = kinds or ["full"] * depth
        self.layers = nn.ModuleList(
            [nn.ModuleDict({"full": Full(width, heads), "mean": Mean(width)}) for _ in range(depth)]
        )

    def forward(self, x):
        for kind, layer in zip(self.kinds, self.layers):
            x = x + layer[kind](x)
        return x


class ThinnedEncoder(nn.Module):
    """Layers are left out by chance, and nobody asks whether it is training."""

    def __init__(self, width, heads, depth, layer_dropout=0.1):
        super().__init__()
        self.p = layer_dropout
        self.layers = nn.ModuleList([Full(width, heads) for _ in range(depth)])

    def forward(self, x):
        for layer in self.layers:
            if random.random() > self.p:
                x = x + layer(x)
        return x
