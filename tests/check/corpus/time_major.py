import math

import torch
import torch.nn as nn


class TimeMajorSelfAttention(nn.Module):
    """
    Input shape: Time x Batch x Channel, i.e. (seq_len, batch, dim).
    Returns (seq_len, batch, dim) and the weights (batch, num_heads, seq_len, seq_len).
    """

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.proj_in = nn.Linear(dim, 3 * dim)
        self.proj_out = nn.Linear(dim, dim)

    def forward(self, x):
        seq_len, batch, dim = x.shape
        q, k, v = self.proj_in(x).chunk(3, dim=-1)
        q, k, v = (t.view(seq_len, batch, self.num_heads, dim // self.num_heads).permute(1, 2, 0, 3) for t in (q, k, v))
        weights = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(dim // self.num_heads), dim=-1)
        out = (weights @ v).permute(2, 0, 1, 3).reshape(seq_len, batch, dim)
        return self.proj_out(out), weights
