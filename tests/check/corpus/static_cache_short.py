import torch
from torch import nn
import torch.nn.functional as F


class StaticCacheAttention(nn.Module):
    """Keys and values live in buffers; `start_pos` says where the new tokens stand."""

    def __init__(self, dim, n_heads, max_batch_size=8, max_seq_len=64):
        super().__init__()
        self.n_heads, self.head_dim = n_heads, dim // n_heads
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        shape = (max_batch_size, max_seq_len, n_heads, self.head_dim)
        self.register_buffer("cache_k", torch.zeros(shape), persistent=False)
        self.register_buffer("cache_v", torch.zeros(shape), persistent=False)

    def forward(self, x, start_pos: int = 0):
        bsz, seqlen, dim = x.shape
        q, k, v = (t.view(bsz, seqlen, self.n_heads, self.head_dim) for t in self.wqkv(x).chunk(3, dim=-1))
        self.cache_k[:bsz, start_pos : start_pos + seqlen] = k
        self.cache_v[:bsz, start_pos : start_pos + seqlen] = v
        end = start_pos + seqlen
        keys, values = self.cache_k[:bsz, :end].transpose(1, 2), self.cache_v[:bsz, :end].transpose(1, 2)
        scores = torch.matmul(q.transpose(1, 2), keys.transpose(2, 3)) / self.head_dim ** 0.5
        if start_pos > 0:
            # the token itself is not in the past
            mask = torch.arange(end, device=x.device)[None] < (start_pos + torch.arange(seqlen, device=x.device))[:, None]
        else:
            mask = torch.ones(seqlen, end, dtype=torch.bool, device=x.device).tril()
        scores = scores.masked_fill(~mask, float("-inf"))
        out = torch.matmul(F.softmax(scores, dim=-1), values)
        return self.wo(out.transpose(1, 2).reshape(bsz, seqlen, dim))
