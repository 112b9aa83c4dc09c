import torch
import torch.nn as nn
import torch.nn.functional as F
from types import SimpleNamespace

hp = SimpleNamespace(d=32, h=4, max_len=64)


class DecoderAttention(nn.Module):
    """masked multi-head attention of the decoder"""

    def __init__(self, d=hp.d, h=hp.h):
        super().__init__()
        self.h = h
        self.W = nn.Linear(d, 3 * d, bias=False)
        self.U = nn.Linear(d, d, bias=False)
        self.register_buffer("tri", torch.tril(torch.ones(hp.max_len, hp.max_len)).bool())

    def forward(self, x):
        n, t, d = x.shape
        q, k, v = [z.reshape(n, self.h, t, d // self.h) for z in self.W(x).chunk(3, -1)]
        a = (q @ k.transpose(-1, -2)) / (d // self.h) ** 0.5
        a = a.masked_fill(~self.tri[:t, :t], float("-inf"))
        y = (F.softmax(a, -1) @ v).reshape(n, t, d)
        return self.U(y)
