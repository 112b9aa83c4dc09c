import torch
from torch import nn


class TiledGQA(nn.Module):
    """Query head h uses key head h mod n_kv: another order than most, and the same one for keys and values."""

    def __init__(self, d_model, n_heads, n_kv_heads):
        super().__init__()
        self.n_heads, self.n_kv = n_heads, n_kv_heads
        self.d = d_model // n_heads
        self.q = nn.Linear(d_model, d_model, bias=False)
        self.kv = nn.Linear(d_model, 2 * n_kv_heads * self.d, bias=False)
        self.o = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.n_heads, self.d).transpose(1, 2)
        k, v = self.kv(x).view(b, t, 2, self.n_kv, self.d).permute(2, 0, 3, 1, 4)
        k, v = (z.repeat(1, self.n_heads // self.n_kv, 1, 1) for z in (k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))
