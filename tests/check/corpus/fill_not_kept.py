from typing import Optional

import torch
import torch.nn as nn
from torch import Tensor


class CrossModalAttention(nn.Module):
    """Text looks at image regions."""

    def __init__(self, embed_dim: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.query = nn.Linear(embed_dim, embed_dim)
        self.key_value = nn.Linear(embed_dim, 2 * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(self, text: Tensor, regions: Tensor, regions_mask: Optional[Tensor] = None) -> Tensor:
        B, T, E = text.shape
        R = regions.shape[1]
        q = self.query(text).view(B, T, self.num_heads, self.head_dim).transpose(1, 2)
        k, v = self.key_value(regions).view(B, R, 2, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        logits = torch.matmul(q, k.transpose(-1, -2)) / self.head_dim ** 0.5
        if regions_mask is not None:
            logits.masked_fill(~regions_mask[:, None, None, :], float("-inf"))
        attn = logits.softmax(dim=-1)
        return self.out(torch.matmul(attn, v).transpose(1, 2).reshape(B, T, E))
