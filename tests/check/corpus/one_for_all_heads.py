import torch
import torch.nn as nn


class Head(nn.Module):
    def __init__(self, dim, size):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(dim, size), nn.Linear(dim, size), nn.Linear(dim, size)

    def forward(self, x):
        w = torch.softmax(self.q(x) @ self.k(x).transpose(1, 2) / self.k.out_features ** 0.5, dim=-1)
        return w @ self.v(x)


class ManyHeads(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.heads = nn.ModuleList(Head(dim, dim // num_heads) for _ in range(num_heads))
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        return self.out(torch.cat([self.heads[0](x) for _ in self.heads], dim=-1))
