"""One key/value head for all queries, as in "one write-head is all you need"."""
from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as sdpa


class MultiQueryAttention(nn.Module):
    def __init__(self, model_dim: int, heads_count: int) -> None:
        super().__init__()
        self.heads_count = heads_count
        self.head_dim, rest = divmod(model_dim, heads_count)
        if rest:
            raise ValueError(f"{model_dim=} is no multiple of {heads_count=}")
        self.query = nn.Linear(model_dim, model_dim, bias=False)
        self.kv = nn.Linear(model_dim, 2 * self.head_dim, bias=False)
        self.out = nn.Linear(model_dim, model_dim, bias=False)

    def forward(self, x: Tensor, *, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        q = self.query(x).unflatten(-1, (self.heads_count, self.head_dim)).transpose(1, 2)
        k, v = self.kv(x).unsqueeze(1).chunk(2, dim=-1)
        k, v = k.expand_as(q), v.expand_as(q)
        return self.out(sdpa(q, k, v, attn_mask=attn_mask, is_causal=is_causal).transpose(1, 2).flatten(-2))
