import torch
from torch import nn
from torch.nn import functional as F


class VideoAttention(nn.Module):
    def __init__(self, dim, heads=4, p=0.1):
        super().__init__()
        self.heads, self.p = heads, p
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.view(b, n, self.heads, d // self.heads).transpose(1, 2) for t in (q, k, v))
        attn = F.softmax(q @ k.transpose(-2, -1) * (d // self.heads) ** -0.5, dim=-1)
        attn = F.dropout(attn, self.p)
        return self.proj((attn @ v).transpose(1, 2).reshape(b, n, d))
