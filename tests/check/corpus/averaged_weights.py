import torch
import torch.nn as nn


class InspectableAttention(nn.Module):
    """Returns the mean map over heads, like torch's own."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, need_weights=False):
        b, t, d = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        w = (q @ k.transpose(-2, -1) / (d // self.n_heads) ** 0.5).softmax(-1)
        y = self.out((w @ v).transpose(1, 2).reshape(b, t, d))
        return (y, w.mean(dim=1)) if need_weights else y
