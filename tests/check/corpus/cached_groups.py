from typing import Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

KVCache = Tuple[Tensor, Tensor]


def apply_rotary(x: Tensor, offset: int, base: float = 10_000.0) -> Tensor:
    """Neighbouring channels as complex numbers."""
    *_, t, d = x.shape
    freqs = base ** (-torch.arange(0, d, 2, dtype=torch.float64, device=x.device) / d)
    phase = torch.outer(torch.arange(offset, offset + t, dtype=torch.float64, device=x.device), freqs)
    turned = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous()) * torch.polar(torch.ones_like(phase), phase)
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


class GroupedCachedAttention(nn.Module):
    def __init__(self, dim: int, n_heads: int, n_kv_heads: int) -> None:
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(n_heads * self.head_dim, dim, bias=False)

    def forward(self, x: Tensor, kv_cache: Optional[KVCache] = None) -> Tuple[Tensor, KVCache]:
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, self.n_heads, -1).transpose(1, 2)
        k = self.wk(x).view(b, t, self.n_kv_heads, -1).transpose(1, 2)
        v = self.wv(x).view(b, t, self.n_kv_heads, -1).transpose(1, 2)
        offset = kv_cache[0].shape[-2] if kv_cache is not None else 0
        q, k = apply_rotary(q, offset), apply_rotary(k, offset)
        if kv_cache is not None:
            k, v = torch.cat((kv_cache[0], k), -2), torch.cat((kv_cache[1], v), -2)
        g = self.n_heads // self.n_kv_heads
        seen = torch.ones(t, offset + t, dtype=torch.bool, device=x.device).tril(offset)
        keys = k[:, :, None].expand(-1, -1, g, -1, -1).flatten(1, 2)
        values = v[:, :, None].expand(-1, -1, g, -1, -1).flatten(1, 2)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        return self.wo(y.transpose(1, 2).flatten(2)), (k, v)
