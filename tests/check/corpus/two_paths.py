import math
import torch
import torch.nn as nn
import torch.nn.functional as F


class SwitchableAttention(nn.Module):
    """use_sdpa only chooses the kernel."""

    def __init__(self, dim, num_heads, use_sdpa=False):
        super().__init__()
        self.num_heads, self.use_sdpa = num_heads, use_sdpa
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        if self.use_sdpa:
            y = F.scaled_dot_product_attention(q, k, v, scale=1 / math.sqrt(C))
        else:
            y = (q @ k.transpose(-2, -1) / math.sqrt(C // self.num_heads)).softmax(-1) @ v
        return self.proj(y.transpose(1, 2).reshape(B, N, C))
