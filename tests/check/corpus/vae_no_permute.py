import torch
from torch import nn


class SpatialSelfAttention(nn.Module):
    """b, c, h, w"""

    def __init__(self, channels):
        super().__init__()
        self.to_q, self.to_k, self.to_v = (nn.Conv2d(channels, channels, 1) for _ in range(3))
        self.to_out = nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = (f(x).flatten(2) for f in (self.to_q, self.to_k, self.to_v))
        attn = torch.einsum('bci,bcj->bij', q, k) * c ** -0.5
        attn = attn.softmax(dim=1)
        out = torch.einsum('bcj,bij->bci', v, attn)
        return x + self.to_out(out.view(b, c, h, w))
