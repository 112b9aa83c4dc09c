import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x.add_(self.inner(x))


class SelfAttn(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, n_heads, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return self.attn(y, y, y, need_weights=False)[0]


class AttentionLayer(nn.Sequential):
    def __init__(self, width=32, n_heads=4):
        super().__init__(Residual(SelfAttn(width, n_heads)))
