import torch
from torch import nn


class FlaggedAttention(nn.Module):
    """Switches that add weights, or take some away: two settings are two models, not two paths of one."""

    def __init__(self, dim, num_heads=4, qkv_bias=True, use_gate=False, share_kv=False, with_pos=False, max_len=64):
        super().__init__()
        self.num_heads = num_heads
        self.q = nn.Linear(dim, dim, bias=qkv_bias)
        self.k = nn.Linear(dim, dim, bias=qkv_bias)
        self.v = self.k if share_kv else nn.Linear(dim, dim, bias=qkv_bias)
        self.gate = nn.Linear(dim, dim) if use_gate else None
        self.pos = nn.Parameter(torch.zeros(1, max_len, dim)) if with_pos else None
        self.proj = nn.Linear(dim, dim)
        if self.pos is not None:
            nn.init.normal_(self.pos, std=0.02)

    def forward(self, x):
        b, n, d = x.shape
        if self.pos is not None:
            x = x + self.pos[:, :n]
        q, k, v = (f(x).reshape(b, n, self.num_heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        if self.gate is not None:
            y = y * torch.sigmoid(self.gate(x))
        return self.proj(y)
