import torch
import torch.nn as nn
import torch.nn.functional as F


class ChunkedCausalAttention(nn.Module):
    """Causal attention, plus a summary of the chunk that a token belongs to."""

    def __init__(self, hidden, heads, chunk=3):
        super().__init__()
        self.heads, self.chunk = heads, chunk
        self.qkv = nn.Linear(hidden, hidden * 3, bias=False)
        self.summary = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        pad = -t % self.chunk
        blocks = F.pad(x, (0, 0, 0, pad)).view(b, -1, self.chunk, c)
        mean = blocks.mean(2, keepdim=True).expand_as(blocks).reshape(b, -1, c)[:, :t]
        h = x + self.summary(mean)
        q, k, v = self.qkv(h).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))
