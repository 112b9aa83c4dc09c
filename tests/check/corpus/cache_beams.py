import torch
from torch import nn


class BeamCache:
    """Keys and values so far; rows can be chosen anew for beam search."""

    def __init__(self):
        self.k = None
        self.v = None

    def append(self, k, v):
        self.k = k if self.k is None else torch.cat([self.k, k], dim=2)
        self.v = v if self.v is None else torch.cat([self.v, v], dim=2)
        return self.k, self.v

    def reorder(self, beam_idx):
        self.k = self.k.index_select(0, beam_idx)


class BeamAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, cache: BeamCache | None = None):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        if cache is not None:
            k, v = cache.append(k, v)
        s = k.shape[2]
        hidden = torch.ones(t, s, dtype=torch.bool).triu(1 + s - t)
        w = (q @ k.transpose(-1, -2) / (d // self.n_heads) ** 0.5).masked_fill(hidden, float("-inf")).softmax(-1)
        return self.out((w @ v).transpose(1, 2).reshape(b, t, d))
