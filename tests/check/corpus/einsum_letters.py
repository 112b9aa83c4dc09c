import torch
from torch import nn, einsum


class EinsumAttention(nn.Module):
    def __init__(self, dim, heads=4, dim_head=8):
        super().__init__()
        self.heads, self.scale = heads, dim_head ** -0.5
        inner = heads * dim_head
        self.wq = nn.Linear(dim, inner, bias=False)
        self.wkv = nn.Linear(dim, inner * 2, bias=False)
        self.out = nn.Linear(inner, dim)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (t.unflatten(-1, (self.heads, -1)) for t in (self.wq(x), *self.wkv(x).chunk(2, dim=-1)))
        sim = einsum("b q h d, b k h d -> b h k q", q, k) * self.scale
        attn = sim.softmax(dim=-1)
        return self.out(einsum("b h k q, b k h d -> b q h d", attn, v).reshape(b, n, -1))
