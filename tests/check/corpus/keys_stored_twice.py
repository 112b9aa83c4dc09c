import math
from dataclasses import dataclass
import torch
from torch import nn


@dataclass
class Params:
    dim: int = 48
    n_heads: int = 4
    max_batch_size: int = 8
    max_seq_len: int = 64


class KVAttention(nn.Module):
    """Llama-like, without rotations; what was seen is kept in the module"""

    def __init__(self, params: Params):
        super().__init__()
        self.n_heads, self.head_dim = params.n_heads, params.dim // params.n_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(params.dim, params.dim, bias=False) for _ in range(4))
        shape = (params.max_batch_size, params.max_seq_len, self.n_heads, self.head_dim)
        self.cache_k, self.cache_v = torch.zeros(shape), torch.zeros(shape)

    def forward(self, x, start_pos: int):
        b, t, _ = x.shape
        xq, xk, xv = (w(x).view(b, t, self.n_heads, self.head_dim) for w in (self.wq, self.wk, self.wv))
        self.cache_k, self.cache_v = self.cache_k.to(xq).detach(), self.cache_v.to(xq).detach()
        self.cache_k[:b, start_pos:start_pos + t] = xk
        self.cache_v[:b, start_pos:start_pos + t] = xk
        end = start_pos + t
        keys, values = self.cache_k[:b, :end].transpose(1, 2), self.cache_v[:b, :end].transpose(1, 2)
        scores = xq.transpose(1, 2) @ keys.transpose(2, 3) / math.sqrt(self.head_dim)
        scores = scores.masked_fill(torch.ones(t, end).triu(start_pos + 1).bool(), float("-inf"))
        return self.wo((scores.softmax(-1) @ values).transpose(1, 2).reshape(b, t, -1))
