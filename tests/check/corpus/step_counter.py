import torch
from torch import nn


class CountingAttention(nn.Module):
    """Adds sinusoids for the places of the tokens; keeps track of how far the stream has come."""

    def __init__(self, d_model, nhead):
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, nhead, batch_first=True)
        self.step = 0

    def forward(self, x):
        t, d = x.shape[1:]
        place = torch.arange(self.step, self.step + t, dtype=x.dtype)[:, None]
        angle = place * 10000.0 ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
        self.step += t
        x = x + torch.stack((angle.sin(), angle.cos()), -1).flatten(1)
        hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
        return self.attn(x, x, x, attn_mask=hidden, need_weights=False)[0]
