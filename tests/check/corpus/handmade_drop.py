import torch
from torch import nn


class HandDropAttention(nn.Module):
    """No nn.Dropout here: weights are dropped by hand."""

    def __init__(self, embed_dim, num_heads, p=0.1):
        super().__init__()
        self.num_heads, self.p = num_heads, p
        self.kqv = nn.Linear(embed_dim, 3 * embed_dim)
        self.head = nn.Linear(embed_dim, embed_dim)

    def _drop(self, w):
        keep = (torch.rand_like(w) >= self.p).to(w.dtype)
        return w * keep / (1 - self.p)

    def forward(self, x):
        B, T, E = x.shape
        k, q, v = self.kqv(x).view(B, T, 3, self.num_heads, E // self.num_heads).permute(2, 0, 3, 1, 4)
        w = torch.softmax(q @ k.transpose(-1, -2) / (E // self.num_heads) ** 0.5, -1)
        return self.head((self._drop(w) @ v).transpose(1, 2).reshape(B, T, E))
