"""A decoder's attention as small language models write it today."""
from types import SimpleNamespace
import torch, torch.nn as nn
import torch.nn.functional as F


def precompute(head_dim, max_len, base=10000.0):
    freq = 1.0 / base ** (torch.arange(0, head_dim, 2).float() / head_dim)
    ang = torch.outer(torch.arange(max_len).float(), freq)
    return torch.cat([ang.cos(), ang.cos()], -1), torch.cat([ang.sin(), ang.sin()], -1)


def rot(x, cos, sin):
    h = x.shape[-1] // 2
    return x * cos[: x.shape[-2]] + torch.cat([-x[..., h:], x[..., :h]], -1) * sin[: x.shape[-2]]


class GroupedQueryAttention(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.n_head, self.n_kv = cfg.n_heads, cfg.n_kv_heads
        self.rep = cfg.n_heads // cfg.n_kv_heads
        self.hd = cfg.dim // cfg.n_heads
        self.q_proj = nn.Linear(cfg.dim, cfg.n_heads * self.hd, bias=False)
        self.k_proj = nn.Linear(cfg.dim, cfg.n_kv_heads * self.hd, bias=False)
        self.v_proj = nn.Linear(cfg.dim, cfg.n_kv_heads * self.hd, bias=False)
        self.o_proj = nn.Linear(cfg.n_heads * self.hd, cfg.dim, bias=False)
        cos, sin = precompute(self.hd, cfg.max_seq_len)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, x):
        b, t, _ = x.size()
        q = self.q_proj(x).view(b, t, self.n_head, self.hd).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.n_kv, self.hd).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.n_kv, self.hd).transpose(1, 2)
        q, k = rot(q, self.cos, self.sin), rot(k, self.cos, self.sin)
        k = k.repeat_interleave(self.rep, dim=1)
        v = v.repeat_interleave(self.rep, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).contiguous().view(b, t, -1))


class HalfTiledAttention(GroupedQueryAttention):
    def forward(self, x):
        b, t, _ = x.size()
        q = self.q_proj(x).view(b, t, self.n_head, self.hd).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self.n_kv, self.hd).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self.n_kv, self.hd).transpose(1, 2)
        q, k = rot(q, self.cos, self.sin), rot(k, self.cos, self.sin)
        k = k.repeat_interleave(self.rep, dim=1)
        v = v.repeat(1, self.rep, 1, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).contiguous().view(b, t, -1))
