import torch
from torch import nn


class HeadsMixin:
    def split_heads(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def merge_heads(self, x):
        n = x.shape[-2]
        return x.reshape(x.shape[0], n, -1)


class ScoreMixin:
    def weights(self, q, k):
        return torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, dim=-1)


class MixedInAttention(HeadsMixin, ScoreMixin, nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.proj = nn.ModuleDict({name: nn.Linear(dim, dim) for name in ("q", "k", "v", "out")})

    def forward(self, x):
        q, k, v = (self.split_heads(self.proj[name](x)) for name in "qkv")
        return self.proj["out"](self.merge_heads(self.weights(q, k) @ v))
