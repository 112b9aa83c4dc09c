import math
import torch
import torch.nn as nn


class BucketAttention(nn.Module):
    """No scale: it is in the initial weights. The bias of the first layer is handed on."""

    def __init__(self, config, has_relative_attention_bias=True):
        super().__init__()
        self.is_decoder = config.is_decoder
        self.buckets = config.relative_attention_num_buckets
        self.max_distance = config.relative_attention_max_distance
        self.d_kv, self.n_heads = config.d_kv, config.num_heads
        inner = self.n_heads * self.d_kv
        self.q, self.k, self.v = (nn.Linear(config.d_model, inner, bias=False) for _ in range(3))
        self.o = nn.Linear(inner, config.d_model, bias=False)
        if has_relative_attention_bias:
            self.relative_attention_bias = nn.Embedding(self.buckets, self.n_heads)

    def bucket(self, rel):
        n = -rel
        out = 0
        num = self.buckets
        if not self.is_decoder:
            num //= 2
            out = (n < 0).long() * num
            n = n.abs()
        else:
            n = n.clamp(min=0)
        exact = num // 2
        large = exact + (torch.log(n.float().clamp(min=1) / exact) / math.log(self.max_distance / exact) * (num - exact)).long()
        return out + torch.where(n < exact, n, large.clamp(max=num - 1))

    def compute_bias(self, q_len, k_len, device):
        rel = torch.arange(k_len, device=device)[None] - torch.arange(q_len, device=device)[:, None]
        return self.relative_attention_bias(self.bucket(rel)).permute(2, 0, 1)[None]

    def forward(self, hidden_states, mask=None, key_value_states=None, position_bias=None):
        b, t = hidden_states.shape[:2]
        src = hidden_states if key_value_states is None else key_value_states
        view = lambda x: x.view(b, -1, self.n_heads, self.d_kv).transpose(1, 2)
        q, k, v = view(self.q(hidden_states)), view(self.k(src)), view(self.v(src))
        scores = q @ k.transpose(3, 2)
        if position_bias is None:
            position_bias = self.compute_bias(t, k.shape[2], scores.device)
            if mask is not None:
                position_bias = position_bias + mask
        scores = scores + position_bias
        out = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, -1)
        return self.o(out), position_bias
