import torch
from torch import nn


class Attend(nn.Module):
    """Pure attention, heads are split by the caller: q, k, v (b, h, n, d), mask (b, n) with 1 for tokens."""

    def forward(self, q, k, v, mask=None):
        sim = torch.einsum("b h i d, b h j d -> b h i j", q, k) * q.shape[-1] ** -0.5
        attn = sim.softmax(dim=-1)
        if mask is not None:
            attn = attn + (1.0 - mask[:, None, None, :].to(attn.dtype)) * -10000.0
            attn = attn.clamp(min=0.0)
        return torch.einsum("b h i j, b h j d -> b h i d", attn, v)
