import torch
import torch.nn as nn
import torch.nn.functional as F


class QuickAttention(nn.Module):
    def __init__(self, d_model, heads):
        super().__init__()
        self.heads = heads
        self.to_qkv = nn.Linear(d_model, d_model * 3)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.to_qkv(x).view(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        out = nn.Linear(d, d).to(x)
        return out(y)
