import torch
import torch.nn as nn


class RobustAttention(nn.Module):
    """Padding-safe: rows that see nothing become zero."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(d_model, 3 * d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x, attn_mask=None):
        B, T, D = x.shape
        q, k, v = self.in_proj(x).reshape(B, T, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (D // self.num_heads) ** 0.5
        if attn_mask is not None:
            scores = scores + attn_mask
        weights = torch.nan_to_num(torch.softmax(scores, dim=-1))
        return self.out_proj((weights @ v).transpose(1, 2).reshape(B, T, D))
