import torch, torch.nn as nn, torch.nn.functional as F

MASK_VALUE = -10.

class Attention(nn.Module):
    def __init__(self, n_dim, n_head, **kw):
        super().__init__(**kw)
        self.nh = n_head
        self.wqkv = nn.Parameter(torch.randn(n_dim, 3 * n_dim) / n_dim ** .5)
        self.wo = nn.Parameter(torch.randn(n_dim, n_dim) / n_dim ** .5)

    def forward(self, x, mask=None):
        B, T, C = x.shape
        q, k, v = (x @ self.wqkv).view(B, T, 3, self.nh, C // self.nh).permute(2, 0, 3, 1, 4)
        att = torch.matmul(q, k.transpose(-1, -2)) / (C // self.nh) ** .5
        if mask is not None:
            att = torch.where(mask.bool(), att, torch.tensor(MASK_VALUE, dtype=att.dtype))
        return torch.matmul(F.softmax(att, -1), v).transpose(1, 2).reshape(B, T, C) @ self.wo
