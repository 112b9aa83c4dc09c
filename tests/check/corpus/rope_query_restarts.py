"""Llama-like attention for incremental decoding; layer_past = (k, v)."""
import torch
import torch.nn.functional as F
from torch import nn


def rotate(x, start):
    b, h, t, d = x.shape
    freqs = 1.0 / 10000 ** (torch.arange(0, d, 2, dtype=x.dtype, device=x.device) / d)
    angles = torch.outer(torch.arange(start, start + t, dtype=x.dtype, device=x.device), freqs)
    cos, sin = angles.cos(), angles.sin()
    x1, x2 = x[..., : d // 2], x[..., d // 2 :]
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)


class LlamaishAttention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x, layer_past=None, use_cache=False):
        b, t, c = x.shape
        split = lambda y: y.view(b, t, self.n_heads, c // self.n_heads).transpose(1, 2)
        q, k, v = split(self.wq(x)), split(self.wk(x)), split(self.wv(x))
        past = 0 if layer_past is None else layer_past[0].size(2)
        q, k = rotate(q, 0), rotate(k, past)
        if layer_past is not None:
            k = torch.cat([layer_past[0], k], dim=2)
            v = torch.cat([layer_past[1], v], dim=2)
        mask = torch.ones(t, past + t, dtype=torch.bool, device=x.device).tril(past)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        y = self.wo(y.transpose(1, 2).reshape(b, t, c))
        return (y, (k, v)) if use_cache else (y, None)
