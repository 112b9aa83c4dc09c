import torch
import torch.nn as nn
import torch.nn.functional as F
from einops import rearrange


class FlashishAttention(nn.Module):
    def __init__(self, dim, dim_head=8, heads=4):
        super().__init__()
        self.scale = dim_head ** -0.5
        self.heads = heads
        inner = dim_head * heads
        self.to_q = nn.Linear(dim, inner, bias=False)
        self.to_kv = nn.Linear(dim, inner * 2, bias=False)
        self.to_out = nn.Linear(inner, dim, bias=False)

    def forward(self, x):
        q, (k, v) = self.to_q(x), self.to_kv(x).chunk(2, dim=-1)
        q, k, v = map(lambda t: rearrange(t, "b n (h d) -> b h n d", h=self.heads), (q, k, v))
        q = q * self.scale
        out = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(rearrange(out, "b h n d -> b n (h d)"))
