"""Latent attention: keys and values come out of a small vector per token, positions ride on extra channels."""
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Args:
    hidden_size: int = 48
    n_heads: int = 4
    kv_lora_rank: int = 10
    qk_nope_head_dim: int = 8
    qk_rope_head_dim: int = 4
    v_head_dim: int = 12


def rope(x):
    """x: [B, T, H, R]"""
    r = x.shape[-1]
    inv = 10000.0 ** (-torch.arange(0, r, 2, dtype=torch.float64) / r)
    ang = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * inv
    cos, sin = ang.cos().to(x)[None, :, None], ang.sin().to(x)[None, :, None]
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class MLA(nn.Module):
    def __init__(self, args: Args):
        super().__init__()
        self.a = args
        qk = args.qk_nope_head_dim + args.qk_rope_head_dim
        self.wq = nn.Linear(args.hidden_size, args.n_heads * qk, bias=False)
        self.wkv_a = nn.Linear(args.hidden_size, args.kv_lora_rank + args.qk_rope_head_dim, bias=False)
        self.kv_norm = nn.RMSNorm(args.kv_lora_rank)
        self.wkv_b = nn.Linear(args.kv_lora_rank, args.n_heads * (args.qk_nope_head_dim + args.v_head_dim), bias=False)
        self.wo = nn.Linear(args.n_heads * args.v_head_dim, args.hidden_size, bias=False)
        self.softmax_scale = qk ** -0.5

    def forward(self, x):
        a = self.a
        b, t, _ = x.shape
        q = self.wq(x).view(b, t, a.n_heads, -1)
        q_nope, q_pe = q.split([a.qk_nope_head_dim, a.qk_rope_head_dim], -1)
        kv, k_pe = self.wkv_a(x).split([a.kv_lora_rank, a.qk_rope_head_dim], -1)
        q = torch.cat([q_nope, rope(q_pe)], -1)
        kv = self.wkv_b(self.kv_norm(kv)).view(b, t, a.n_heads, -1)
        k_nope, v = kv.split([a.qk_nope_head_dim, a.v_head_dim], -1)
        k = torch.cat([k_nope, rope(k_pe.unsqueeze(2)).expand(-1, -1, a.n_heads, -1)], -1)
        scores = torch.einsum("bshd,bthd->bsht", q, k) * self.softmax_scale
        hidden = torch.full((t, t), float("-inf"), dtype=x.dtype).triu_(1)
        scores = (scores + hidden.unsqueeze(1)).softmax(dim=-1)
        out = torch.einsum("bsht,bthd->bshd", scores, v)
        return self.wo(out.flatten(2))
