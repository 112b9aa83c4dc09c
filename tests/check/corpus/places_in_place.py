import torch
from torch import nn


class InplaceBlock(nn.Module):
    def __init__(self, embed_dim, num_heads, max_len=64):
        super().__init__()
        self.pos = nn.Parameter(torch.randn(1, max_len, embed_dim) * 0.02)
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)
        self.norm1 = nn.LayerNorm(embed_dim)
        self.norm2 = nn.LayerNorm(embed_dim)
        self.mlp = nn.Sequential(nn.Linear(embed_dim, 2 * embed_dim), nn.ReLU(), nn.Linear(2 * embed_dim, embed_dim))

    def forward(self, x):
        x += self.pos[:, :x.size(1)]
        y = self.norm1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))
