import math
import torch
import torch.nn as nn


class T5Config:
    def __init__(self, d_model=512, d_kv=64, num_heads=8, dropout_rate=0.1, relative_attention_num_buckets=32, is_decoder=False):
        self.d_model = d_model
        self.d_kv = d_kv
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.relative_attention_num_buckets = relative_attention_num_buckets
        self.is_decoder = is_decoder


class T5Attention(nn.Module):
    """no scale; the first layer makes the bias by distance, the others are given it"""

    def __init__(self, config: T5Config, has_relative_attention_bias=False):
        super().__init__()
        self.is_decoder = config.is_decoder
        self.has_relative_attention_bias = has_relative_attention_bias
        self.buckets = config.relative_attention_num_buckets
        self.n_heads, self.d_kv = config.num_heads, config.d_kv
        inner = self.n_heads * self.d_kv
        self.q = nn.Linear(config.d_model, inner, bias=False)
        self.k = nn.Linear(config.d_model, inner, bias=False)
        self.v = nn.Linear(config.d_model, inner, bias=False)
        self.o = nn.Linear(inner, config.d_model, bias=False)
        self.dropout = nn.Dropout(config.dropout_rate)
        if has_relative_attention_bias:
            self.relative_attention_bias = nn.Embedding(self.buckets, self.n_heads)

    def _bucket(self, distance, max_distance=128):
        n, out = self.buckets, 0
        if not self.is_decoder:
            n //= 2
            out = (distance > 0).long() * n
            distance = distance.abs()
        else:
            distance = -torch.min(distance, torch.zeros_like(distance))
        exact = n // 2
        far = exact + (torch.log(distance.float().clamp(min=1) / exact) / math.log(max_distance / exact) * (n - exact)).long()
        return out + torch.where(distance < exact, distance, far.clamp(max=n - 1))

    def compute_bias(self, query_length, key_length):
        distance = torch.arange(key_length)[None, :] - torch.arange(query_length)[:, None]
        return self.relative_attention_bias(self._bucket(distance)).permute(2, 0, 1).unsqueeze(0)

    def forward(self, hidden_states, mask=None, key_value_states=None, position_bias=None):
        bsz, seq, _ = hidden_states.shape
        source = hidden_states if key_value_states is None else key_value_states
        shape = lambda t: t.view(bsz, -1, self.n_heads, self.d_kv).transpose(1, 2)
        q, k, v = shape(self.q(hidden_states)), shape(self.k(source)), shape(self.v(source))
        scores = torch.matmul(q, k.transpose(3, 2))
        if position_bias is None:
            if self.has_relative_attention_bias:
                position_bias = self.compute_bias(seq, k.shape[2])
            else:
                position_bias = torch.zeros((1, self.n_heads, seq, k.shape[2]), dtype=scores.dtype)
            if mask is not None:
                position_bias = position_bias + mask
        scores = scores + position_bias
        weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
        context = torch.matmul(self.dropout(weights), v).transpose(1, 2).contiguous().view(bsz, seq, -1)
        return self.o(context), position_bias
