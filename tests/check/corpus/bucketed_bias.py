import math
import torch
from torch import nn


class BucketedAttention(nn.Module):
    """Text-to-text attention: no 1/sqrt(d) (folded into the initialisation) and a learnt bias for each bucket of distance."""

    def __init__(self, d_model: int, d_kv: int, num_heads: int, relative_attention_num_buckets: int = 8,
                 has_relative_attention_bias: bool = True):
        super().__init__()
        self.n_heads, self.d_kv = num_heads, d_kv
        self.buckets = relative_attention_num_buckets
        self.inner_dim = num_heads * d_kv
        self.q = nn.Linear(d_model, self.inner_dim, bias=False)
        self.k = nn.Linear(d_model, self.inner_dim, bias=False)
        self.v = nn.Linear(d_model, self.inner_dim, bias=False)
        self.o = nn.Linear(self.inner_dim, d_model, bias=False)
        self.has_bias = has_relative_attention_bias
        if has_relative_attention_bias:
            self.relative_attention_bias = nn.Embedding(self.buckets, num_heads)

    @staticmethod
    def _bucket(relative_position, num_buckets, max_distance=128):
        num_buckets //= 2
        buckets = (relative_position > 0).to(torch.long) * num_buckets
        relative_position = torch.abs(relative_position)
        max_exact = num_buckets // 2
        is_small = relative_position < max_exact
        large = max_exact + (
            torch.log(relative_position.float().clamp(min=1) / max_exact)
            / math.log(max_distance / max_exact) * (num_buckets - max_exact)
        ).to(torch.long)
        large = torch.min(large, torch.full_like(large, num_buckets - 1))
        return buckets + torch.where(is_small, relative_position, large)

    def compute_bias(self, qlen, klen):
        context_position = torch.arange(qlen)[:, None]
        memory_position = torch.arange(klen)[None, :]
        bucket = self._bucket(memory_position - context_position, self.buckets)
        return self.relative_attention_bias(bucket).permute(2, 0, 1).unsqueeze(0)

    def forward(self, hidden_states, mask=None, position_bias=None):
        b, n, _ = hidden_states.shape
        shape = lambda t: t.view(b, -1, self.n_heads, self.d_kv).transpose(1, 2)
        q, k, v = shape(self.q(hidden_states)), shape(self.k(hidden_states)), shape(self.v(hidden_states))
        scores = torch.matmul(q, k.transpose(3, 2))
        if position_bias is None and self.has_bias:
            position_bias = self.compute_bias(n, n)
        if position_bias is not None:
            scores = scores + position_bias
        if mask is not None:
            scores = scores + mask
        weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
        out = torch.matmul(weights, v).transpose(1, 2).contiguous().view(b, -1, self.inner_dim)
        return self.o(out)
