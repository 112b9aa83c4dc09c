import torch
import torch.nn as nn

import layers
from layers import merge


class Attention(nn.Module):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(channels, channels * 3)
        self.out = nn.Linear(channels, channels)

    def forward(self, x):
        q, k, v = (layers.split(t, self.heads) for t in self.qkv(x).chunk(3, dim=-1))
        return self.out(merge(torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1) @ v))
