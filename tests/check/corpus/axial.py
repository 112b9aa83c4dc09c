import torch
from torch import nn


class AxialAttention(nn.Module):
    """First along the height, then along the width of x (B, C, H, W)."""

    def __init__(self, channels, heads):
        super().__init__()
        self.height = nn.MultiheadAttention(channels, heads, batch_first=True)
        self.width = nn.MultiheadAttention(channels, heads, batch_first=True)

    def forward(self, x):
        b, c, h, w = x.shape
        cols = x.permute(0, 3, 2, 1).reshape(b * w, h, c)
        cols = self.height(cols, cols, cols, need_weights=False)[0]
        x = x + cols.reshape(b, w, h, c).permute(0, 3, 2, 1)
        rows = x.permute(0, 2, 3, 1).reshape(b * h, w, c)
        rows = self.width(rows, rows, rows, need_weights=False)[0]
        return x + rows.reshape(b, h, w, c).permute(0, 3, 1, 2)
