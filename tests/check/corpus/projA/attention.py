import torch
import torch.nn as nn

from layers import Proj


class Attention(nn.Module):
    def __init__(self, n_in, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.Wq, self.Wk, self.Wv, self.Wo = Proj(n_in, n_in), Proj(n_in, n_in), Proj(n_in, n_in), Proj(n_in, n_in)

    def forward(self, x):
        B, N, C = x.shape
        q, k, v = [w(x).view(B, N, self.n_heads, C // self.n_heads).transpose(1, 2) for w in (self.Wq, self.Wk, self.Wv)]
        a = torch.softmax(q @ k.transpose(2, 3) / (C // self.n_heads) ** 0.5, 3)
        return self.Wo((a @ v).transpose(1, 2).reshape(B, N, C))
