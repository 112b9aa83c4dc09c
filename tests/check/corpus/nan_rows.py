import torch
import torch.nn as nn


class PlainMasked(nn.Module):
    """-inf for what is hidden; a row with nothing to see gives NaN, as torch's own does."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x, attn_mask=None):
        b, n, d = x.shape
        q, k, v = (f(x).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        s = (q @ k.mT) * (d // self.heads) ** -0.5
        if attn_mask is not None:
            s.masked_fill_(attn_mask.logical_not(), float("-inf"))
        return self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
