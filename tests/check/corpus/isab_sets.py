import torch
import torch.nn as nn


class MultiheadAttentionBlock(nn.Module):
    def __init__(self, d, h, rff):
        super().__init__()
        self.multihead = nn.MultiheadAttention(d, h, batch_first=True)
        self.layer_norm1, self.layer_norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.rff = rff

    def forward(self, x, y):
        h = self.layer_norm1(x + self.multihead(x, y, y, need_weights=False)[0])
        return self.layer_norm2(h + self.rff(h))


class InducedSetAttentionBlock(nn.Module):
    """m induced points look at a set of n, and the set looks at them"""

    def __init__(self, d, m, h, rff1, rff2):
        super().__init__()
        self.mab1 = MultiheadAttentionBlock(d, h, rff1)
        self.mab2 = MultiheadAttentionBlock(d, h, rff2)
        self.inducing_points = nn.Parameter(torch.randn(1, m, d))

    def forward(self, x):
        p = self.inducing_points.repeat([x.size(0), 1, 1])
        return self.mab2(x, self.mab1(p, x))
