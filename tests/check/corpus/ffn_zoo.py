import torch
from torch import nn
import torch.nn.functional as F


class SwiGLU(nn.Module):
    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(dim, hidden_dim), nn.Linear(hidden_dim, dim), nn.Linear(dim, hidden_dim)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class GEGLU_FFN(nn.Module):
    def __init__(self, dim, mult=4, dropout=0.):
        super().__init__()
        inner = int(dim * mult * 2 / 3)
        self.net = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, inner * 2))
        self.out = nn.Sequential(nn.Dropout(dropout), nn.Linear(inner, dim))

    def forward(self, x):
        a, b = self.net(x).chunk(2, dim=-1)
        return self.out(a * F.gelu(b))


class ScaleNorm(nn.Module):
    """x / |x| * g, one learnt length for all"""

    def __init__(self, scale, eps=1e-5):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(float(scale)))
        self.eps = eps

    def forward(self, x):
        return x * self.scale / torch.norm(x, dim=-1, keepdim=True).clamp(min=self.eps)


class LearnedPositionalEmbedding(nn.Module):
    def __init__(self, max_len, d_model):
        super().__init__()
        self.emb = nn.Embedding(max_len, d_model)

    def forward(self, x):
        return x + self.emb(torch.arange(x.size(1), device=x.device))


def positional_encoding(length, depth):
    """sines in the first half, cosines in the second"""
    depth = depth / 2
    positions = torch.arange(length)[:, None]
    depths = torch.arange(depth)[None, :] / depth
    angle_rads = positions * (1 / (10000 ** depths))
    return torch.cat([torch.sin(angle_rads), torch.cos(angle_rads)], dim=-1)


def sinusoidal_embedding(d_model, max_len=64):
    pe = torch.zeros(max_len, d_model, dtype=torch.float64)
    for pos in range(max_len):
        for i in range(0, d_model, 2):
            pe[pos, i] = torch.sin(torch.tensor(pos / 10000 ** (i / d_model), dtype=torch.float64))
            pe[pos, i + 1] = torch.cos(torch.tensor(pos / 10000 ** (i / d_model), dtype=torch.float64))
    return pe
