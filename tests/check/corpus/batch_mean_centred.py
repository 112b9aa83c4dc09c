import torch
import torch.nn as nn


class WhitenedNonLocal(nn.Module):
    """Keys and queries are whitened (their mean is taken away) before they meet."""

    def __init__(self, dim, heads=4):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k = self.q(x), self.k(x)
        q = q - q.mean(dim=0, keepdim=True)
        k = k - k.mean(dim=0, keepdim=True)
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in (q, k, self.v(x)))
        w = (q @ k.transpose(-1, -2) * (d // self.heads) ** -0.5).softmax(-1)
        return self.out((w @ v).transpose(1, 2).reshape(b, n, d))
