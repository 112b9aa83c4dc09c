"""Latent attention: keys and values are rebuilt from one small vector per token."""
from dataclasses import dataclass
import torch
from torch import nn
import torch.nn.functional as F


@dataclass
class ModelArgs:
    dim: int = 64
    n_heads: int = 4
    q_lora_rank: int = 24
    kv_lora_rank: int = 20
    qk_nope_head_dim: int = 12
    qk_rope_head_dim: int = 8
    v_head_dim: int = 16
    rope_theta: float = 10000.0


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rope(x, theta):
    t, d = x.shape[-2], x.shape[-1]
    inv = 1.0 / theta ** (torch.arange(0, d, 2, device=x.device, dtype=x.dtype) / d)
    ang = torch.outer(torch.arange(t, device=x.device, dtype=x.dtype), inv)
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * ang.cos() - b * ang.sin(), a * ang.sin() + b * ang.cos()), -1).flatten(-2)


class MLA(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.args = args
        self.qk_head_dim = args.qk_nope_head_dim + args.qk_rope_head_dim
        self.wq_a = nn.Linear(args.dim, args.q_lora_rank, bias=False)
        self.q_norm = RMSNorm(args.q_lora_rank)
        self.wq_b = nn.Linear(args.q_lora_rank, args.n_heads * self.qk_head_dim, bias=False)
        self.wkv_a = nn.Linear(args.dim, args.kv_lora_rank + args.qk_rope_head_dim, bias=False)
        self.kv_norm = RMSNorm(args.kv_lora_rank)
        self.wkv_b = nn.Linear(args.kv_lora_rank, args.n_heads * (args.qk_nope_head_dim + args.v_head_dim), bias=False)
        self.wo = nn.Linear(args.n_heads * args.v_head_dim, args.dim, bias=False)
        self.softmax_scale = self.qk_head_dim ** -0.5

    def forward(self, x, mask=None):
        bsz, seqlen, _ = x.shape
        a = self.args
        q = self.wq_b(self.q_norm(self.wq_a(x))).view(bsz, seqlen, a.n_heads, self.qk_head_dim)
        q_nope, q_pe = torch.split(q, [a.qk_nope_head_dim, a.qk_rope_head_dim], dim=-1)
        q_pe = rope(q_pe.transpose(1, 2), a.rope_theta).transpose(1, 2)
        kv, k_pe = torch.split(self.wkv_a(x), [a.kv_lora_rank, a.qk_rope_head_dim], dim=-1)
        k_pe = rope(k_pe, a.rope_theta).unsqueeze(2)
        kv = self.wkv_b(self.kv_norm(kv)).view(bsz, seqlen, a.n_heads, a.qk_nope_head_dim + a.v_head_dim)
        k_nope, v = torch.split(kv, [a.qk_nope_head_dim, a.v_head_dim], dim=-1)
        k = torch.cat([k_nope, k_pe.expand(-1, -1, a.n_heads, -1)], dim=-1)
        q = torch.cat([q_nope, q_pe], dim=-1)
        scores = torch.einsum("bshd,bthd->bsht", q, k) * self.softmax_scale
        if mask is not None:
            scores = scores + mask.unsqueeze(1)
        scores = scores.softmax(dim=-1)
        out = torch.einsum("bsht,bthd->bshd", scores, v)
        return self.wo(out.flatten(2))
