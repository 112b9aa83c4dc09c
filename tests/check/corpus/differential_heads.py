import math
import torch
import torch.nn as nn


class DiffAttention(nn.Module):
    """The difference of two softmax maps, the second times a learnt lambda; a norm for each head."""

    def __init__(self, embed_dim, num_heads, depth=0):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads // 2
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=False)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=False)
        self.lambda_init = 0.8 - 0.6 * math.exp(-0.3 * depth)
        self.lambda_q1 = nn.Parameter(torch.randn(self.head_dim) * 0.1)
        self.lambda_k1 = nn.Parameter(torch.randn(self.head_dim) * 0.1)
        self.lambda_q2 = nn.Parameter(torch.randn(self.head_dim) * 0.1)
        self.lambda_k2 = nn.Parameter(torch.randn(self.head_dim) * 0.1)
        self.gain = nn.Parameter(torch.ones(2 * self.head_dim))

    def forward(self, x):
        bsz, n, _ = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = q.view(bsz, n, 2 * self.num_heads, self.head_dim).transpose(1, 2)
        k = k.view(bsz, n, 2 * self.num_heads, self.head_dim).transpose(1, 2)
        v = v.view(bsz, n, self.num_heads, 2 * self.head_dim).transpose(1, 2)
        scores = q @ k.transpose(-1, -2) * self.head_dim ** -0.5
        mask = torch.triu(torch.full((n, n), float("-inf"), dtype=scores.dtype, device=x.device), 1)
        maps = torch.softmax(scores + mask, dim=-1).view(bsz, self.num_heads, 2, n, n)
        lam = (torch.exp((self.lambda_q1 * self.lambda_k1).sum()) - torch.exp((self.lambda_q2 * self.lambda_k2).sum())
               + self.lambda_init)
        y = (maps[:, :, 0] - lam * maps[:, :, 1]) @ v
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5) * self.gain * (1 - self.lambda_init)
        return self.out_proj(y.transpose(1, 2).reshape(bsz, n, -1))
