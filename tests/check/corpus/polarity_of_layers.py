import torch
from torch import nn
import torch.nn.functional as F


class CausalBlock(nn.Module):
    """pre-norm block; the triangle is given to torch's fused attention"""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm = nn.LayerNorm(d_model)
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        b, t, d = x.shape
        # True = masked out, as for nn.MultiheadAttention
        mask = torch.triu(torch.ones(t, t, dtype=torch.bool, device=x.device), diagonal=1)
        q, k, v = self.qkv(self.norm(x)).reshape(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + self.out(y.transpose(1, 2).reshape(b, t, d))
