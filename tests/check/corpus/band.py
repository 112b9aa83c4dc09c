import torch
import torch.nn as nn


class SlidingCausalAttention(nn.Module):
    """Each token sees itself and window - 1 tokens before it."""

    def __init__(self, dim: int, num_heads: int, window: int = 4):
        super().__init__()
        self.num_heads, self.window = num_heads, window
        self.q, self.k, self.v, self.o = [nn.Linear(dim, dim) for _ in range(4)]

    def band(self, t):
        i, j = torch.meshgrid(torch.arange(t), torch.arange(t), indexing="ij")
        return (j <= i + 1) & (i - j < self.window)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.num_heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        s = (q / (d // self.num_heads) ** 0.5) @ k.transpose(-1, -2)
        s = torch.where(self.band(t), s, torch.full_like(s, -1e30))
        return self.o((s.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
