"""Inputs are called as in Flax: inputs_q and inputs_kv; qkv_features and out_features are sizes of their own."""
import torch
from torch import nn


class MultiHeadDotProductAttention(nn.Module):
    def __init__(self, num_heads: int, in_features: int, qkv_features: int = None, out_features: int = None, dropout_rate: float = 0.0):
        super().__init__()
        self.num_heads = num_heads
        qkv = qkv_features or in_features
        self.query, self.key, self.value = (nn.Linear(in_features, qkv) for _ in range(3))
        self.out = nn.Linear(qkv, out_features or in_features)
        self.dropout = nn.Dropout(dropout_rate)

    def forward(self, inputs_q, inputs_kv, mask=None):
        """mask: [batch, 1 or heads, q, kv], True = attend"""
        split = lambda x: x.unflatten(-1, (self.num_heads, -1))
        q, k, v = split(self.query(inputs_q)), split(self.key(inputs_kv)), split(self.value(inputs_kv))
        q = q / q.shape[-1] ** 0.5
        logits = torch.einsum("...qhd,...khd->...hqk", q, k)
        if mask is not None:
            logits = torch.where(mask.bool(), logits, torch.finfo(logits.dtype).min)
        weights = self.dropout(logits.softmax(-1))
        return self.out(torch.einsum("...hqk,...khd->...qhd", weights, v).flatten(-2))
