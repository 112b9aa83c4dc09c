"""Queries and keys of length one times the root of their size, as image models have it."""
import torch
import torch.nn.functional as F
from torch import nn, einsum


def exists(val):
    return val is not None


def split(t, h):
    b, n, _ = t.shape
    return t.reshape(b, n, h, -1).transpose(1, 2)


class HeadNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.factor = dim ** 0.5
        self.g = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return F.normalize(x, dim = -1) * self.factor * self.g


class ImageAttention(nn.Module):
    def __init__(self, dim, dim_context = None, heads = 8, dim_head = 64):
        super().__init__()
        self.heads = heads
        self.scale = dim_head ** -0.5
        self.crossed = exists(dim_context)
        self.norm_q = HeadNorm(dim_head)
        self.norm_k = HeadNorm(dim_head)
        self.to_q = nn.Linear(dim, heads * dim_head, bias = False)
        self.to_kv = nn.Linear(dim_context or dim, 2 * heads * dim_head, bias = False)
        self.to_out = nn.Linear(heads * dim_head, dim, bias = False)

    def forward(self, x, context = None):
        if self.crossed:
            assert exists(context)
        else:
            context = x
        k, v = self.to_kv(context).chunk(2, dim = -1)
        q, k, v = (split(t, self.heads) for t in (self.to_q(x), k, v))
        sim = einsum('b h i d, b h j d -> b h i j', self.norm_q(q), self.norm_k(k)) * self.scale
        out = einsum('b h i j, b h j d -> b h i d', sim.softmax(dim = -1), v)
        return self.to_out(out.transpose(1, 2).flatten(2))


class ImageAttentionTwice(nn.Module):
    def __init__(self, dim, heads = 8, dim_head = 64):
        super().__init__()
        self.heads = heads
        self.scale = dim_head ** 0.5
        self.norm_q, self.norm_k = HeadNorm(dim_head), HeadNorm(dim_head)
        self.to_qkv = nn.Linear(dim, 3 * heads * dim_head, bias = False)
        self.to_out = nn.Linear(heads * dim_head, dim, bias = False)

    def forward(self, x):
        q, k, v = (split(t, self.heads) for t in self.to_qkv(x).chunk(3, dim = -1))
        sim = einsum('b h i d, b h j d -> b h i j', self.norm_q(q), self.norm_k(k)) * self.scale
        out = einsum('b h i j, b h j d -> b h i d', sim.softmax(dim = -1), v)
        return self.to_out(out.transpose(1, 2).flatten(2))
