"""Regression on tables with a transformer: every column is a token."""
import torch
import torch.nn as nn


class ColumnAttention(nn.Module):
    def __init__(self, d_token: int, n_heads: int, dropout: float = 0.0):
        super().__init__()
        self.n_heads = n_heads
        self.W_q = nn.Linear(d_token, d_token)
        self.W_k = nn.Linear(d_token, d_token)
        self.W_v = nn.Linear(d_token, d_token)
        self.W_out = nn.Linear(d_token, d_token)
        self.dropout = nn.Dropout(dropout)

    def _reshape(self, x):
        batch_size, n_tokens, d = x.shape
        d_head = d // self.n_heads
        return x.reshape(batch_size, n_tokens, self.n_heads, d_head).transpose(1, 2).reshape(batch_size * self.n_heads, n_tokens, d_head)

    def forward(self, x):
        q, k, v = self.W_q(x), self.W_k(x), self.W_v(x)
        batch_size, n_tokens, d = x.shape
        d_head = d // self.n_heads
        q, k = self._reshape(q), self._reshape(k)
        attention = torch.softmax(q @ k.transpose(1, 2), dim=-1) / d_head ** 0.5
        attention = self.dropout(attention)
        y = attention @ self._reshape(v)
        y = y.reshape(batch_size, self.n_heads, n_tokens, d_head).transpose(1, 2).reshape(batch_size, n_tokens, d)
        return self.W_out(y)
