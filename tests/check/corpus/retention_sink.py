import torch
from torch import nn
import torch.nn.functional as F


class SimpleRetention(nn.Module):
    """Retention: no softmax, but a decay gamma ** (n - m), looking back only."""

    def __init__(self, hidden_size, gamma: float = 0.9):
        super().__init__()
        self.gamma = gamma
        self.W_Q = nn.Parameter(torch.randn(hidden_size, hidden_size) / hidden_size)
        self.W_K = nn.Parameter(torch.randn(hidden_size, hidden_size) / hidden_size)
        self.W_V = nn.Parameter(torch.randn(hidden_size, hidden_size) / hidden_size)

    def forward(self, X):
        n = X.shape[1]
        i = torch.arange(n).unsqueeze(1)
        j = torch.arange(n).unsqueeze(0)
        D = (self.gamma ** (i - j).clamp(min=0)) * (i >= j)
        Q, K, V = X @ self.W_Q, X @ self.W_K, X @ self.W_V
        return (Q @ K.permute(0, 2, 1) * D.to(X)) @ V


class SinkAttention(nn.Module):
    """softmax with one more in the denominator: a head may look at nothing."""

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.o = nn.Linear(d_model, d_model)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.n_heads, -1).permute(2, 0, 3, 1, 4)
        s = q @ k.transpose(-1, -2) / (d // self.n_heads) ** 0.5
        w = F.softmax(F.pad(s, (1, 0)), dim=-1)[..., 1:]
        return self.o((w @ v).transpose(1, 2).reshape(b, t, d))
