import torch
import torch.nn as nn


class CaptionCrossAttention(nn.Module):
    """words look at regions; region_mask (B, R): True for real regions"""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads, self.dk = heads, hidden // heads
        self.wq, self.wk, self.wv = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.wo = nn.Linear(hidden, hidden)

    def forward(self, words, memory, key_padding_mask=None):
        B = words.shape[0]
        q = self.wq(words).reshape(B, -1, self.heads, self.dk).transpose(1, 2)
        k = self.wk(memory).reshape(B, -1, self.heads, self.dk).transpose(1, 2)
        v = self.wk(memory).reshape(B, -1, self.heads, self.dk).transpose(1, 2)
        score = q @ k.transpose(-2, -1) / self.dk ** 0.5
        if key_padding_mask is not None:
            score = score.masked_fill(key_padding_mask[:, None, None, :], -1e9)
        ctx = score.softmax(-1) @ v
        return self.wo(ctx.transpose(1, 2).reshape(B, -1, self.heads * self.dk))
