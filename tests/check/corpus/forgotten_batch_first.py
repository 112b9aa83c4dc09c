import torch
import torch.nn as nn


class SensorTransformer(nn.Module):
    """x: (batch, time, features)"""

    def __init__(self, num_features, d_model=24, nhead=4):
        super().__init__()
        self.input = nn.Linear(num_features, d_model)
        self.attention = nn.MultiheadAttention(d_model, nhead)
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x):
        # x: (batch, time, features)
        h = self.input(x)
        attn_out, _ = self.attention(h, h, h)
        return self.norm(h + attn_out)
