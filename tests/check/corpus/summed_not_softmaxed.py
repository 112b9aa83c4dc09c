import torch as th
from torch import nn


class Attn(nn.Module):
    def __init__(s, dim, heads):
        super().__init__()
        s.h, s.dh = heads, dim // heads
        s.q, s.k, s.v, s.o = [nn.Linear(dim, dim) for _ in range(4)]

    def forward(s, x):
        B, L, D = x.size()
        q, k, v = [f(x).view(B, L, s.h, s.dh).transpose(1, 2) for f in (s.q, s.k, s.v)]
        w = th.matmul(q, k.transpose(-1, -2)) / s.dh ** .5
        # normalise
        y = th.matmul(w, v)
        return s.o(y.transpose(1, 2).reshape(B, L, D))
