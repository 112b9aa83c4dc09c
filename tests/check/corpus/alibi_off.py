import math

import torch
from torch import nn


def alibi_slopes(num_heads):
    """2^(-8/p), 2^(-16/p) ... for p heads, the rest from between"""
    p = 2 ** math.floor(math.log2(num_heads))
    slopes = [2 ** (-8 * i / p) for i in range(p)]
    between = [2 ** (-4 * i / p) for i in range(1, 2 * (num_heads - p), 2)]
    return torch.tensor(slopes + between)


class AlibiCausalAttention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.register_buffer("slopes", alibi_slopes(num_heads))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        i = torch.arange(n)
        distance = (i[None, :] - i[:, None]).to(x)
        s = q @ k.transpose(-1, -2) / (d // self.num_heads) ** 0.5 + self.slopes.to(x)[:, None, None] * distance
        s = s.masked_fill(distance > 0, float("-inf"))
        return self.proj((s.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))
