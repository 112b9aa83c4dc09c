import torch
from torch import nn


class ConvSelfAttention(nn.Module):
    """x: [b, c, t], x_mask: [b, 1, t] with 1 for frames and 0 for padding"""

    def __init__(self, channels, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Conv1d(channels, 3 * channels, 1)
        self.o = nn.Conv1d(channels, channels, 1)

    def forward(self, x, x_mask=None):
        b, c, t = x.shape
        q, k, v = self.qkv(x).view(b, 3, self.n_heads, c // self.n_heads, t).unbind(1)
        p = torch.einsum("bhct,bhcs->bhts", q, k).div((c // self.n_heads) ** 0.5).softmax(-1)
        if x_mask is not None:
            p = p * x_mask.unsqueeze(1)
        return self.o(torch.einsum("bhts,bhcs->bhct", p, v).reshape(b, c, t))
