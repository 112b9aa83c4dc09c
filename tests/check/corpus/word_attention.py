#-*- coding: utf-8 -*-
import torch
import torch.nn as nn


class WordAttention(nn.Module):
    """Pools the annotations of the words of a sentence with a context vector u_w (hierarchical attention networks)."""

    def __init__(self, hidden_dim, attention_dim=10):
        super().__init__()
        self.proj = nn.Linear(hidden_dim, attention_dim)
        self.u_w = nn.Parameter(torch.randn(attention_dim))

    def forward(self, h, mask=None):
        u = torch.tanh(self.proj(h))
        a = torch.matmul(u, self.u_w)
        if mask is not None:
            a = a.masked_fill(mask == 0, -1e9)
        alpha = torch.softmax(a, dim=1)
        s = (h * alpha.unsqueeze(-1)).sum(dim=1)
        return s, alpha


class StructuredSelfAttention(nn.Module):
    """r rows of weights per sentence: A = softmax(W2 tanh(W1 H)), M = A H   [B, r, D]"""

    def __init__(self, d_in, d_a=11, r=5):
        super().__init__()
        self.W1 = nn.Linear(d_in, d_a, bias=False)
        self.W2 = nn.Linear(d_a, r, bias=False)

    def forward(self, H):
        A = self.W2(torch.tanh(self.W1(H))).transpose(1, 2)
        A = torch.softmax(A, dim=-1)
        return A @ H
