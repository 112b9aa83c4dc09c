import torch
import torch.nn as nn


class PaddedSelfAttention(nn.Module):
    """Encoder attention. `mask` comes from the collate function: 1 marks padding, 0 a token."""

    def __init__(self, hidden_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W = nn.ModuleDict({n: nn.Linear(hidden_dim, hidden_dim) for n in ("q", "k", "v", "o")})

    def forward(self, x, mask=None):
        n, t, d = x.shape
        q, k, v = (self.W[c](x).view(n, t, self.num_heads, d // self.num_heads).transpose(1, 2) for c in "qkv")
        e = q @ k.transpose(-2, -1) / (d // self.num_heads) ** 0.5
        if mask is not None:
            e = e.masked_fill(mask[:, None, None, :] == 1, -1e9)
        return self.W["o"]((e.softmax(-1) @ v).transpose(1, 2).reshape(n, t, d))
