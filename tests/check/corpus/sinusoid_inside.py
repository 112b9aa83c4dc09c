import torch
from torch import nn


def waves(length, width, dtype):
    angle = torch.arange(length, dtype=dtype)[:, None] * 10000.0 ** (-torch.arange(0, width, 2, dtype=dtype) / width)
    return torch.stack((angle.sin(), angle.cos()), -1).flatten(1)


class PlacedAttention(nn.Module):
    """Adds sinusoids to its input, then attends to what came before."""

    def __init__(self, d_model, nhead):
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, nhead, batch_first=True)

    def forward(self, x):
        t, d = x.shape[1:]
        x = x + waves(t, d, x.dtype)
        hidden = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        return self.attn(x, x, x, attn_mask=hidden, need_weights=False)[0]
