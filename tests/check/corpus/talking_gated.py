import torch
from torch import nn


class TalkingHeadsAttention(nn.Module):
    """Heads talk before and after the softmax; the output is gated."""

    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.scale = (dim // n_heads) ** -0.5
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.pre_softmax = nn.Conv2d(n_heads, n_heads, 1, bias=False)
        self.post_softmax = nn.Conv2d(n_heads, n_heads, 1, bias=False)
        self.gate = nn.Linear(dim, dim)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, D = x.shape
        q, k, v = self.to_qkv(x).reshape(B, N, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        dots = torch.einsum('bhid,bhjd->bhij', q, k) * self.scale
        dots = self.pre_softmax(dots)
        attn = self.post_softmax(dots.softmax(dim=-1))
        out = torch.einsum('bhij,bhjd->bihd', attn, v).reshape(B, N, D)
        return self.to_out(out * self.gate(x).sigmoid())


class DifferentialAttention(nn.Module):
    """The difference of two softmaxes, with a learnt share; each head has two pairs of queries and keys."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.h, self.d = num_heads, embed_dim // num_heads // 2
        self.q = nn.Linear(embed_dim, embed_dim, bias=False)
        self.k = nn.Linear(embed_dim, embed_dim, bias=False)
        self.v = nn.Linear(embed_dim, embed_dim, bias=False)
        self.o = nn.Linear(embed_dim, embed_dim, bias=False)
        self.lam = nn.Parameter(torch.tensor(0.3))

    def forward(self, x):
        b, n, _ = x.shape
        q = self.q(x).view(b, n, 2 * self.h, self.d).transpose(1, 2)
        k = self.k(x).view(b, n, 2 * self.h, self.d).transpose(1, 2)
        v = self.v(x).view(b, n, self.h, 2 * self.d).transpose(1, 2)
        w = (q @ k.transpose(-1, -2) * self.d ** -0.5).softmax(-1).view(b, self.h, 2, n, n)
        w = w[:, :, 0] - self.lam * w[:, :, 1]
        return self.o((w @ v).transpose(1, 2).reshape(b, n, -1))
