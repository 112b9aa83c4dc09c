import torch
from torch import nn


class LowRankSelfAttention(nn.Module):
    """Keys and values are projected along the sequence, from seq_len to k: the length is fixed."""

    def __init__(self, dim, seq_len, k=5, heads=4):
        super().__init__()
        self.seq_len, self.heads = seq_len, heads
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(dim, dim, bias=False)
        self.to_v = nn.Linear(dim, dim, bias=False)
        self.proj_k = nn.Parameter(torch.randn(seq_len, k) * seq_len ** -0.5)
        self.proj_v = nn.Parameter(torch.randn(seq_len, k) * seq_len ** -0.5)
        self.to_out = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, d = x.shape
        assert n == self.seq_len, f'the sequence must have length {self.seq_len}, got {n}'
        h = self.heads
        q = self.to_q(x).reshape(b, n, h, -1).transpose(1, 2)
        keys = torch.einsum('bnd,nk->bkd', self.to_k(x), self.proj_k).reshape(b, -1, h, d // h).transpose(1, 2)
        values = torch.einsum('bnd,nk->bkd', self.to_v(x), self.proj_v).reshape(b, -1, h, d // h).transpose(1, 2)
        attn = (torch.einsum('bhnd,bhkd->bhnk', q, keys) * (d // h) ** -0.5).softmax(dim=-1)
        return self.to_out(torch.einsum('bhnk,bhkd->bhnd', attn, values).transpose(1, 2).reshape(b, n, d))
