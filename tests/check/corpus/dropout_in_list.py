import torch
import torch.nn as nn


class ListedAttention(nn.Module):
    def __init__(self, in_dim, n_heads, p_drop=0.1):
        super().__init__()
        self.h = n_heads
        self.w = nn.ModuleList([nn.Linear(in_dim, in_dim) for _ in range(4)])
        self.regularisers = [nn.Dropout(p_drop), nn.Dropout(p_drop)]

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = [w(x).reshape(b, n, self.h, d // self.h).swapaxes(1, 2) for w in self.w[:3]]
        a = torch.softmax(q @ k.swapaxes(-1, -2) / (d // self.h) ** 0.5, -1)
        a = self.regularisers[0](a)
        return self.regularisers[1](self.w[3]((a @ v).swapaxes(1, 2).reshape(b, n, d)))
