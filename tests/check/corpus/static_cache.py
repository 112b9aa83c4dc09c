# Simple and fast: a static KV cache that is written with index_put, positions come from outside
from typing import Optional

import torch
import torch.nn as nn
from torch import Tensor
from torch.nn import functional as F


class KVCache(nn.Module):
    def __init__(self, max_batch_size, max_seq_length, n_heads, head_dim, dtype=torch.float64):
        super().__init__()
        cache_shape = (max_batch_size, n_heads, max_seq_length, head_dim)
        self.register_buffer('k_cache', torch.zeros(cache_shape, dtype=dtype))
        self.register_buffer('v_cache', torch.zeros(cache_shape, dtype=dtype))

    def update(self, input_pos, k_val, v_val):
        # input_pos: [S], k_val: [B, H, S, D]
        assert input_pos.shape[0] == k_val.shape[2]
        k_out = self.k_cache
        v_out = self.v_cache
        k_out[:k_val.shape[0], :, input_pos] = k_val.to(k_out)
        v_out[:v_val.shape[0], :, input_pos] = v_val.to(v_out)
        return k_out[:k_val.shape[0]].to(k_val), v_out[:v_val.shape[0]].to(v_val)


class Attention(nn.Module):
    def __init__(self, dim: int, n_head: int, max_batch_size: int = 8, max_seq_length: int = 64):
        super().__init__()
        self.wqkv = nn.Linear(dim, 3 * dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)
        self.n_head, self.head_dim, self.dim = n_head, dim // n_head, dim
        self.kv_cache = KVCache(max_batch_size, max_seq_length, n_head, self.head_dim)
        self.register_buffer("causal_mask", torch.tril(torch.ones(max_seq_length, max_seq_length, dtype=torch.bool)))

    def forward(self, x: Tensor, input_pos: Optional[Tensor] = None) -> Tensor:
        bsz, seqlen, _ = x.shape
        q, k, v = self.wqkv(x).split([self.dim, self.dim, self.dim], dim=-1)
        q, k, v = map(lambda t: t.view(bsz, seqlen, self.n_head, self.head_dim).transpose(1, 2), (q, k, v))
        if input_pos is None:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            k, v = self.kv_cache.update(input_pos, k, v)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=self.causal_mask[input_pos])
        return self.wo(y.transpose(1, 2).contiguous().view(bsz, seqlen, self.dim))
