import torch
from torch import nn


class RotaryPositionalEmbedding(nn.Module):
    def __init__(self, head_dim: int, base: float = 10_000.0):
        super().__init__()
        inv = base ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
        self.register_buffer("inv", inv, persistent=False)

    def forward(self, x: torch.Tensor, offset: int = 0) -> torch.Tensor:
        """x: [batch, tokens, heads, head_dim] -> the same, turned"""
        t = torch.arange(offset, offset + x.shape[1], dtype=self.inv.dtype)
        angle = torch.outer(t, self.inv)[:, None].to(x)
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=-1)


def apply_rotary(q, k, cos, sin):
    """q, k: (b, h, t, d), cos and sin: (t, d / 2); neighbouring channels turn together"""
    def turn(x):
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)
    return turn(q), turn(k)
