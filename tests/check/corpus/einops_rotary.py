import torch
from torch import nn, einsum
from einops import rearrange, repeat


def exists(val):
    return val is not None


def rotate_half(x):
    x = rearrange(x, '... (d r) -> ... d r', r=2)
    x1, x2 = x.unbind(dim=-1)
    return rearrange(torch.stack((-x2, x1), dim=-1), '... d r -> ... (d r)')


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, theta=10000):
        super().__init__()
        self.register_buffer('inv_freq', 1. / (theta ** (torch.arange(0, dim, 2).float() / dim)))

    def forward(self, seq_len, device):
        t = torch.arange(seq_len, device=device).type_as(self.inv_freq)
        return repeat(einsum('i, j -> i j', t, self.inv_freq), 'n d -> n (d r)', r=2)


def apply_rotary(freqs, t):
    return t * freqs.cos() + rotate_half(t) * freqs.sin()


class PreNormAttention(nn.Module):
    def __init__(self, dim, *, dim_head=64, heads=8, dropout=0., causal=False, rotary=True):
        super().__init__()
        inner = dim_head * heads
        self.heads, self.scale, self.causal = heads, dim_head ** -0.5, causal
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, inner * 3, bias=False)
        self.rotary = RotaryEmbedding(dim_head) if rotary else None
        self.dropout = nn.Dropout(dropout)
        self.to_out = nn.Linear(inner, dim, bias=False)

    def forward(self, x, mask=None):
        n, device = x.shape[1], x.device
        x = self.norm(x)
        q, k, v = rearrange(self.to_qkv(x), 'b n (qkv h d) -> qkv b h n d', qkv=3, h=self.heads)
        if exists(self.rotary):
            freqs = self.rotary(n, device)
            q, k = (apply_rotary(freqs, t) for t in (q, k))
        sim = einsum('b h i d, b h j d -> b h i j', q * self.scale, k)
        neg = -torch.finfo(sim.dtype).max
        if exists(mask):
            sim = sim.masked_fill(~rearrange(mask, 'b j -> b 1 1 j'), neg)
        if self.causal:
            sim = sim.masked_fill(torch.ones((n, n), device=device, dtype=torch.bool).triu(1), neg)
        out = einsum('b h i j, b h j d -> b h i d', self.dropout(sim.softmax(dim=-1)), v)
        return self.to_out(rearrange(out, 'b h n d -> b n (h d)'))


class ParallelBlock(nn.Module):
    """Attention and feed-forward side by side, one head of keys and values."""

    def __init__(self, dim, dim_head=64, heads=8, ff_mult=4):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.heads, self.scale = heads, dim_head ** -0.5
        self.fused_dims = (dim_head * heads, dim_head, dim_head, dim * ff_mult * 2)
        self.fused = nn.Linear(dim, sum(self.fused_dims), bias=False)
        self.attn_out = nn.Linear(dim_head * heads, dim, bias=False)
        self.ff_out = nn.Linear(dim * ff_mult, dim, bias=False)
        self.rotary = RotaryEmbedding(dim_head)

    def forward(self, x):
        n = x.shape[1]
        q, k, v, ff = self.fused(self.norm(x)).split(self.fused_dims, dim=-1)
        q = rearrange(q, 'b n (h d) -> b h n d', h=self.heads)
        freqs = self.rotary(n, x.device)
        q, k = apply_rotary(freqs, q) * self.scale, apply_rotary(freqs, k)
        sim = einsum('b h i d, b j d -> b h i j', q, k)
        sim = sim.masked_fill(torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1), -torch.finfo(sim.dtype).max)
        out = einsum('b h i j, b j d -> b h i d', sim.softmax(-1), v)
        a, gate = ff.chunk(2, dim=-1)
        return x + self.attn_out(rearrange(out, 'b h n d -> b n (h d)')) + self.ff_out(nn.functional.silu(gate) * a)
