import torch
from torch import nn


class DotAttention(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(size, size, bias=False)
        self.key = nn.Linear(size, size, bias=False)
        self.value = nn.Linear(size, size, bias=False)
        self.unify = nn.Linear(size, size)

    def forward(self, x):
        b, t, k = x.size()
        h = self.heads
        s = k // h
        queries = self.query(x).view(b, t, h, s).transpose(1, 2).contiguous().view(b * h, t, s)
        keys = self.key(x).view(b, t, h, s).transpose(1, 2).contiguous().view(b * h, t, s)
        values = self.value(x).view(b, t, h, s).transpose(1, 2).contiguous().view(b * h, t, s)
        queries = queries / (s ** (1 / 4))
        keys = keys / (s ** (1 / 4))
        dot = torch.bmm(queries, keys.transpose(1, 2)).softmax(dim=2)
        out = torch.bmm(dot, keys).view(b, h, t, s)
        return self.unify(out.transpose(1, 2).contiguous().view(b, t, s * h))
