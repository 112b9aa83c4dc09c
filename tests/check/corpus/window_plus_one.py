import torch
import torch.nn as nn


class LocalAttention(nn.Module):
    """window_size: how many tokens a token sees, itself included"""

    def __init__(self, dim, num_heads, window_size=3):
        super().__init__()
        self.num_heads, self.window_size = num_heads, window_size
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        i = torch.arange(n, device=x.device)
        gap = i[:, None] - i[None, :]
        hidden = (gap < 0) | (gap > self.window_size)
        q, k, v = self.qkv(x).reshape(b, n, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        s = q @ k.transpose(-2, -1) * (d // self.num_heads) ** -0.5
        y = s.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(b, n, d))
