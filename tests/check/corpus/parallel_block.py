import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class ParallelBlock(nn.Module):
    """Attention and MLP side by side, of one norm and one matrix; keys and queries are normed, too."""

    def __init__(self, dim, n_heads, mlp_ratio=2):
        super().__init__()
        self.n_heads, self.hidden = n_heads, dim * mlp_ratio
        self.norm, self.q_norm, self.k_norm = RMSNorm(dim), RMSNorm(dim // n_heads), RMSNorm(dim // n_heads)
        self.fused_in = nn.Linear(dim, 3 * dim + self.hidden, bias=False)
        self.fused_out = nn.Linear(dim + self.hidden, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v, h = self.fused_in(self.norm(x)).split([d, d, d, self.hidden], dim=-1)
        q, k, v = (y.view(b, t, self.n_heads, -1).transpose(1, 2) for y in (q, k, v))
        q, k = self.q_norm(q), self.k_norm(k)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(b, t, d)
        return x + self.fused_out(torch.cat((y, nn.functional.gelu(h)), dim=-1))
