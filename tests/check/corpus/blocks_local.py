import torch
from torch import nn


class BlockLocalAttention(nn.Module):
    """Tokens of a block of `window_size` see each other; the length must be a multiple of it."""

    def __init__(self, dim, heads, window_size=4):
        super().__init__()
        self.heads, self.window_size = heads, window_size
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        w = self.window_size
        assert (n % w) == 0, f'sequence length {n} must be divisible by the window size {w}'
        q, k, v = self.to_qkv(x).view(b, n // w, w, 3, self.heads, d // self.heads).permute(3, 0, 1, 4, 2, 5)
        attn = (q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5).softmax(dim=-1)
        return self.to_out((attn @ v).transpose(2, 3).reshape(b, n, d))
