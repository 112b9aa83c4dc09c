from functools import partialmethod
from typing import Optional

import torch
import torch.nn as nn


class TriangleAttention(nn.Module):
    """Pairs look at pairs that begin (or end) at the same residue. x: [*, I, J, C_in], mask: [*, I, J], 1 = there"""

    def __init__(self, c_in, c_hidden, no_heads, starting=True, inf=1e9):
        super(TriangleAttention, self).__init__()
        self.c_in, self.c_hidden, self.no_heads, self.starting, self.inf = c_in, c_hidden, no_heads, starting, inf
        self.layer_norm = nn.LayerNorm(c_in)
        self.linear = nn.Linear(c_in, no_heads, bias=False)
        self.linear_q = nn.Linear(c_in, c_hidden * no_heads, bias=False)
        self.linear_k = nn.Linear(c_in, c_hidden * no_heads, bias=False)
        self.linear_v = nn.Linear(c_in, c_hidden * no_heads, bias=False)
        self.linear_g = nn.Linear(c_in, c_hidden * no_heads)
        self.linear_o = nn.Linear(c_hidden * no_heads, c_in)

    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        if mask is None:
            mask = x.new_ones(x.shape[:-1])
        if not self.starting:
            x, mask = x.transpose(-2, -3), mask.transpose(-1, -2)
        x = self.layer_norm(x)
        mask_bias = (self.inf * (mask - 1))[..., :, None, None, :]
        triangle_bias = self.linear(x).permute(*range(x.dim() - 3), -1, -3, -2).unsqueeze(-4)
        heads = lambda t: t.view(t.shape[:-1] + (self.no_heads, -1)).transpose(-2, -3)
        q, k, v = heads(self.linear_q(x)), heads(self.linear_k(x)), heads(self.linear_v(x))
        a = torch.softmax(q @ k.transpose(-1, -2) / self.c_hidden ** 0.5 + mask_bias + triangle_bias, dim=-1)
        o = (a @ v).transpose(-2, -3) * torch.sigmoid(self.linear_g(x)).view(x.shape[:-1] + (self.no_heads, -1))
        o = self.linear_o(o.flatten(-2))
        return o if self.starting else o.transpose(-2, -3)


class TriangleAttentionEndingNode(TriangleAttention):
    __init__ = partialmethod(TriangleAttention.__init__, starting=False)
