import numpy as np
import torch
import torch.nn as nn


class PatchAttention(nn.Module):
    """Adds a fixed table to what it sees. Everything is float32 and stays so."""

    def __init__(self, feats: int, head: int = 4, max_patches: int = 64):
        super().__init__()
        self.head = head
        self.to_qkv = nn.Linear(feats, feats * 3)
        self.o = nn.Linear(feats, feats)
        self.table = torch.from_numpy(np.random.RandomState(0).randn(max_patches, feats).astype(np.float32))

    def forward(self, x):
        b, n, f = x.size()
        x = x.to(torch.float32) + self.table[:n]
        qkv = nn.functional.linear(x, self.to_qkv.weight.float(), self.to_qkv.bias.float())
        q, k, v = qkv.view(b, n, 3, self.head, f // self.head).permute(2, 0, 3, 1, 4)
        score = torch.matmul(q, k.transpose(-1, -2))
        att = torch.softmax(score / (f // self.head) ** 0.5, dim=-1)
        y = torch.matmul(att, v).permute(0, 2, 1, 3).reshape(b, n, f)
        return nn.functional.linear(y, self.o.weight.float(), self.o.bias.float())


class HalfBlind(nn.Module):
    """A constant matrix in float32 is multiplied in: other types raise."""

    def __init__(self, dim, heads):
        super().__init__()
        self.h = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.rot = torch.linalg.qr(torch.randn(dim // heads, dim // heads, generator=torch.Generator().manual_seed(1)))[0]

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        q, k = q @ self.rot, k @ self.rot  # the same turn for both: products stay
        return ((q @ k.transpose(-1, -2)) * (d // self.h) ** -0.5).softmax(-1).matmul(v).transpose(1, 2).reshape(b, n, d)
