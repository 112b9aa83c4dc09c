import math
import torch
import torch.nn as nn
import torch.nn.functional as F


def rel_shift(x):
    """x: (b, h, t, t), column c holds the score of distance t - 1 - c"""
    b, h, t, s = x.shape
    x = F.pad(x, (1, 0))
    x = x.view(b, h, s + 1, t)
    return x[:, :, :-1].reshape(b, h, t, s)


class RelativeAttention(nn.Module):
    def __init__(self, d_model, num_heads, max_len=64):
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.Er = nn.Parameter(torch.randn(max_len, d_model // num_heads))
        self.max_len = max_len

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (f(x).view(b, t, self.num_heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        rel = q @ self.Er[self.max_len - t:].transpose(0, 1)
        scores = (q @ k.transpose(2, 3) + rel_shift(rel)) / math.sqrt(d // self.num_heads)
        mask = torch.triu(torch.ones(t, t), 1).bool()
        return self.o((scores.masked_fill(mask, float("-inf")).softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
