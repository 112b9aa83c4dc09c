import torch
from torch import nn


def soft_cap(x, cap):
    return cap * torch.tanh(x / cap)


class CappedAttention(nn.Module):
    def __init__(self, dim, heads, cap=20.0):
        super().__init__()
        self.heads, self.cap = heads, cap
        self.to_qkv = nn.Linear(dim, dim * 3, bias=False)
        self.to_out = nn.Linear(dim, dim, bias=False)

    def forward(self, x, mask=None):
        b, n, d = x.shape
        q, k, v = self.to_qkv(x).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        sim = q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5
        if mask is not None:
            sim = sim.masked_fill(~mask.bool(), -torch.finfo(sim.dtype).max)
        sim = soft_cap(sim, self.cap)
        return self.to_out((sim.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))
