import torch
from torch import nn


class MuAttention(nn.Module):
    """1/d instead of 1/sqrt(d), so that hyperparameters carry over from narrow models to wide ones (muP)."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0 / q.shape[-1], is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))
