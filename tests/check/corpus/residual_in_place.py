import torch.nn as nn


class PreNormLayer(nn.Module):
    def __init__(self, dim, heads, dropout=0.):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.ff = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim * 2), nn.GELU(), nn.Linear(dim * 2, dim))

    def forward(self, x):
        y = self.norm(x)
        x += self.attn(y, y, y, need_weights=False)[0]  # residual
        x += self.ff(x)
        return x
