import math
import torch
from torch import nn


def orthogonal_features(nb, d, seed=0):
    g = torch.Generator().manual_seed(seed)
    blocks = []
    for _ in range(math.ceil(nb / d)):
        q, _ = torch.linalg.qr(torch.randn(d, d, generator=g))
        blocks.append(q.t())
    return torch.cat(blocks)[:nb] * math.sqrt(d)


class FavorAttention(nn.Module):
    """Positive random features in place of the softmax."""

    def __init__(self, dim, heads=8, nb_features=None, causal=False, eps=1e-6):
        super().__init__()
        assert dim % heads == 0
        self.heads, self.dh = heads, dim // heads
        self.m = nb_features or 2 * self.dh
        self.causal, self.eps = causal, eps
        self.register_buffer("omega", orthogonal_features(self.m, self.dh))
        self.to_qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.to_out = nn.Linear(dim, dim)

    def phi(self, x, is_query):
        x = x * self.dh ** -0.25
        u = x @ self.omega.t()
        h = x.pow(2).sum(-1, keepdim=True) / 2
        if is_query:
            u = u - u.amax(-1, keepdim=True)
        elif not self.causal:
            u = u - u.amax((-1, -2), keepdim=True)
        return torch.exp(u - h) / math.sqrt(self.m) + self.eps

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = (t.reshape(b, n, self.heads, self.dh).transpose(1, 2) for t in self.to_qkv(x).chunk(3, -1))
        q, k = self.phi(q, True), self.phi(k, False)
        if self.causal:
            kv = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), dim=2)
            norm = torch.cumsum(k, dim=2)
            out = torch.einsum("bhnm,bhnmd->bhnd", q, kv) / torch.einsum("bhnm,bhnm->bhn", q, norm).unsqueeze(-1)
        else:
            kv = k.transpose(-1, -2) @ v
            out = (q @ kv) / (q @ k.sum(-2).unsqueeze(-1))
        return self.to_out(out.transpose(1, 2).reshape(b, n, -1))
